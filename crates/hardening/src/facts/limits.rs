//! limits.conf(5) and its drop-ins.

use super::{drop_ins, lines, path, text};
use crate::place::{Place, Unlooked};

const CONFIG: &str = "/etc/security/limits.conf";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) domain: String,
    /// `hard`, `soft` or `-`.
    pub(crate) kind: String,
    pub(crate) item: String,
    pub(crate) value: String,
    /// Path and line.
    pub(crate) at: String,
}

/// All lines, in the order in which they are applied: a later one wins.
pub(crate) fn limits(place: &dyn Place) -> Result<Vec<Limit>, Unlooked> {
    let config = path(CONFIG)?;
    let mut files: Vec<_> = text(place, &config)?.map(|text| (config, text)).into_iter().collect();
    files.extend(drop_ins(place, &["/etc/security/limits.d"], ".conf")?);
    let mut limits = Vec::new();
    for (path, text) in files {
        for (number, line) in lines(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [domain, kind, item, value, ..] = words.as_slice() {
                limits.push(Limit {
                    domain: (*domain).to_owned(),
                    kind: (*kind).to_owned(),
                    item: (*item).to_owned(),
                    value: (*value).to_owned(),
                    at: format!("{path}:{number}"),
                });
            }
        }
    }
    Ok(limits)
}
