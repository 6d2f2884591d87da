//! The canonical text of a manifest.

use std::io::BufRead;

use crate::{Digest, Entry, EntryKind, Header, ManifestError, PathClass, TreePath};

/// Most entries in one manifest.
pub const ENTRIES_MAX: usize = 4_000_000;
/// Longest line, in bytes: the header of an image with 10,000 packages is about 1 MB.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// An image description: header and entries in byte order of their paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What the image is.
    pub header: Header,
    /// Every path, strictly ascending.
    pub entries: Vec<Entry>,
}

impl Manifest {
    /// A manifest of these entries, sorted.
    ///
    /// # Errors
    /// [`ManifestError::Line`] when a path stands twice.
    pub fn new(header: Header, mut entries: Vec<Entry>) -> Result<Self, ManifestError> {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        if let Some(at) = entries.windows(2).position(|pair| pair[0].path == pair[1].path) {
            let problem = format!("{} stands twice", entries[at].path);
            return Err(ManifestError::Line { line: at + 3, problem });
        }
        Ok(Self { header, entries })
    }

    /// The canonical bytes: what is hashed and signed.
    ///
    /// # Errors
    /// [`ManifestError::Line`] when a value cannot be written as JSON, which no value of these types is.
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        let mut bytes = Vec::with_capacity(256 * (self.entries.len() + 8));
        write_line(&mut bytes, 1, &self.header)?;
        for (at, entry) in self.entries.iter().enumerate() {
            write_line(&mut bytes, at + 2, entry)?;
        }
        Ok(bytes)
    }

    /// Reads canonical bytes; anything else is refused with its line.
    ///
    /// # Errors
    /// [`ManifestError`] that names the line and what was expected there.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let mut lines = Lines { input: bytes, line: 0 };
        let header = lines.next_value::<Header>()?.ok_or_else(|| ManifestError::Line {
            line: 1,
            problem: "expected a header, found nothing".to_owned(),
        })?;
        if header.format != Header::FORMAT {
            let problem = format!("format {}: this version reads format {}", header.format, Header::FORMAT);
            return Err(ManifestError::Line { line: 1, problem });
        }
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(entry) = lines.next_value::<Entry>()? {
            if entries.last().is_some_and(|last| last.path >= entry.path) {
                return Err(ManifestError::Order {
                    line: lines.line,
                    path: entry.path,
                });
            }
            if entries.len() >= ENTRIES_MAX {
                let (found, limit) = (entries.len() as u64 + 1, ENTRIES_MAX as u64);
                return Err(ManifestError::Limit {
                    what: "entries in a manifest",
                    found,
                    limit,
                });
            }
            entries.push(entry);
        }
        Ok(Self { header, entries })
    }

    /// The digest that names this version: SHA-256 of the canonical bytes.
    ///
    /// # Errors
    /// As [`Manifest::encode`].
    pub fn digest(&self) -> Result<Digest, ManifestError> {
        Ok(Digest::of(&self.encode()?))
    }

    /// The entry at a path.
    #[must_use]
    pub fn get(&self, path: &TreePath) -> Option<&Entry> {
        self.entries
            .binary_search_by(|entry| entry.path.cmp(path))
            .ok()
            .map(|at| &self.entries[at])
    }

    /// How many regular files have each class.
    #[must_use]
    pub fn files_by_class(&self) -> std::collections::BTreeMap<PathClass, u64> {
        let mut counts = std::collections::BTreeMap::new();
        for entry in self
            .entries
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
        {
            *counts.entry(entry.class).or_default() += 1;
        }
        counts
    }

    /// Total size of all regular files, in bytes.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry.kind {
            EntryKind::File(Some(content)) => content.size,
            _ => 0,
        };
        self.entries.iter().map(size).sum()
    }
}

fn write_line<T: serde::Serialize>(bytes: &mut Vec<u8>, line: usize, value: &T) -> Result<(), ManifestError> {
    serde_json::to_writer(&mut *bytes, value).map_err(|error| ManifestError::Line {
        line,
        problem: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(())
}

struct Lines<'a> {
    input: &'a [u8],
    line: usize,
}

impl Lines<'_> {
    fn next_value<T>(&mut self) -> Result<Option<T>, ManifestError>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        if self.input.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        let wrong = |problem: String| ManifestError::Line {
            line: self.line,
            problem,
        };
        let mut text = Vec::new();
        let read = self
            .input
            .by_ref_until(&mut text)
            .map_err(|error| wrong(error.to_string()))?;
        if read > LINE_BYTES_MAX {
            let (found, limit) = (read as u64, LINE_BYTES_MAX as u64);
            return Err(ManifestError::Limit {
                what: "bytes in a manifest line",
                found,
                limit,
            });
        }
        if text.pop() != Some(b'\n') {
            return Err(wrong("expected a line feed at the end".to_owned()));
        }
        let value: T = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let mut again = Vec::with_capacity(text.len());
        write_line(&mut again, self.line, &value)?;
        again.pop();
        if again != text {
            return Err(wrong(
                "not in canonical form (field order, white space or escaping)".to_owned(),
            ));
        }
        Ok(Some(value))
    }
}

