//! dpkg's status: which packages are installed.

use std::collections::BTreeSet;

use super::text_at;
use crate::place::{Place, Unlooked};

/// Names of installed packages, without architecture.
pub(crate) fn installed(place: &dyn Place) -> Result<BTreeSet<String>, Unlooked> {
    const STATUS: &str = "/var/lib/dpkg/status";
    let Some(text) = text_at(place, STATUS)? else {
        return Err(Unlooked::unreadable(
            &super::path(STATUS)?,
            "not there; expected a Debian root",
        ));
    };
    let mut installed = BTreeSet::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if let (Some(package), Some(status)) = (field("Package:"), field("Status:")) {
            // `hold ok installed` is there as well; `deinstall ok config-files` is not.
            if status.ends_with(" installed") {
                installed.insert(package.to_owned());
            }
        }
    }
    Ok(installed)
}
