//! A map from names to content: the simplest source of loaders.

use std::collections::BTreeMap;

use super::names::FileName;
use super::source::TftpFile;

/// Names and their content, found exactly or, failing that, without regard to case.
#[derive(Debug, Clone, Default)]
pub struct FileMap {
    /// By lower-case name; the name as given beside the content, for exact matches among names that differ in case.
    files: BTreeMap<String, Vec<(FileName, TftpFile)>>,
}

impl FileMap {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, in place of one of exactly the same name.
    pub fn insert(&mut self, name: FileName, content: TftpFile) {
        let entries = self.files.entry(name.as_str().to_lowercase()).or_default();
        entries.retain(|(earlier, _)| *earlier != name);
        entries.push((name, content));
    }

    /// The content of `name`: of exactly that name, else of the first that differs only in case.
    pub fn get(&self, name: &FileName) -> Option<TftpFile> {
        let entries = self.files.get(&name.as_str().to_lowercase())?;
        let exact = entries.iter().find(|(found, _)| found == name);
        exact.or(entries.first()).map(|(_, content)| content.clone())
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// True when there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_that_is_free_with_case_finds_its_file() {
        let name = |text: &str| FileName::parse(text.as_bytes()).unwrap();
        let mut map = FileMap::new();
        map.insert(name("EFI/Boot.efi"), TftpFile::from_static(b"one"));
        map.insert(name("efi/boot.efi"), TftpFile::from_static(b"two"));
        assert_eq!(map.get(&name("efi/boot.efi")).unwrap(), "two");
        assert_eq!(map.get(&name("EFI/BOOT.EFI")).unwrap(), "one");
        assert!(map.get(&name("boot.efi")).is_none());
        assert_eq!(map.len(), 2);
    }
}
