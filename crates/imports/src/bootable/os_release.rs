//! `/etc/os-release` (os-release(5)).

use serde::{Deserialize, Serialize};

/// Whose packages a distribution uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Debian and what is like it.
    Debian,
    /// Ubuntu and what is like it.
    Ubuntu,
    /// RHEL, Rocky, Alma, CentOS, Fedora and what is like them.
    RedHat,
    /// Another one.
    Other,
}

/// The distribution as it names itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsRelease {
    /// `debian`, `ubuntu`, `rocky`, …
    pub id: String,
    /// What it is like, most similar first.
    pub id_like: Vec<String>,
    /// `12`, `24.04`, `9.4`; rolling ones have none.
    pub version_id: Option<String>,
    /// For people.
    pub pretty_name: Option<String>,
}

impl OsRelease {
    /// Parses the file. `None` if it has no `ID`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines()
                .filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))
                .next_back()
                .map(unquote)
                .filter(|value| !value.is_empty())
        };
        Some(Self {
            id: value("ID")?,
            id_like: value("ID_LIKE")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            version_id: value("VERSION_ID"),
            pretty_name: value("PRETTY_NAME"),
        })
    }

    /// Whose packages it uses, by `ID`, then by `ID_LIKE`.
    #[must_use]
    pub fn family(&self) -> Family {
        std::iter::once(&self.id)
            .chain(&self.id_like)
            .find_map(|id| match id.as_str() {
                "ubuntu" => Some(Family::Ubuntu),
                "debian" => Some(Family::Debian),
                "rhel" | "rocky" | "almalinux" | "centos" | "fedora" | "ol" => Some(Family::RedHat),
                _ => None,
            })
            .unwrap_or(Family::Other)
    }
}

/// A value without the shell's quotes.
fn unquote(value: &str) -> String {
    let value = value.trim();
    let inner = ['"', '\'']
        .iter()
        .find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let Some(inner) = inner else {
        return value.to_owned();
    };
    let mut text = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' {
            characters.next()
        } else {
            Some(character)
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_told_by_id_and_likeness() {
        let cases = [
            ("ID=debian\nVERSION_ID=\"12\"\n", Family::Debian, Some("12")),
            (
                "ID=ubuntu\nID_LIKE=debian\nVERSION_ID='24.04'\n",
                Family::Ubuntu,
                Some("24.04"),
            ),
            (
                "NAME=\"x\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n",
                Family::RedHat,
                Some("9.4"),
            ),
            ("ID=dgx\nID_LIKE=\"ubuntu debian\"\n", Family::Ubuntu, None),
            ("ID=arch\n", Family::Other, None),
        ];
        for (text, family, version) in cases {
            let os = OsRelease::parse(text).unwrap();
            assert_eq!((os.family(), os.version_id.as_deref()), (family, version), "{text}");
        }
        assert_eq!(OsRelease::parse("NAME=x\n#ID=y\nID=\n"), None);
        let named = OsRelease::parse("ID=a\nPRETTY_NAME=\"A \\\"b\\\" c\"").unwrap();
        assert_eq!(named.pretty_name.as_deref(), Some("A \"b\" c"));
    }
}
