//! Golden files: text that a person reviews. `UPDATE_GOLDEN=1` writes what is found instead of comparing.

use std::path::{Path, PathBuf};

pub fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(path)
}

pub fn assert_golden(path: &Path, found: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        found,
        expected,
        "{} differs; UPDATE_GOLDEN=1 writes it anew",
        path.display()
    );
}

/// As [`assert_golden`], for bytes.
pub fn assert_golden_bytes(path: &Path, found: &[u8]) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, found).unwrap();
        return;
    }
    let expected = std::fs::read(path).unwrap_or_default();
    assert!(
        found == expected,
        "{} differs; UPDATE_GOLDEN=1 writes it anew",
        path.display()
    );
}

/// The files of a folder of test data with this extension, by name.
pub fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(testdata(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// Bytes from readable hexadecimal: `#` starts a comment, `00*64` repeats a byte, `"text"` is ASCII.
pub fn bytes_from_hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default()) {
        for (index, part) in line.split('"').enumerate() {
            if index % 2 == 1 {
                bytes.extend_from_slice(part.as_bytes());
                continue;
            }
            for token in part.split_whitespace() {
                let (digits, count) = token.split_once('*').unwrap_or((token, "1"));
                let octets: Vec<u8> = digits
                    .as_bytes()
                    .chunks(2)
                    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                    .collect();
                bytes.extend(octets.repeat(count.parse().unwrap()));
            }
        }
    }
    bytes
}
