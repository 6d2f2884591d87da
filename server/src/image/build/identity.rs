//! The check that an image is nobody in particular.
//!
//! A machine id, a host key or an agent identity inside an image makes every node of it the same node: leases collide,
//! keys are shared by everybody who has the image, reports of a hundred nodes arrive as one. So a build that would keep
//! one fails and says where it is; it does not remove it, since whoever put it there should know.

use manifest::{Entry, EntryKind, FileContent, PathPattern};

use super::BuildError;

/// Paths that must not hold anything, and why.
const FORBIDDEN: [(&str, &str); 8] = [
    ("/etc/machine-id", "a machine id; it must be empty"),
    ("/var/lib/dbus/machine-id", "a machine id of its own"),
    ("/etc/ssh/ssh_host_*_key", "an SSH host key"),
    ("/etc/ssh/ssh_host_*_key.pub", "an SSH host key"),
    ("/var/lib/plumbline/identity/**", "an agent's identity"),
    ("/etc/munge/munge.key", "a cluster's munge key"),
    ("/etc/ssl/private/**", "the private key of a certificate"),
    ("/var/lib/dkms/mok.key", "the private key that DKMS signs modules with"),
];

/// Fails on the first path that holds an identity. Links and empty files hold none.
pub(super) fn check(entries: &[Entry]) -> Result<(), BuildError> {
    for (pattern, problem) in FORBIDDEN {
        let pattern: PathPattern = pattern.parse()?;
        for entry in entries {
            let holds = matches!(entry.kind, EntryKind::File(Some(FileContent { size: 1.., .. })));
            if holds && pattern.matches(&entry.path) {
                let path = entry.path.clone();
                return Err(BuildError::Identity { path, problem });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use manifest::ClassRules;

    use super::super::progress::Reporter;
    use super::super::walk::Walk;
    use super::*;

    /// Checks a tree that holds this one file.
    fn check_with(path: &str, content: &str) -> Result<(), BuildError> {
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(file, content).unwrap();
        let (reporter, _lines) = Reporter::channel();
        let walk = Walk {
            root: tree.path(),
            classes: &ClassRules::default(),
            epoch: 0,
            reporter: &reporter,
        };
        check(&walk.entries().unwrap())
    }

    /// SUSE/doc-caasp#623, elastic/kibana#270107, wazuh/wazuh#15565: an identity that is baked into an image makes clones.
    #[test]
    fn caasp_623_an_identity_fails_the_build_and_is_named() {
        for path in [
            "/etc/machine-id",
            "/var/lib/dbus/machine-id",
            "/etc/ssh/ssh_host_rsa_key",
            "/etc/ssh/ssh_host_ed25519_key.pub",
            "/var/lib/plumbline/identity/node.key",
            "/var/lib/plumbline/identity",
        ] {
            let error = check_with(path, "0123456789abcdef\n").unwrap_err().to_string();
            assert!(error.contains(&format!("an identity: {path}: ")), "{error}");
        }
    }

    #[test]
    fn placeholders_and_other_keys_are_none() {
        check_with("/etc/machine-id", "").unwrap();
        check_with("/etc/ssh/sshd_config", "HostKey /etc/ssh/ssh_host_ed25519_key\n").unwrap();
        check_with("/usr/share/doc/ssh_host_rsa_key", "example").unwrap();
    }
}
