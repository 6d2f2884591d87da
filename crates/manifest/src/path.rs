//! Paths inside a root: bytes from end to end, with one reversible way to write them as text.
//!
//! A file name on Linux is any bytes but NUL and `/`. Text formats, terminals and logs are not: a newline or an escape
//! sequence in a name forges report lines (CVE-2025-54389). So a path is kept as bytes and written with `\xNN` for
//! whatever is not plainly printable; `\` itself is written `\\`. Each name has exactly one written form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ManifestError;

/// Longest path, in bytes (Linux PATH_MAX).
pub const PATH_BYTES_MAX: usize = 4096;

/// An absolute path inside a root: starts with `/`, no empty, `.` or `..` component, no NUL, at most 4,096 bytes.
/// The root itself is `/`. Ordered by bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreePath(Vec<u8>);

impl TreePath {
    /// The root, `/`.
    #[must_use]
    pub fn root() -> Self {
        Self(vec![b'/'])
    }

    /// Checks and takes raw bytes.
    ///
    /// # Errors
    /// [`ManifestError::Path`] when the bytes are not an absolute, normalised path.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self, ManifestError> {
        let bytes = bytes.into();
        match problem_of(&bytes) {
            None => Ok(Self(bytes)),
            Some(problem) => Err(ManifestError::Path {
                path: escape_bytes(&bytes[..bytes.len().min(200)]),
                problem,
            }),
        }
    }

    /// This path with one more component.
    ///
    /// # Errors
    /// [`ManifestError::Path`] when `name` is not one component, or the result is too long.
    pub fn join(&self, name: &[u8]) -> Result<Self, ManifestError> {
        if name.contains(&b'/') {
            return Err(ManifestError::Path {
                path: escape_bytes(name),
                problem: "a component holds no '/'",
            });
        }
        let mut bytes = if self.is_root() { Vec::new() } else { self.0.clone() };
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Self::from_bytes(bytes)
    }

    /// The raw bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is `/`.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// The path without its leading `/`, for use relative to a directory handle; `.` for the root.
    #[must_use]
    pub fn relative(&self) -> &[u8] {
        if self.is_root() { b"." } else { &self.0[1..] }
    }

    /// The folder this path lies in; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|&b| b == b'/').unwrap_or(0);
        Some(if cut == 0 {
            Self::root()
        } else {
            Self(self.0[..cut].to_vec())
        })
    }

    /// Last component; empty for the root.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        let cut = self.0.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        &self.0[cut..]
    }

    /// Whether this path is `other` or lies somewhere below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root()
            || self.0 == other.0
            || (self.0.len() > other.0.len() && self.0.starts_with(&other.0) && self.0[other.0.len()] == b'/')
    }
}

fn problem_of(bytes: &[u8]) -> Option<&'static str> {
    if bytes.first() != Some(&b'/') {
        return Some("expected an absolute path");
    }
    if bytes.len() > PATH_BYTES_MAX {
        return Some("longer than 4,096 bytes");
    }
    if bytes.contains(&0) {
        return Some("holds a NUL byte");
    }
    if bytes == b"/" {
        return None;
    }
    for component in bytes[1..].split(|&b| b == b'/') {
        match component {
            b"" => return Some("holds an empty component"),
            b"." | b".." => return Some("holds a '.' or '..' component"),
            _ => {}
        }
    }
    None
}