/// `read_until` under a name that does not clash with the slice's own methods.
trait ReadLine {
    fn by_ref_until(&mut self, text: &mut Vec<u8>) -> std::io::Result<usize>;
}

impl ReadLine for &[u8] {
    fn by_ref_until(&mut self, text: &mut Vec<u8>) -> std::io::Result<usize> {
        self.read_until(b'\n', text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileContent, ManifestKind};

    fn sample() -> Manifest {
        let entry = |path: &[u8], kind| Entry {
            path: TreePath::from_bytes(path).unwrap(),
            class: PathClass::Pinned,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 1_700_000_000,
            xattrs: crate::Xattrs::new(),
        };
        let mut ping = entry(
            b"/bin/ping",
            EntryKind::File(Some(FileContent {
                size: 3,
                digest: Digest::of(b"abc"),
            })),
        );
        ping.mode = 0o4755;
        ping.xattrs.insert("security.capability".to_owned(), vec![1, 0, 0, 2]);
        let entries = vec![
            ping,
            entry(b"/", EntryKind::Directory),
            entry(b"/V\xEDctor", EntryKind::Symlink(b"ok\nx".to_vec())),
            entry(b"/dev/null", EntryKind::CharacterDevice(1, 3)),
            entry(b"/bin", EntryKind::Directory),
        ];
        Manifest::new(Header::new(ManifestKind::Os, "sample", "1"), entries).unwrap()
    }

    #[test]
    fn the_canonical_form_is_pinned() {
        // A change here changes the name of every image: raise Header::FORMAT and say what old agents do.
        let text = String::from_utf8(sample().encode().unwrap()).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                r#"{"format":1,"kind":"os","name":"sample","version":"1","architecture":"amd64"}"#,
                r#"{"path":"/","type":"directory","class":"pinned","mode":"0644","uid":0,"gid":0,"mtime":1700000000}"#,
                r#"{"path":"/V\\xedctor","type":"symlink","class":"pinned","mode":"0644","uid":0,"gid":0,"mtime":1700000000,"target":"ok\\x0ax"}"#,
                r#"{"path":"/bin","type":"directory","class":"pinned","mode":"0644","uid":0,"gid":0,"mtime":1700000000}"#,
                r#"{"path":"/bin/ping","type":"file","class":"pinned","mode":"4755","uid":0,"gid":0,"mtime":1700000000,"size":3,"digest":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","xattrs":{"security.capability":"01000002"}}"#,
                r#"{"path":"/dev/null","type":"character_device","class":"pinned","mode":"0644","uid":0,"gid":0,"mtime":1700000000,"device":[1,3]}"#,
            ]
        );
        assert_eq!(sample().digest().unwrap(), Digest::of(text.as_bytes()));
        assert_eq!(Manifest::decode(text.as_bytes()).unwrap(), sample());
    }

    #[test]
    fn anything_but_the_canonical_form_is_refused_with_its_line() {
        let good = String::from_utf8(sample().encode().unwrap()).unwrap();
        let cases = [
            (good.replace("\"uid\":0,\"gid\":0", "\"gid\":0,\"uid\":0"), "line 2"),
            (good.replace("{\"path\":\"/bin\"", "{ \"path\":\"/bin\""), "line 4"),
            (good.replace("/dev/null", "/a"), "does not sort after"),
            (good.replace("\"mode\":\"4755\"", "\"mode\":\"104755\""), "line 5"),
            (good.replace("\"format\":1", "\"format\":2"), "format 2"),
            (good.replace("\"size\":3,", ""), "line 5"),
            (good.replace("/dev/null", "/../null"), "line 6"),
            (good.trim_end().to_owned(), "line feed"),
            (String::new(), "header"),
        ];
        for (text, expected) in cases {
            let error = Manifest::decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
    }

    #[test]
    fn a_path_that_stands_twice_is_refused() {
        let mut entries = sample().entries;
        entries.push(entries[0].clone());
        assert!(
            Manifest::new(sample().header, entries)
                .unwrap_err()
                .to_string()
                .contains("stands twice")
        );
    }
}
