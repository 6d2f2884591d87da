//! From a stream of 512-byte records to entries.

use std::io::Read;

use super::pax::{self, Records};
use super::sparse::{self, SEGMENTS_MAX, Segment};
use super::{Entry, Kind, Time, acl};
use crate::error::escape;
use crate::tree::Xattrs;
use crate::{EntryProblem, ImportError, Limits};

const RECORD: usize = 512;

/// Reads one archive. After [`Reader::next`] has given a file, [`Reader::data`] gives its bytes; what is not taken is
/// passed over.
pub(crate) struct Reader<R> {
    stream: R,
    archive: String,
    /// Name of the compression, for errors.
    format: &'static str,
    offset: u64,
    /// Bytes of the current entry that nobody took yet, and the padding after them.
    left: u64,
    padding: u64,
    extension_bytes_max: u64,
    stream_bytes_max: u64,
    /// Records that hold for all entries after them.
    global: Records,
    /// Whether the end of the stream is an end as good as two records of zeros.
    ends_with_stream: bool,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// `format` names the compression behind the stream.
    pub(crate) fn new(stream: R, archive: impl Into<String>, format: &'static str, limits: &Limits) -> Self {
        Self {
            stream,
            archive: archive.into(),
            format,
            offset: 0,
            left: 0,
            padding: 0,
            extension_bytes_max: limits.extension_bytes_max,
            stream_bytes_max: limits.stream_bytes_max(),
            global: Records::new(),
            ends_with_stream: false,
            ended: false,
        }
    }

    /// Takes the end of the stream after a whole entry for the end of the archive. For layers, which a digest says are
    /// complete: some tools (`umoci insert` 0.4) never write the padding of the last file and what follows it.
    pub(crate) fn ending_with_stream(mut self) -> Self {
        self.ends_with_stream = true;
        self
    }

    /// Name of the archive.
    pub(crate) fn archive(&self) -> &str {
        &self.archive
    }