/// Writes bytes as text: printable characters as they are, `\` as `\\`, everything else (controls, DEL, C1, invisible
/// and direction-changing characters, bytes that are not UTF-8) as `\xNN`, byte by byte. Reversed by
/// [`unescape_bytes`].
#[must_use]
pub fn escape_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push_str("\\\\");
            } else if is_plain(character) {
                text.push(character);
            } else {
                let mut buffer = [0; 4];
                push_hex(&mut text, character.encode_utf8(&mut buffer).as_bytes());
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// Whether a character shows as itself and changes nothing around it.
fn is_plain(character: char) -> bool {
    match character {
        ' '..='~' => true,
        // C0, DEL, C1 and the no-break space.
        '\0'..='\u{a0}' => false,
        // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
        '\u{ad}' | '\u{61c}' | '\u{180e}' => false,
        // Spaces of odd width, zero-width characters, direction marks, line and paragraph separators.
        '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' => false,
        '\u{3000}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => false,
        // Private use, tags and variation selectors.
        '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{10ffff}' => false,
        _ => true,
    }
}

/// Reverses [`escape_bytes`]; text that it would not have written is an error.
///
/// # Errors
/// [`ManifestError::Path`] when the text is not the one written form of some bytes.
pub fn unescape_bytes(text: &str) -> Result<Vec<u8>, ManifestError> {
    let wrong = |problem| ManifestError::Path {
        path: text.chars().take(200).collect(),
        problem,
    };
    let raw = text.as_bytes();
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' {
            bytes.push(raw[at]);
            at += 1;
        } else if raw.get(at + 1) == Some(&b'\\') {
            bytes.push(b'\\');
            at += 2;
        } else if raw.get(at + 1) == Some(&b'x') && at + 4 <= raw.len() {
            let mut byte = [0];
            hex::decode_to_slice(&raw[at + 2..at + 4], &mut byte).map_err(|_| wrong("bad \\x escape"))?;
            bytes.push(byte[0]);
            at += 4;
        } else {
            return Err(wrong("expected \\\\ or \\xNN after a backslash"));
        }
    }
    if escape_bytes(&bytes) == text {
        Ok(bytes)
    } else {
        Err(wrong("not the canonical escaping"))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape_bytes(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
}

impl FromStr for TreePath {
    type Err = ManifestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_bytes(unescape_bytes(text)?)
    }
}

impl TryFrom<String> for TreePath {
    type Error = ManifestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TreePath> for String {
    fn from(path: TreePath) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused() {
        let long = [b"/".as_slice(), &[b'a'; 5000]].concat();
        for bad in [
            b"".as_slice(),
            b"etc",
            b"/../etc",
            b"/a/../b",
            b"/a//b",
            b"/a/",
            b"/./a",
            b"/a\0b",
            &long,
        ] {
            assert!(TreePath::from_bytes(bad).is_err(), "{bad:?}");
        }
        // 600 bytes in one component are legal for a path; opening it fails on most filesystems, which is no bound of ours.
        assert!(TreePath::from_bytes([b"/".as_slice(), &[b'a'; 600]].concat()).is_ok());
    }

    #[test]
    fn names_have_one_reversible_text_form() {
        for (bytes, text) in [
            (b"/plain name".as_slice(), "/plain name"),
            ("/F\u{151}tan\u{fa}s".as_bytes(), "/F\u{151}tan\u{fa}s"),
            (b"/V\xEDctor", "/V\\xedctor"),
            (b"/ok\n/etc/shadow", "/ok\\x0a/etc/shadow"),
            (b"/esc\x1b[2K", "/esc\\x1b[2K"),
            (b"/back\\slash", "/back\\\\slash"),
            ("/bidi\u{202e}txt".as_bytes(), "/bidi\\xe2\\x80\\xaetxt"),
        ] {
            assert_eq!(escape_bytes(bytes), text);
            assert_eq!(unescape_bytes(text).unwrap(), bytes);
        }
        for not_canonical in ["/\\x41", "/\\x0A", "/\\n", "/\\", "/\\x1"] {
            assert!(unescape_bytes(not_canonical).is_err(), "{not_canonical}");
        }
    }

    #[test]
    fn containment_is_by_component() {
        let data: TreePath = "/var/data".parse().unwrap();
        assert!("/var/data/x".parse::<TreePath>().unwrap().is_within(&data));
        assert!(!"/var/data-private".parse::<TreePath>().unwrap().is_within(&data));
        assert_eq!(data.parent().unwrap().to_string(), "/var");
        assert_eq!(data.parent().unwrap().parent().unwrap(), TreePath::root());
        assert_eq!(TreePath::root().join(b"etc").unwrap().to_string(), "/etc");
        assert!(data.join(b"..").is_err());
    }
}
