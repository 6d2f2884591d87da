//! Path patterns of class rules.
//!
//! `*` stands for any bytes within one component, `?` for one byte that is not `/`, `**` for any number of whole
//! components (none included). Nothing else is special. `/var/log/**` covers `/var/log` itself and all below it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ManifestError, TreePath, escape_bytes, unescape_bytes};

/// A pattern over [`TreePath`]s.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    components: Vec<Vec<u8>>,
}

impl PathPattern {
    /// Whether the pattern covers this path.
    #[must_use]
    pub fn matches(&self, path: &TreePath) -> bool {
        let components: Vec<&[u8]> = if path.is_root() {
            Vec::new()
        } else {
            path.as_bytes()[1..].split(|&b| b == b'/').collect()
        };
        components_match(&self.components, &components)
    }

    /// Whether the pattern names exactly one path.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        !self.components.iter().any(|c| c.contains(&b'*') || c.contains(&b'?'))
    }
}

/// Matches whole components with one point of return per `**`, so the work is at most (pattern × path) components.
fn components_match(pattern: &[Vec<u8>], path: &[&[u8]]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b"**" {
            retry = Some((p, s));
            p += 1;
        } else if p < pattern.len() && s < path.len() && wildcard_matches(&pattern[p], path[s]) {
            p += 1;
            s += 1;
        } else if p == pattern.len() && s == path.len() {
            return true;
        } else {
            match retry {
                Some((at, from)) if from < path.len() => {
                    retry = Some((at, from + 1));
                    p = at + 1;
                    s = from + 1;
                }
                _ => return false,
            }
        }
    }
}

/// Whether a text without structure matches: `*` stands for any bytes, `?` for one. One point of return, so the work is
/// at most pattern times text.
#[must_use]
pub fn wildcard_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while s < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            retry = Some((p, s));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[s]) {
            p += 1;
            s += 1;
        } else if let Some((at, from)) = retry {
            retry = Some((at, from + 1));
            p = at + 1;
            s = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

impl TryFrom<String> for PathPattern {
    type Error = ManifestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // A pattern is a path in which '*' and '?' have a meaning: the same normal form holds.
        let path = TreePath::from_bytes(unescape_bytes(&text)?)?;
        if path.is_root() {
            return Ok(Self { components: Vec::new() });
        }
        let components: Vec<Vec<u8>> = path.as_bytes()[1..].split(|&b| b == b'/').map(<[u8]>::to_vec).collect();
        if components
            .iter()
            .any(|c| c.len() > 2 && c.windows(2).any(|w| w == b"**"))
        {
            return Err(ManifestError::Path {
                path: text,
                problem: "'**' must be a whole component",
            });
        }
        Ok(Self { components })
    }
}

impl std::str::FromStr for PathPattern {
    type Err = ManifestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.components.is_empty() {
            return f.write_str("/");
        }
        for component in &self.components {
            write!(f, "/{}", escape_bytes(component))?;
        }
        Ok(())
    }
}

impl fmt::Debug for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathPattern({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_what_they_say() {
        for (pattern, path, expected) in [
            ("/var/log/**", "/var/log", true),
            ("/var/log/**", "/var/log/a/b", true),
            ("/var/log/**", "/var/logs", false),
            ("/var/log/*", "/var/log/a", true),
            ("/var/log/*", "/var/log/a/b", false),
            ("/**/*.pyc", "/usr/lib/x.pyc", true),
            ("/**/*.pyc", "/x.pyc", true),
            ("/**/*.pyc", "/x.py", false),
            ("/etc/ssh/ssh_host_*_key", "/etc/ssh/ssh_host_ed25519_key", true),
            ("/etc/ssh/ssh_host_*_key", "/etc/ssh/ssh_host_ed25519_key.pub", false),
            ("/a/**/b/**/c", "/a/b/b/x/c", true),
            ("/a/**/b/**/c", "/a/x/c", false),
            ("/", "/", true),
            ("/", "/a", false),
            ("/?", "/a", true),
        ] {
            let pattern: PathPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&path.parse().unwrap()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern: PathPattern = format!("/{}x", "*a".repeat(200)).parse().unwrap();
        assert!(!pattern.matches(&TreePath::from_bytes([b"/".as_slice(), &[b'a'; 4000]].concat()).unwrap()));
    }

    #[test]
    fn relative_or_odd_patterns_are_refused() {
        for bad in ["etc/*", "/a/../b", "/a**b", "/a/"] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
    }
}