    /// Where the data of the current entry start, in the uncompressed archive.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the current entry that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The next entry; `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ImportError> {
        let (mut long_name, mut long_link) = (None, None);
        let mut records = self.global.clone();
        let mut pending = false;
        loop {
            self.pass_over()?;
            let Some(block) = self.header(pending)? else {
                return Ok(None);
            };
            let header = tar::Header::from_byte_slice(&block);
            let stored = header.entry_size().map_err(|error| self.broken(error.to_string()))?;
            match header.entry_type().as_byte() {
                b'x' => {
                    let more = pax::parse(&self.extension(stored)?).map_err(|problem| self.broken(problem))?;
                    records.extend(more);
                    pending = true;
                }
                b'g' => {
                    let more = pax::parse(&self.extension(stored)?).map_err(|problem| self.broken(problem))?;
                    // A name or size for all entries is nonsense, or an attempt to make two readers disagree.
                    let general = |key: &[u8]| !matches!(key, b"path" | b"linkpath" | b"size");
                    let more: Records = more.into_iter().filter(|(key, _)| general(key)).collect();
                    let bytes = |records: &Records| -> usize { records.iter().map(|(k, v)| k.len() + v.len()).sum() };
                    if (bytes(&self.global) + bytes(&more)) as u64 > self.extension_bytes_max {
                        return Err(self.broken("more global PAX records than fit the bound"));
                    }
                    records.extend(more.iter().cloned());
                    self.global.extend(more);
                }
                b'L' => {
                    long_name = Some(self.long_name(stored)?);
                    pending = true;
                }
                b'K' => {
                    long_link = Some(self.long_name(stored)?);
                    pending = true;
                }
                // A volume's label is no entry.
                b'V' => self.left = 0,
                _ => return self.entry(header, stored, &records, long_name, long_link).map(Some),
            }
        }
    }

    /// Takes bytes of the current entry; 0 only at its end.
    pub(crate) fn data(&mut self, buffer: &mut [u8]) -> Result<usize, ImportError> {
        let want = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if want == 0 {
            return Ok(0);
        }
        let got = self.read(&mut buffer[..want])?;
        if got == 0 {
            return Err(self.truncated());
        }
        self.left -= got as u64;
        Ok(got)
    }

    /// Reads to the end of the stream, so that whoever hashes it has seen all of it. Says whether anything but zeros
    /// stood after the archive.
    pub(crate) fn drain(&mut self) -> Result<bool, ImportError> {
        let mut buffer = vec![0; 64 << 10];
        let mut more = false;
        loop {
            let got = self.read(&mut buffer)?;
            if got == 0 {
                return Ok(more);
            }
            more |= buffer[..got].iter().any(|&byte| byte != 0);
        }
    }

    fn entry(
        &mut self,
        header: &tar::Header,
        stored: u64,
        records: &Records,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Entry, ImportError> {
        let name = pax::value(records, "path").map(<[u8]>::to_vec).or(long_name);
        let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
        let name = pax::value(records, "GNU.sparse.name").map_or(name, <[u8]>::to_vec);
        let refuse = |archive: &str, problem| ImportError::Entry {
            archive: archive.to_owned(),
            path: escape(&name),
            problem,
        };
        let link = pax::value(records, "linkpath").map(<[u8]>::to_vec).or(long_link);
        let link = link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        let kind = match header.entry_type().as_byte() {
            // Archives older than POSIX say a folder by the slash at its end.
            0 if name.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::Link(link),
            b'2' => Kind::Symlink(link),
            b'3' | b'4' => Kind::Device,
            b'5' | b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => return Err(refuse(&self.archive, EntryProblem::Type(char::from(other)))),
        };
        let broken = |problem: String| ImportError::Archive {
            archive: self.archive.clone(),
            offset: self.offset,
            problem,
        };
        let stored = pax::number(records, "size").map_err(broken)?.unwrap_or(stored);
        // Everything but files and GNU's folder lists has no data, whatever its size field says.
        let has_data = kind == Kind::File || header.entry_type().as_byte() == b'D';
        self.left = if has_data { stored } else { 0 };
        self.padding = self.left.next_multiple_of(RECORD as u64) - self.left;
        let (size, segments) = if kind == Kind::File {
            self.sizes(header, records)
                .map_err(|problem| refuse(&self.archive, problem))?
        } else {
            (0, None)
        };

        let number = |what, key: &str, field: std::io::Result<u64>| -> Result<u32, ImportError> {
            let value = match pax::value(records, key) {
                Some(text) => pax::decimal(text).ok_or_else(|| pax::lossy(text)),
                None => field.map_err(|error| error.to_string()),
            };
            // The last one is "no owner" to the kernel.
            value
                .and_then(|value| {
                    let id = u32::try_from(value).ok().filter(|&id| id != u32::MAX);
                    id.ok_or_else(|| value.to_string())
                })
                .map_err(|text| refuse(&self.archive, EntryProblem::Number(what, text)))
        };
        let modified = match pax::value(records, "mtime") {
            Some(text) => pax::time(text),
            None => header.mtime().ok().and_then(|seconds| {
                Some(Time {
                    seconds: i64::try_from(seconds).ok()?,
                    nanoseconds: 0,
                })
            }),
        };
        let mode = header.mode().map_err(|error| error.to_string());
        let mode = mode.map_err(|text| refuse(&self.archive, EntryProblem::Number("mode", text)))?;
        let (xattrs, skipped) = xattrs(records);
        let (uid, gid) = (number("uid", "uid", header.uid())?, number("gid", "gid", header.gid())?);
        Ok(Entry {
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            modified: modified.unwrap_or_default(),
            size,
            segments,
            xattrs,
            skipped,
            name,
        })
    }

    /// Apparent size and map of a file; reads what of the map stands before or in its data.
    fn sizes(&mut self, header: &tar::Header, records: &Records) -> Result<(u64, Option<Vec<Segment>>), EntryProblem> {
        let sparse = |problem: String| EntryProblem::Sparse(problem);
        let (size, segments) = if header.entry_type().as_byte() == b'S' {
            self.old_sparse(header)?
        } else if pax::value(records, "GNU.sparse.major") == Some(b"1".as_slice()) {
            let size = pax::number(records, "GNU.sparse.realsize").map_err(sparse)?;
            let segments = self.map_in_data()?;
            (
                size.ok_or_else(|| sparse("no GNU.sparse.realsize".to_owned()))?,
                segments,
            )
        } else if let Some(segments) = sparse::from_records(records).map_err(sparse)? {
            let size = pax::number(records, "GNU.sparse.size").map_err(sparse)?;
            (size.ok_or_else(|| sparse("no GNU.sparse.size".to_owned()))?, segments)
        } else {
            return Ok((self.left, None));
        };
        sparse::check(&segments, size, self.left).map_err(sparse)?;
        Ok((size, Some(segments)))
    }

    /// GNU's old form: four runs in the header, more in records after it, which its size does not count.
    fn old_sparse(&mut self, header: &tar::Header) -> Result<(u64, Vec<Segment>), EntryProblem> {
        let sparse = |problem: &str| EntryProblem::Sparse(problem.to_owned());
        let gnu = header.as_gnu().ok_or_else(|| sparse("the header is not GNU's"))?;
        let size = gnu.real_size().map_err(|error| sparse(&error.to_string()))?;
        let mut segments = Vec::new();
        let mut add = |runs: &[tar::GnuSparseHeader]| {
            for run in runs.iter().filter(|run| !run.is_empty()) {
                let (Ok(offset), Ok(length)) = (run.offset(), run.length()) else {
                    return Err(sparse("a number of the map is unreadable"));
                };
                segments.push(Segment { offset, length });
            }
            if segments.len() > SEGMENTS_MAX {
                return Err(sparse("more runs than the bound"));
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut extended = gnu.is_extended();
        while extended {
            let mut more = tar::GnuExtSparseHeader::new();
            self.fill(more.as_mut_bytes())
                .map_err(|error| sparse(&error.to_string()))?;
            add(more.sparse())?;
            extended = more.is_extended();
        }
        Ok((size, segments))
    }

    /// PAX form 1.0: the map stands before the data, as decimal lines padded to a whole record.
    fn map_in_data(&mut self) -> Result<Vec<Segment>, EntryProblem> {
        let sparse = |problem: &str| EntryProblem::Sparse(problem.to_owned());
        let mut numbers: Vec<u64> = Vec::new();
        let mut digits = Vec::new();
        let mut expected = None;
        loop {
            if self.left < RECORD as u64 {
                return Err(sparse("the map is cut off"));
            }
            let mut record = [0; RECORD];
            self.fill(&mut record).map_err(|error| sparse(&error.to_string()))?;
            self.left -= RECORD as u64;
            for &byte in &record {
                if byte != b'\n' {
                    digits.push(byte);
                    if digits.len() > 20 {
                        return Err(sparse("a line of the map is no number"));
                    }
                    continue;
                }
                let number = pax::decimal(&digits).ok_or_else(|| sparse("a line of the map is no number"))?;
                digits.clear();
                match expected {
                    None if number > SEGMENTS_MAX as u64 => return Err(sparse("more runs than the bound")),
                    None => expected = Some(2 * number),
                    Some(_) => numbers.push(number),
                }
                if expected == Some(numbers.len() as u64) {
                    return sparse::pairs(&numbers).map_err(EntryProblem::Sparse);
                }
            }
        }
    }

    /// The next header; `None` at the end of the archive. `pending`: an extension stands before it.
    fn header(&mut self, pending: bool) -> Result<Option<[u8; RECORD]>, ImportError> {
        if self.ended {
            return Ok(None);
        }
        let mut block = [0; RECORD];
        match self.fill_some(&mut block)? {
            RECORD => {}
            0 if self.ends_with_stream && !pending && self.offset > 0 => {
                self.ended = true;
                return Ok(None);
            }
            _ if self.offset < RECORD as u64 => return Err(self.broken("too short for a tar archive")),
            _ => return Err(self.truncated()),
        }
        if block.iter().all(|&byte| byte == 0) {
            if pending {
                return Err(self.broken("the archive ends after an extension; expected its entry"));
            }
            // The end is two of them; one alone at the very end is common and harmless.
            let mut second = [0; RECORD];
            let got = self.fill_some(&mut second)?;
            if second.iter().any(|&byte| byte != 0) || (got != 0 && got != RECORD) {
                return Err(self.broken("a record of zeros with more after it; expected a header or the end"));
            }
            self.ended = true;
            return Ok(None);
        }
        let header = tar::Header::from_byte_slice(&block);
        let sum = block.iter().enumerate().fold(0_u32, |sum, (at, &byte)| {
            sum + u32::from(if (148..156).contains(&at) { b' ' } else { byte })
        });
        if header.cksum().ok() != Some(sum) {
            return Err(self.broken("no tar header (its checksum does not match)"));
        }
        Ok(Some(block))
    }

    fn long_name(&mut self, stored: u64) -> Result<Vec<u8>, ImportError> {
        let mut name = self.extension(stored)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    /// The data of an extension.
    fn extension(&mut self, stored: u64) -> Result<Vec<u8>, ImportError> {
        if stored > self.extension_bytes_max {
            return Err(ImportError::Limit {
                what: "a tar extension",
                place: self.archive.clone(),
                found: stored,
                limit: self.extension_bytes_max,
            });
        }
        // Bounded by the check above.
        let mut bytes = vec![0; stored as usize];
        self.fill(&mut bytes)?;
        self.left = 0;
        self.padding = stored.next_multiple_of(RECORD as u64) - stored;
        Ok(bytes)
    }

    /// Passes over what is left of the current entry.
    fn pass_over(&mut self) -> Result<(), ImportError> {
        let padding = self.padding;
        let mut left = self.left.saturating_add(padding);
        (self.left, self.padding) = (0, 0);
        let mut buffer = [0; 16 << 10];
        while left > 0 {
            let want = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            let got = self.read(&mut buffer[..want])?;
            if got == 0 && left <= padding && self.ends_with_stream {
                self.ended = true;
                return Ok(());
            }
            if got == 0 {
                return Err(self.truncated());
            }
            left -= got as u64;
        }
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ImportError> {
        if self.fill_some(buffer)? == buffer.len() {
            return Ok(());
        }
        Err(self.truncated())
    }

    fn fill_some(&mut self, buffer: &mut [u8]) -> Result<usize, ImportError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => break,
                got => filled += got,
            }
        }
        Ok(filled)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ImportError> {
        loop {
            match self.stream.read(buffer) {
                Ok(got) => {
                    self.offset += got as u64;
                    if self.offset > self.stream_bytes_max {
                        return Err(ImportError::Limit {
                            what: "the uncompressed archive",
                            place: self.archive.clone(),
                            found: self.offset,
                            limit: self.stream_bytes_max,
                        });
                    }
                    return Ok(got);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn failed(&self, error: std::io::Error) -> ImportError {
        if error.raw_os_error().is_some() {
            return ImportError::io("read", self.archive.clone())(error);
        }
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return self.truncated();
        }
        ImportError::Compression {
            archive: self.archive.clone(),
            format: self.format,
            offset: self.offset,
            problem: error.to_string(),
        }
    }

    fn truncated(&self) -> ImportError {
        ImportError::Truncated {
            archive: self.archive.clone(),
            offset: self.offset,
        }
    }

    fn broken(&self, problem: impl Into<String>) -> ImportError {
        ImportError::Archive {
            archive: self.archive.clone(),
            offset: self.offset,
            problem: problem.into(),
        }
    }
}

/// Extended attributes of an entry, and what could not be taken.
fn xattrs(records: &Records) -> (Xattrs, Vec<(String, String)>) {
    let mut xattrs = std::collections::BTreeMap::new();
    let mut skipped = Vec::new();
    for (key, value) in records {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            xattrs.insert(name.to_vec(), value.clone());
        } else if key == b"RHT.security.selinux" {
            let mut label = value.clone();
            // The kernel keeps labels with their NUL.
            label.push(0);
            xattrs.insert(b"security.selinux".to_vec(), label);
        } else if let Some(which) = key.strip_prefix(b"SCHILY.acl.")
            && !value.is_empty()
        {
            let name = [b"system.posix_acl_", which].concat();
            match acl::to_kernel(value) {
                Ok(value) if matches!(which, b"access" | b"default") => {
                    xattrs.insert(name, value);
                }
                Ok(_) => skipped.push((escape(key), "neither an access nor a default ACL".to_owned())),
                Err(problem) => skipped.push((escape(key), problem)),
            }
        }
    }
    (xattrs.into_iter().collect(), skipped)
}
