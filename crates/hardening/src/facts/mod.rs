//! Reading the formats a root is configured with: text in, values out; files come through [`Place`].

pub(crate) mod accounts;
pub(crate) mod apt;
pub(crate) mod audit;
pub(crate) mod dpkg;
pub(crate) mod limits;
pub(crate) mod modprobe;
pub(crate) mod mounts;
pub(crate) mod pam;
pub(crate) mod sshd;
pub(crate) mod sysctl;
pub(crate) mod systemd;
pub(crate) mod units;

use std::collections::BTreeMap;

use manifest::{PathPattern, TreePath, wildcard_matches};

use crate::place::{Place, Unlooked};

/// Paths that a pattern may stand for, at most.
const GLOB_PATHS_MAX: usize = 10_000;

/// A path from text.
pub(crate) fn path(text: &str) -> Result<TreePath, Unlooked> {
    TreePath::from_bytes(text.as_bytes()).map_err(|error| Unlooked::NotUnderstood {
        path: manifest::escape_bytes(text.as_bytes()),
        problem: error.to_string(),
    })
}

/// A text file; bytes that are no UTF-8 are replaced. A link to /dev/null is an empty file, as `systemd` and others use
/// it to mask one.
pub(crate) fn text(place: &dyn Place, path: &TreePath) -> Result<Option<String>, Unlooked> {
    if place.read_link(path)?.is_some_and(|link| link == b"/dev/null") {
        return Ok(Some(String::new()));
    }
    Ok(place
        .read(path)?
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// As [`text`], from a path as text.
pub(crate) fn text_at(place: &dyn Place, at: &str) -> Result<Option<String>, Unlooked> {
    text(place, &path(at)?)
}

/// The files of `*.d` folders: ordered by file name over all folders, the first folder winning for one name.
pub(crate) fn drop_ins(place: &dyn Place, folders: &[&str], suffix: &str) -> Result<Vec<(TreePath, String)>, Unlooked> {
    let mut files: BTreeMap<Vec<u8>, TreePath> = BTreeMap::new();
    for folder in folders {
        let folder = path(folder)?;
        for name in place.list(&folder)?.unwrap_or_default() {
            if name.ends_with(suffix.as_bytes()) && !name.starts_with(b".") && !files.contains_key(&name) {
                files.insert(name.clone(), join(&folder, &name)?);
            }
        }
    }
    let mut texts = Vec::new();
    for path in files.into_values() {
        // A link to nowhere: nothing reads it either.
        if let Some(text) = text(place, &path)? {
            texts.push((path, text));
        }
    }
    Ok(texts)
}

pub(crate) fn join(folder: &TreePath, name: &[u8]) -> Result<TreePath, Unlooked> {
    folder.join(name).map_err(|error| Unlooked::unreadable(folder, error))
}

/// The paths a pattern stands for, in order; a pattern without wildcards stands for itself when it is there.
pub(crate) fn glob(place: &dyn Place, pattern: &PathPattern) -> Result<Vec<TreePath>, Unlooked> {
    let text = pattern.to_string();
    let mut found = vec![TreePath::root()];
    for component in text.split('/').filter(|component| !component.is_empty()) {
        let component = manifest::unescape_bytes(component).map_err(|error| Unlooked::NotUnderstood {
            path: text.clone(),
            problem: error.to_string(),
        })?;
        let mut next = Vec::new();
        for folder in &found {
            if !component.contains(&b'*') && !component.contains(&b'?') {
                next.push(join(folder, &component)?);
                continue;
            }
            for name in place.list(folder)?.unwrap_or_default() {
                // As in a shell, a star stands for no leading dot.
                let is_hidden = name.starts_with(b".") && !component.starts_with(b".");
                if !is_hidden && wildcard_matches(&component, &name) {
                    next.push(join(folder, &name)?);
                }
            }
        }
        if next.len() > GLOB_PATHS_MAX {
            return Err(Unlooked::TooLarge {
                path: text,
                limit: format!("{GLOB_PATHS_MAX} paths"),
            });
        }
        found = next;
    }
    let mut there = Vec::new();
    for path in found {
        if place.metadata(&path)?.is_some() || place.read_link(&path)?.is_some() {
            there.push(path);
        }
    }
    Ok(there)
}

/// Lines with their numbers, without those that are empty or start with `#`.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}
