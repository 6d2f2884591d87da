//! Archives, good and bad. Names are written as they are: the `tar` crate's own writer refuses the bad ones.

use tar::{EntryType, Header};

/// One PAX record.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let mut bytes = format!("{length} {key}=").into_bytes();
    bytes.extend(value);
    bytes.push(b'\n');
    bytes
}

/// An archive that grows.
#[derive(Clone, Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn new() -> Self {
        Self::default()
    }

    /// Any entry; `change` has the last word on its header.
    pub fn entry(mut self, kind: EntryType, name: &[u8], content: &[u8], change: impl FnOnce(&mut Header)) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_700_000_000);
        header.set_size(content.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        change(&mut header);
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self.0.extend(content);
        let padded = self.0.len().next_multiple_of(512);
        self.0.resize(padded, 0);
        self
    }

    pub fn file(self, name: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, name.as_bytes(), content.as_bytes(), |_| {})
    }

    pub fn folder(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name.as_bytes(), b"", |_| {})
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.to(EntryType::Symlink, name, target)
    }

    pub fn link(self, name: &str, target: &str) -> Self {
        self.to(EntryType::Link, name, target)
    }

    fn to(self, kind: EntryType, name: &str, target: &str) -> Self {
        self.entry(kind, name.as_bytes(), b"", |header| {
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        })
    }

    pub fn device(self, name: &str) -> Self {
        self.entry(EntryType::Char, name.as_bytes(), b"", |header| {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        })
    }

    /// PAX records for the next entry.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let content: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.entry(EntryType::XHeader, b"pax", &content, |_| {})
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }

    /// Without the end of the archive.
    pub fn unfinished(self) -> Vec<u8> {
        self.0
    }
}
