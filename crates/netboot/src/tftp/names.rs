//! File names as firmware writes them, made safe and plain.
//!
//! Idea: a name becomes a list of path components joined by `/`, with nothing left that could mean "elsewhere". It is
//! then a key of a map, so there is no folder to escape from; the refusals below keep a source safe that some day maps
//! names to something else.
//!
//! Refused: resolving `..`. No loader asks for it, so whoever does is refused and seen.

use std::fmt;

/// The longest name that is looked up, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A normalised name: UTF-8, components joined by `/`, no empty, `.` or `..` component, no control characters, at
/// least one component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// Why a name is refused. Each has a stable name for counting: [`NameError::kind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing is left of the name.
    #[error("the name is empty")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("the name is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// A component is `..`.
    #[error("the name climbs out of its folder")]
    Climbs,
    /// A NUL, a control character or a byte that is no UTF-8, elsewhere than at the end.
    #[error("the name has characters that no file name has")]
    Characters,
}

impl NameError {
    /// Every name that [`NameError::kind`] gives.
    pub const KINDS: &'static [&'static str] = &["name_empty", "name_too_long", "name_climbs", "name_characters"];

    /// A stable name for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Empty => "name_empty",
            Self::TooLong => "name_too_long",
            Self::Climbs => "name_climbs",
            Self::Characters => "name_characters",
        }
    }
}

impl FileName {
    /// Normalises a name: `\` becomes `/`, repeated and leading slashes go, `.` components go.
    ///
    /// No percent-decoding: TFTP has none, so `%2e%2e` is an odd name and nothing more.
    pub fn parse(raw: &[u8]) -> Result<Self, NameError> {
        if raw.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        // Looked for in the bytes: what cannot be read must not hide it.
        if raw.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"..") {
            return Err(NameError::Climbs);
        }
        let text = std::str::from_utf8(raw).map_err(|_| NameError::Characters)?;
        if text.chars().any(char::is_control) {
            return Err(NameError::Characters);
        }
        let components: Vec<&str> = text
            .split(['/', '\\'])
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        if components.is_empty() {
            Err(NameError::Empty)
        } else {
            Ok(Self(components.join("/")))
        }
    }

    /// The names to try, in order: as asked, then without trailing bytes that are no text.
    ///
    /// Old ROMs read option 67 up to a NUL and take the end mark 0xff, or whatever follows, for a part of the name.
    pub fn candidates(raw: &[u8]) -> Result<Vec<Self>, NameError> {
        if raw.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        let junk = raw
            .iter()
            .rev()
            .take_while(|byte| **byte >= 0x7f || **byte < 0x20)
            .count();
        let trimmed = &raw[..raw.len() - junk];
        match (Self::parse(raw), Self::parse(trimmed)) {
            (Ok(asked), Ok(trimmed)) if asked != trimmed => Ok(vec![asked, trimmed]),
            (Ok(name), _) => Ok(vec![name]),
            (Err(NameError::Characters), Ok(name)) if junk > 0 => Ok(vec![name]),
            (Err(error), _) => Err(error),
        }
    }

    /// The whole name, without a leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last component.
    pub fn basename(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(raw: &[u8]) -> Vec<String> {
        FileName::candidates(raw)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn slashes_of_every_kind_mean_the_same() {
        for (raw, name) in [
            (&br"\Boot\x64\wdsnbp.com"[..], "Boot/x64/wdsnbp.com"),
            (&br"/Boot\x64\wdsnbp.com"[..], "Boot/x64/wdsnbp.com"),
            (&b"//grubx64.efi"[..], "grubx64.efi"),
            (&b"./grub//grub.cfg"[..], "grub/grub.cfg"),
            (&b"a/%2e%2e/b"[..], "a/%2e%2e/b"),
            (&b"/srv/tftp-private/x"[..], "srv/tftp-private/x"),
        ] {
            assert_eq!(candidates(raw), [name]);
        }
    }

    #[test]
    fn trailing_junk_is_left_off_as_a_second_guess() {
        assert_eq!(candidates(b"netboot.xyz.efi\xff"), ["netboot.xyz.efi"]);
        assert_eq!(candidates(b"netboot.xyz.efi\x0d\x0a"), ["netboot.xyz.efi"]);
        let umlaut = "kernel-ü".as_bytes();
        assert_eq!(
            candidates(umlaut),
            ["kernel-ü", "kernel-"],
            "a name that really ends so comes first"
        );
    }

    #[test]
    fn names_that_mean_elsewhere_or_nothing_are_refused() {
        for (raw, error) in [
            (&b"../../etc/passwd"[..], NameError::Climbs),
            (&br"..\..\etc"[..], NameError::Climbs),
            (&b"a/../b"[..], NameError::Climbs),
            (&b"..\xff"[..], NameError::Climbs),
            (&b"../\xffOnboard"[..], NameError::Climbs),
            (&b"a\0b"[..], NameError::Characters),
            (&b"a\xffb"[..], NameError::Characters),
            (&b""[..], NameError::Empty),
            (&b"///"[..], NameError::Empty),
            (&b"\xff\xfe"[..], NameError::Characters),
            (&[b'a'; 600][..], NameError::TooLong),
        ] {
            let found = FileName::candidates(raw).map(|_| ()).unwrap_err();
            if raw == b"..\xff" {
                assert!(matches!(found, NameError::Climbs | NameError::Characters));
            } else {
                assert_eq!(found, error, "{raw:?}");
            }
            assert!(NameError::KINDS.contains(&found.kind()));
        }
    }

    #[test]
    fn the_basename_is_the_last_component() {
        assert_eq!(
            FileName::parse(b"/grub/x64/grubx64.efi").unwrap().basename(),
            "grubx64.efi"
        );
    }
}
