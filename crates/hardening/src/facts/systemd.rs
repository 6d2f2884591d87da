//! systemd's configuration files and unit files: sections of keys, drop-ins after the file itself.

use manifest::TreePath;

use super::{drop_ins, lines, text_at};
use crate::place::{Place, Unlooked};

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Section without brackets.
    pub(crate) section: String,
    /// Key.
    pub(crate) name: String,
    /// Value.
    pub(crate) value: String,
    /// Path and line.
    pub(crate) at: String,
}

/// The keys of one text.
pub(crate) fn keys(path: &TreePath, text: &str) -> Vec<Key> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for (number, line) in lines(text).filter(|(_, line)| !line.starts_with(';')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((name, value)) = line.split_once('=') {
            keys.push(Key {
                section: section.clone(),
                name: name.trim().to_owned(),
                value: value.trim().to_owned(),
                at: format!("{path}:{number}"),
            });
        }
    }
    keys
}

/// All keys of a file below /etc/systemd and its drop-ins, in the order in which they count: the last one wins.
pub(crate) fn setting_keys(place: &dyn Place, file: &str) -> Result<Vec<Key>, Unlooked> {
    let mut all = Vec::new();
    // systemd takes the first of these whole; /usr/lib is where Debian 13 keeps it.
    for folder in ["/etc", "/run", "/usr/local/lib", "/usr/lib"] {
        let main = format!("{folder}/systemd/{file}");
        if let Some(text) = text_at(place, &main)? {
            all.extend(keys(&super::path(&main)?, &text));
            break;
        }
    }
    let folders: Vec<String> = ["/etc", "/run", "/usr/local/lib", "/usr/lib"]
        .iter()
        .map(|folder| format!("{folder}/systemd/{file}.d"))
        .collect();
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    for (path, text) in drop_ins(place, &folders, ".conf")? {
        all.extend(keys(&path, &text));
    }
    Ok(all)
}
