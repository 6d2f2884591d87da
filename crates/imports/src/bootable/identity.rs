//! What belongs to one machine or person and must not be in an image that a thousand nodes get.

use super::{Look, MissingKind};
use crate::error::escape;

/// Files that must be absent or empty, what they are, and what to do.
const FILES: [(&str, &str, &str); 10] = [
    (
        "var/lib/dbus/machine-id",
        "a machine id of its own",
        "remove it, or make it a link to /etc/machine-id",
    ),
    ("etc/krb5.keytab", "a Kerberos key", "remove it"),
    (
        "etc/munge/munge.key",
        "the cluster's munge key",
        "remove it; give it to nodes as a secret",
    ),
    (
        "etc/iscsi/initiatorname.iscsi",
        "an iSCSI initiator's name",
        "remove it",
    ),
    ("var/lib/systemd/random-seed", "a random seed", "remove it"),
    (
        "var/lib/systemd/credential.secret",
        "the key of systemd's credentials",
        "remove it",
    ),
    (
        "var/lib/NetworkManager/secret_key",
        "a key of NetworkManager",
        "remove it",
    ),
    ("root/.bash_history", "somebody's shell history", "remove it"),
    ("root/.netrc", "somebody's passwords", "remove it"),
    (
        "root/.docker/config.json",
        "somebody's registry credentials",
        "remove it",
    ),
];
/// Folders that must be absent or empty.
const FOLDERS: [(&str, &str); 4] = [
    ("var/lib/cloud/instances", "cloud-init's data of one instance"),
    ("var/lib/cloud/instance", "cloud-init's data of one instance"),
    ("var/lib/plumbline", "the identity of a Plumbline agent"),
    ("etc/pki/consumer", "a subscription's identity"),
];
const SHADOW_BYTES_MAX: u64 = 4 << 20;
const HEAD_BYTES: u64 = 4096;

pub(super) fn check(look: &mut Look) {
    machine_id(look);
    for (path, what, remedy) in FILES {
        let head = look.inside.head(path, 1);
        if look.seen(path, head).is_some_and(|head| !head.is_empty()) {
            look.add(MissingKind::Identity, format!("/{path} holds {what}"), remedy);
        }
    }
    for (path, what) in FOLDERS {
        if !look.names(path).is_empty() {
            let remedy = format!("empty /{path}");
            look.add(MissingKind::Identity, format!("/{path} holds {what}"), remedy);
        }
    }
    host_keys(look);
    keys_of(look, "root");
    for home in look.names("home") {
        keys_of(look, &format!("home/{home}"));
    }
    shadow(look);
}

fn machine_id(look: &mut Look) {
    if let Some(id) = look.text("etc/machine-id", HEAD_BYTES)
        && !matches!(id.trim(), "" | "uninitialized")
    {
        let problem = "/etc/machine-id holds the id of one machine; expected an empty file";
        look.add(MissingKind::Identity, problem, "truncate -s 0 /etc/machine-id");
    }
}

fn host_keys(look: &mut Look) {
    let is_key =
        |name: &String| name.starts_with("ssh_host_") && (name.ends_with("_key") || name.ends_with("_key.pub"));
    let keys: Vec<String> = look.names("etc/ssh").into_iter().filter(is_key).collect();
    if !keys.is_empty() {
        let problem = format!(
            "/etc/ssh holds SSH host keys ({}): every node would have them",
            keys.join(", ")
        );
        let remedy = "rm /etc/ssh/ssh_host_*; nodes get keys of their own";
        look.add(MissingKind::Identity, problem, remedy);
    }
}

fn keys_of(look: &mut Look, home: &str) {
    let folder = format!("{home}/.ssh");
    for name in look.names(&folder) {
        let path = format!("{folder}/{name}");
        let head = look.inside.head(&path, HEAD_BYTES);
        let head = look.seen(&path, head).unwrap_or_default();
        let text = String::from_utf8_lossy(&head);
        if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
            let problem = format!("/{path} is a private key");
            look.add(MissingKind::Identity, problem, format!("rm /{path}"));
        } else if name.starts_with("authorized_keys") && text.lines().any(is_key_line) {
            let problem = format!("/{path} lets somebody in");
            let remedy = format!("rm /{path}; authorised keys are rendered for each node");
            look.add(MissingKind::Identity, problem, remedy);
        }
    }
}

fn is_key_line(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

fn shadow(look: &mut Look) {
    let Some(text) = look.text("etc/shadow", SHADOW_BYTES_MAX) else {
        return;
    };
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut fields = line.split(':');
        let name = escape(fields.next().unwrap_or("").as_bytes());
        match password(fields.next().unwrap_or("*")) {
            Password::None => {}
            Password::Empty => {
                let problem = format!("account {name} in /etc/shadow has an empty password: anybody may enter");
                look.add(MissingKind::EmptyPassword, problem, format!("passwd -l {name}"));
            }
            Password::Hash => {
                let problem = format!("account {name} in /etc/shadow has the hash of a password");
                let remedy = format!("usermod -p '!*' {name}; give password hashes to nodes as secrets");
                look.add(MissingKind::Identity, problem, remedy);
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Password {
    /// No password fits.
    None,
    /// None is asked for.
    Empty,
    /// A real one, perhaps locked.
    Hash,
}

/// What the second field of shadow(5) says. A locked hash (`!$6$…`) can be cracked like any other.
fn password(field: &str) -> Password {
    if field.is_empty() {
        return Password::Empty;
    }
    let hash = field.trim_start_matches(['!', '*']);
    // crypt(5): `$id$…`, or thirteen characters of DES.
    if hash.starts_with('$') || hash.len() >= 13 || hash.starts_with('_') {
        Password::Hash
    } else {
        Password::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_hash_is_a_hash_all_the_same() {
        for field in ["$6$salt$hash", "!$y$j9T$salt$hash", "!!$1$a$b", "ab0123456789c"] {
            assert_eq!(password(field), Password::Hash, "{field}");
        }
        for field in ["*", "!", "!!", "!*", "x", "!locked", "*LK*"] {
            assert_eq!(password(field), Password::None, "{field}");
        }
        assert_eq!(password(""), Password::Empty);
    }
}
