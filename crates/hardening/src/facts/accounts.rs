//! passwd(5), shadow(5) and group(5) of a root.

use super::text_at;
use crate::place::{Place, Unlooked};

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    /// Second field: `x` where shadow has it.
    pub(crate) password: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
    /// Path and line.
    pub(crate) at: String,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) gid: u32,
    /// Path and line.
    pub(crate) at: String,
}

/// A password hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) name: String,
    pub(crate) hash: String,
    /// Path and line.
    pub(crate) at: String,
}

/// The users; no passwd file is no users.
pub(crate) fn users(place: &dyn Place) -> Result<Vec<User>, Unlooked> {
    const PASSWD: &str = "/etc/passwd";
    let text = text_at(place, PASSWD)?.unwrap_or_default();
    let mut users = Vec::new();
    for (number, fields) in records(&text) {
        let at = format!("{PASSWD}:{number}");
        let [name, password, uid, gid, _, home, shell] = fields.as_slice() else {
            return Err(not_understood(at, "expected seven fields"));
        };
        let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) else {
            return Err(not_understood(at, "expected numbers for user and group"));
        };
        users.push(User {
            name: (*name).to_owned(),
            password: (*password).to_owned(),
            uid,
            gid,
            home: (*home).to_owned(),
            shell: (*shell).to_owned(),
            at,
        });
    }
    Ok(users)
}

/// The groups; no group file is no groups.
pub(crate) fn groups(place: &dyn Place) -> Result<Vec<Group>, Unlooked> {
    const GROUP: &str = "/etc/group";
    let text = text_at(place, GROUP)?.unwrap_or_default();
    let mut groups = Vec::new();
    for (number, fields) in records(&text) {
        let at = format!("{GROUP}:{number}");
        let [name, _, gid, _] = fields.as_slice() else {
            return Err(not_understood(at, "expected four fields"));
        };
        let Ok(gid) = gid.parse() else {
            return Err(not_understood(at, "expected a number for the group"));
        };
        groups.push(Group {
            name: (*name).to_owned(),
            gid,
            at,
        });
    }
    Ok(groups)
}

/// The hashes; no shadow file is no hashes.
pub(crate) fn hashes(place: &dyn Place) -> Result<Vec<Hash>, Unlooked> {
    const SHADOW: &str = "/etc/shadow";
    let text = text_at(place, SHADOW)?.unwrap_or_default();
    let mut hashes = Vec::new();
    for (number, fields) in records(&text) {
        let at = format!("{SHADOW}:{number}");
        let [name, hash, ..] = fields.as_slice() else {
            return Err(not_understood(at, "expected fields with colons between"));
        };
        hashes.push(Hash {
            name: (*name).to_owned(),
            hash: (*hash).to_owned(),
            at,
        });
    }
    Ok(hashes)
}

/// Whether no password opens an account with this hash.
pub(crate) fn is_locked(hash: &str) -> bool {
    hash.starts_with('!') || hash.starts_with('*')
}

/// Whether somebody with this shell gets nowhere.
pub(crate) fn is_nologin(shell: &str) -> bool {
    matches!(
        shell,
        "/usr/sbin/nologin" | "/sbin/nologin" | "/bin/false" | "/usr/bin/false"
    )
}

/// The UID below which accounts are the system's, and Debian's `nobody`.
pub(crate) fn is_system(uid: u32) -> bool {
    uid < 1000 || uid == 65_534
}

fn records(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    // NIS compatibility lines (`+::`) name nobody by themselves.
    super::lines(text)
        .filter(|(_, line)| !line.starts_with(['+', '-']))
        .map(|(number, line)| (number, line.split(':').collect()))
}

fn not_understood(path: String, problem: &str) -> Unlooked {
    Unlooked::NotUnderstood {
        path,
        problem: problem.to_owned(),
    }
}
