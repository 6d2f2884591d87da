//! apt's sources, in both of their formats.

use manifest::TreePath;

use super::{join, path, text};
use crate::place::{Place, Unlooked};

/// One source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// Addresses.
    pub(crate) uris: Vec<String>,
    /// Tied to a keyring.
    pub(crate) is_signed_by: bool,
    /// Taken without a signature.
    pub(crate) is_trusted: bool,
    /// Path and line.
    pub(crate) at: String,
}

/// The files that name sources, in order.
pub(crate) fn files(place: &dyn Place) -> Result<Vec<(TreePath, String)>, Unlooked> {
    let mut paths = vec![path("/etc/apt/sources.list")?];
    let folder = path("/etc/apt/sources.list.d")?;
    for name in place.list(&folder)?.unwrap_or_default() {
        if name.ends_with(b".list") || name.ends_with(b".sources") {
            paths.push(join(&folder, &name)?);
        }
    }
    let mut files = Vec::new();
    for path in paths {
        if let Some(text) = text(place, &path)? {
            files.push((path, text));
        }
    }
    Ok(files)
}

/// The sources of a file that are in use.
pub(crate) fn sources(path: &TreePath, text: &str) -> Vec<Source> {
    if path.name().ends_with(b".sources") {
        stanzas(text)
            .into_iter()
            .filter_map(|(number, stanza)| deb822(path, number, &stanza))
            .collect()
    } else {
        super::lines(text)
            .filter_map(|(number, line)| one_line(line).map(|source| (number, source)))
            .map(|(number, mut source)| {
                source.at = format!("{path}:{number}");
                source
            })
            .collect()
    }
}

/// Stanzas of a deb822 text with the number of their first line; comments are left out.
fn stanzas(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut all = Vec::new();
    let mut stanza: (usize, Vec<&str>) = (0, Vec::new());
    for (at, line) in text.lines().enumerate().chain(std::iter::once((0, ""))) {
        if line.trim().is_empty() {
            if !stanza.1.is_empty() {
                all.push(std::mem::take(&mut stanza));
            }
        } else if !line.starts_with('#') {
            if stanza.1.is_empty() {
                stanza.0 = at + 1;
            }
            stanza.1.push(line);
        }
    }
    all
}

fn deb822(path: &TreePath, number: usize, stanza: &[&str]) -> Option<Source> {
    let field = |name: &str| {
        stanza.iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    };
    if field("Enabled").is_some_and(is_no) {
        return None;
    }
    Some(Source {
        uris: field("URIs")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        // An embedded key starts on the next line, so the key alone counts.
        is_signed_by: field("Signed-By").is_some(),
        is_trusted: field("Trusted").is_some_and(|value| value.eq_ignore_ascii_case("yes")),
        at: format!("{path}:{number}"),
    })
}

fn is_no(value: &str) -> bool {
    ["no", "false", "off", "0"]
        .iter()
        .any(|no| value.eq_ignore_ascii_case(no))
}

/// `deb [options] uri suite components`.
fn one_line(line: &str) -> Option<Source> {
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    if kind != "deb" && kind != "deb-src" {
        return None;
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => ("", rest),
    };
    let option = |name: &str| options.split_whitespace().find_map(|option| option.strip_prefix(name));
    Some(Source {
        uris: rest.split_whitespace().next().map(str::to_owned).into_iter().collect(),
        is_signed_by: option("signed-by=").is_some(),
        is_trusted: option("trusted=").is_some_and(|value| value.eq_ignore_ascii_case("yes")),
        at: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let list: TreePath = "/etc/apt/sources.list".parse().unwrap();
        let found = sources(
            &list,
            "# deb x y\ndeb http://a/debian stable main\ndeb-src [ arch=amd64 trusted=yes signed-by=/k ] http://b s m\n",
        );
        assert_eq!(found.len(), 2);
        assert!(!found[0].is_signed_by && found[0].uris == ["http://a/debian"]);
        assert!(found[1].is_signed_by && found[1].is_trusted && found[1].at.ends_with(":3"));
        let deb822: TreePath = "/etc/apt/sources.list.d/a.sources".parse().unwrap();
        let found = sources(
            &deb822,
            "Types: deb\nURIs: http://a http://b\n# Signed-By: /k\n\nEnabled: no\nURIs: c\n\nURIs: d\nsigned-by:\n -----BEGIN\n",
        );
        assert_eq!(found.len(), 2);
        assert!(!found[0].is_signed_by && found[0].uris.len() == 2);
        assert!(found[1].is_signed_by && found[1].at.ends_with(":8"));
    }
}
