//! Sysctls: what the kernel has now, and what the files will set at the next boot.
//!
//! Invariant: missing, empty and unreadable are three things. Keys that hold no setting (an action, a counter) are not
//! compared as running values; what the files say of them is.

use super::facts::FactFindings;
use crate::{ExpectedFacts, FindingKind, Observation, ObservedFacts};

/// Keys that the kernel changes by itself, as they lie below `/proc/sys`: a baseline that names one would never hold.
const CHANGING: [&str; 11] = [
    "fs/aio-nr",
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    // Another one with each boot, each count, each read.
    "kernel/random/boot_id",
    "kernel/random/entropy_avail",
    "kernel/random/uuid",
    "net/netfilter/nf_conntrack_count",
];

/// Whether the running value of a key (`fs.file-nr`, `fs/file-nr`) says nothing about configuration.
fn changes_by_itself(key: &str) -> bool {
    // None of them has a dot within a name.
    CHANGING.contains(&key.replace('.', "/").as_str())
}

pub(super) fn compare(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    if expected.sysctls.is_empty() {
        return;
    }
    let kind = FindingKind::SysctlRunning;
    for (key, value) in &expected.sysctls {
        if changes_by_itself(key) {
            continue;
        }
        match observed.sysctls_running.get(key) {
            Some(Ok(actual)) => {
                findings.counted(kind, 1);
                findings.value(
                    kind,
                    key,
                    "value",
                    &folded(value),
                    actual.as_deref().map(folded).as_deref(),
                );
            }
            // Writing to it does something, and there is nothing to read (`net.ipv4.route.flush`).
            Some(Err(Observation::Unsupported)) => {}
            Some(Err(observation)) => findings.unknown(kind, key, observation),
            None => {
                let detail = "the key was not read".to_owned();
                findings.unknown(kind, key, &Observation::NotScanned { detail });
            }
        }
    }
    let kind = FindingKind::SysctlPersisted;
    let Some(persisted) = findings.known(kind, &observed.sysctls_persisted) else {
        return;
    };
    findings.counted(kind, expected.sysctls.len());
    for (key, value) in &expected.sysctls {
        let actual = persisted.get(key).map(|actual| folded(actual));
        findings.value(kind, key, "value", &folded(value), actual.as_deref());
    }
}

/// White space is one space between tokens and nothing around them: the kernel writes tabs where people write spaces.
fn folded(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}
