//! Units by their files and links, as systemd finds them at boot.

use manifest::TreePath;

use super::systemd::keys;
use super::{join, path, text};
use crate::place::{Place, Unlooked};

/// Where unit files lie, the first standing before the others.
pub(crate) const FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
];

/// What a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitState {
    /// No file of that name.
    Absent,
    /// Linked to /dev/null, or empty.
    Masked(TreePath),
    /// There, and nothing starts it.
    Off(TreePath),
    /// There, and this link starts it.
    Enabled(TreePath),
}

impl UnitState {
    /// In words, and where.
    pub(crate) fn describe(&self) -> (&'static str, String) {
        match self {
            Self::Absent => ("not there", "/usr/lib/systemd/system".to_owned()),
            Self::Masked(at) => ("masked", at.to_string()),
            Self::Off(at) => ("not enabled", at.to_string()),
            Self::Enabled(at) => ("enabled", at.to_string()),
        }
    }
}

/// The state of a unit.
pub(crate) fn state(place: &dyn Place, name: &str) -> Result<UnitState, Unlooked> {
    let Some(file) = file(place, name)? else {
        return Ok(UnitState::Absent);
    };
    if text(place, &file)?.is_none_or(|text| text.is_empty()) {
        return Ok(UnitState::Masked(file));
    }
    for folder in FOLDERS {
        let folder = path(folder)?;
        for entry in place.list(&folder)?.unwrap_or_default() {
            if [b".wants".as_slice(), b".requires", b".upholds"]
                .iter()
                .any(|suffix| entry.ends_with(suffix))
            {
                let link = join(&join(&folder, &entry)?, name.as_bytes())?;
                if place.read_link(&link)?.is_some() || place.metadata(&link)?.is_some() {
                    return Ok(UnitState::Enabled(link));
                }
            }
        }
    }
    // Another name for it (display-manager.service) in /etc is how `systemctl enable` keeps an alias.
    let folder = path(FOLDERS[0])?;
    for entry in place.list(&folder)?.unwrap_or_default() {
        if entry == name.as_bytes() {
            continue;
        }
        let link = join(&folder, &entry)?;
        if place
            .read_link(&link)?
            .is_some_and(|target| target.rsplit(|&byte| byte == b'/').next() == Some(name.as_bytes()))
        {
            return Ok(UnitState::Enabled(link));
        }
    }
    Ok(UnitState::Off(file))
}

/// A unit's own file; for an instance without one, its template's.
pub(crate) fn file(place: &dyn Place, name: &str) -> Result<Option<TreePath>, Unlooked> {
    let template = name
        .split_once('@')
        .and_then(|(stem, rest)| rest.rsplit_once('.').map(|(_, suffix)| format!("{stem}@.{suffix}")));
    for name in std::iter::once(name).chain(template.as_deref()) {
        for folder in FOLDERS {
            let at = join(&path(folder)?, name.as_bytes())?;
            if place.read_link(&at)?.is_some() || place.metadata(&at)?.is_some() {
                return Ok(Some(at));
            }
        }
    }
    Ok(None)
}

/// What the `[Install]` section asks for: folders of links (`multi-user.target.wants`) and other names.
pub(crate) fn install(file: &TreePath, text: &str) -> (Vec<String>, Vec<String>) {
    let (mut folders, mut aliases) = (Vec::new(), Vec::new());
    for key in keys(file, text).iter().filter(|key| key.section == "Install") {
        let words = key.value.split_whitespace().map(str::to_owned);
        match key.name.as_str() {
            "WantedBy" => folders.extend(words.map(|target| format!("{target}.wants"))),
            "RequiredBy" => folders.extend(words.map(|target| format!("{target}.requires"))),
            "Alias" => aliases.extend(words),
            _ => {}
        }
    }
    (folders, aliases)
}
