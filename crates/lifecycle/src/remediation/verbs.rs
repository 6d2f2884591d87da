//! Which verb repairs a finding.

use drift::{Difference, FindingKind};
use protocol::latest::Verb;

/// Why no verb repairs a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVerb {
    /// It lasts until the node restarts.
    NeedsRestart,
    /// A loaded module is taken out by hand or by a restart.
    Module,
    /// Whether somebody may have an account is for people to say.
    Account,
    /// A rule says what should be, not what to do.
    Rule,
    /// A change that concerns the appliance's own identity.
    Identity,
}

impl NoVerb {
    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NeedsRestart => "it takes a restart of the node",
            Self::Module => "a module is taken out by hand or by a restart",
            Self::Account => "an account is for a person to remove or restore",
            Self::Rule => "a hardening rule is brought about by a person or by a new image",
            Self::Identity => "the node's own identity is not repaired: install the node again",
        }
    }
}

/// Paths that no verb touches: without them the agent could neither speak nor prove anything.
const IDENTITY: &str = "/var/lib/plumbline/";

/// The verb for a finding.
///
/// # Errors
/// [`NoVerb`] says why there is none.
pub fn verb_for(difference: &Difference) -> Result<Verb, NoVerb> {
    let key = difference.key.clone();
    match difference.kind {
        FindingKind::File if key.starts_with(IDENTITY) => Err(NoVerb::Identity),
        FindingKind::File if difference.expected.is_none() => Ok(Verb::RemoveAddedFile { path: key }),
        FindingKind::File => Ok(Verb::RestoreFile { path: key }),
        FindingKind::Package if difference.expected.is_none() => Ok(Verb::RemovePackage { package: key }),
        FindingKind::Package => Ok(Verb::ReinstallPackage { package: key }),
        FindingKind::Unit => Ok(Verb::SetUnit { unit: key }),
        FindingKind::SysctlRunning => Ok(Verb::SetSysctl { key }),
        FindingKind::SysctlPersisted => Ok(Verb::PersistSysctl { key }),
        FindingKind::KernelCommandLine | FindingKind::KernelRelease => Err(NoVerb::NeedsRestart),
        FindingKind::Module => Err(NoVerb::Module),
        FindingKind::User | FindingKind::Group => Err(NoVerb::Account),
        FindingKind::Hardening => Err(NoVerb::Rule),
    }
}

/// The order in which steps of one job run: what others build on first.
pub(super) const fn rank(verb: &Verb) -> u8 {
    match verb {
        Verb::RemovePackage { .. } => 0,
        Verb::ReinstallPackage { .. } => 1,
        Verb::RestoreFile { .. } => 2,
        Verb::RemoveAddedFile { .. } => 3,
        Verb::PersistSysctl { .. } => 4,
        Verb::SetSysctl { .. } => 5,
        Verb::SetUnit { .. } => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drift::Attributes;

    fn difference(kind: FindingKind, key: &str, expected: bool) -> Difference {
        let side = Attributes::from_pairs([("x", "y")]);
        Difference {
            kind,
            key: key.into(),
            expected: expected.then(|| side.clone()),
            actual: Some(side),
        }
    }

    #[test]
    fn every_kind_has_a_verb_or_a_reason() {
        let found: Vec<String> = FindingKind::ALL
            .into_iter()
            .flat_map(|kind| [true, false].map(|expected| difference(kind, "x", expected)))
            .map(|difference| match verb_for(&difference) {
                Ok(verb) => format!("{} {}", difference.kind.as_str(), verb.name()),
                Err(reason) => {
                    format!("{} -", difference.kind.as_str()) + if reason.text().is_empty() { "?" } else { "" }
                }
            })
            .collect();
        assert_eq!(
            found,
            [
                "file restore_file",
                "file remove_added_file",
                "package reinstall_package",
                "package remove_package",
                "unit set_unit",
                "unit set_unit",
                "sysctl_running set_sysctl",
                "sysctl_running set_sysctl",
                "sysctl_persisted persist_sysctl",
                "sysctl_persisted persist_sysctl",
                "kernel_command_line -",
                "kernel_command_line -",
                "kernel_release -",
                "kernel_release -",
                "module -",
                "module -",
                "user -",
                "user -",
                "group -",
                "group -",
                "hardening -",
                "hardening -",
            ]
        );
    }

    #[test]
    fn the_identity_of_a_node_is_never_touched() {
        let key = difference(FindingKind::File, "/var/lib/plumbline/identity/key.pem", true);
        assert_eq!(verb_for(&key), Err(NoVerb::Identity));
        let configuration = difference(FindingKind::File, "/etc/plumbline/agent.toml", true);
        assert!(verb_for(&configuration).is_ok());
    }
}
