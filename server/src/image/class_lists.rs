//! Class rules that come with Plumbline, so that no recipe has to find out anew what a running node changes by itself.
//!
//! A recipe names them (`class_lists: [systemd]`), and nothing is added unasked: what a class leaves free is not watched.

use std::path::Path;

use manifest::ClassRules;

use yaml::YamlError;

/// Lists by name.
const LISTS: [(&str, &str); 1] = [("systemd", include_str!("class_lists/systemd.yaml"))];

/// The list of this name; `None` when there is none.
///
/// # Errors
/// [`YamlError`] when a list that was built in cannot be read, which a test rules out.
pub(super) fn named(name: &str) -> Result<Option<ClassRules>, YamlError> {
    let Some((_, text)) = LISTS.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    yaml::parse(Path::new(name), text).map(Some)
}

/// The names, for people.
pub(super) fn names() -> String {
    LISTS.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use manifest::PathClass;

    use super::*;

    #[test]
    fn every_list_can_be_read() {
        for (name, _) in LISTS {
            assert!(named(name).unwrap().is_some_and(|rules| !rules.0.is_empty()), "{name}");
        }
        assert!(named("other").unwrap().is_none());
    }

    /// systemd/systemd#5395: the list of what churns comes with the appliance.
    #[test]
    fn systemd_5395_resolv_conf_may_be_a_link_or_a_file() {
        let rules = named("systemd").unwrap().unwrap();
        let rule = rules.rule_of(&"/etc/resolv.conf".parse().unwrap()).unwrap();
        assert!(rule.or_file && rule.or_links.iter().any(|target| target.ends_with("/stub-resolv.conf")));
        assert_eq!(rules.class_of(&"/var/log/wtmp".parse().unwrap()), PathClass::Volatile);
        assert_eq!(rules.class_of(&"/etc/passwd".parse().unwrap()), PathClass::Pinned);
    }
}
