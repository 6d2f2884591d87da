//! Group, variant and state hashes.
//!
//! Every field is preceded by its length (8 bytes, big endian) and every hash starts with the name of its domain, so no
//! two different inputs are the same bytes and no hash of one purpose can stand for another.

use manifest::{Digest, Hasher};

use crate::{Attributes, Difference, FindingKind};

fn field(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_be_bytes());
    hasher.update(bytes);
}

fn attributes(hasher: &mut Hasher, value: Option<&Attributes>) {
    match value {
        None => hasher.update(&[0]),
        Some(attributes) => {
            hasher.update(&[1]);
            hasher.update(&(attributes.0.len() as u64).to_be_bytes());
            for (name, value) in &attributes.0 {
                field(hasher, name.as_bytes());
                field(hasher, value.as_bytes());
            }
        }
    }
}

/// The same thing wrong across the fleet: what people review.
#[must_use]
pub fn group_hash(kind: FindingKind, key: &str) -> Digest {
    let mut hasher = Hasher::new();
    field(&mut hasher, b"plumbline-group-v1");
    field(&mut hasher, kind.as_str().as_bytes());
    field(&mut hasher, key.as_bytes());
    hasher.finish()
}

/// The way it is wrong, inside its group.
#[must_use]
pub fn variant_hash(expected: Option<&Attributes>, actual: Option<&Attributes>) -> Digest {
    let mut hasher = Hasher::new();
    field(&mut hasher, b"plumbline-variant-v1");
    attributes(&mut hasher, expected);
    attributes(&mut hasher, actual);
    hasher.finish()
}

/// A node's whole state: its differences in order of group. Order of reporting does not matter.
#[must_use]
pub fn state_digest<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> Digest {
    let mut pairs: Vec<_> = differences.into_iter().map(|d| (d.group(), d.variant())).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let mut hasher = Hasher::new();
    field(&mut hasher, b"plumbline-state-v1");
    for (group, variant) in pairs {
        hasher.update(group.as_bytes());
        hasher.update(variant.as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_pinned() {
        // Stored in databases and compared between agent and server: a change needs a new domain name.
        assert_eq!(
            group_hash(FindingKind::File, "/etc/passwd").to_string(),
            "463ac079bad6a283b95240ad847ea2bca20efba1ceb10c2fba38e94fc343f35e"
        );
        let expected = Attributes::from_pairs([("mode", "0644")]);
        assert_eq!(
            variant_hash(Some(&expected), None).to_string(),
            "d13c17a4465b53d821af2711ba4bd7c4ad8cd63d078227516d0813b68d7b60c3"
        );
        assert_eq!(
            state_digest([]).to_string(),
            "b0133fde2653136e965ba84624387acb226ff5d33def70b31d6831a95fd1920b"
        );
    }

    #[test]
    fn fields_cannot_run_into_each_other() {
        let a = Attributes::from_pairs([("ab", "c")]);
        let b = Attributes::from_pairs([("a", "bc")]);
        assert_ne!(variant_hash(Some(&a), None), variant_hash(Some(&b), None));
        assert_ne!(variant_hash(Some(&a), None), variant_hash(None, Some(&a)));
        assert_ne!(
            variant_hash(Some(&Attributes::default()), None),
            variant_hash(None, None)
        );
        assert_ne!(group_hash(FindingKind::User, "x"), group_hash(FindingKind::Group, "x"));
    }

    #[test]
    fn state_does_not_depend_on_order() {
        let one = Difference {
            kind: FindingKind::Unit,
            key: "a".into(),
            expected: None,
            actual: None,
        };
        let two = Difference {
            kind: FindingKind::Unit,
            key: "b".into(),
            expected: None,
            actual: None,
        };
        assert_eq!(state_digest([&one, &two]), state_digest([&two, &one]));
        assert_ne!(state_digest([&one]), state_digest([&two]));
    }
}
