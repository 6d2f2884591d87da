//! Path classes: what may change under a path, decided when the image is built.

use serde::{Deserialize, Serialize};

use crate::{PathPattern, TreePath};

/// What must hold for a path on a running node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathClass {
    /// Must equal the manifest in everything: type, mode, owner, content, link target, xattrs.
    Pinned,
    /// Written once at installation, then the node's own: must exist with its type, mode and owner; content is free.
    Seeded,
    /// Comes from node configuration: must equal the rendered overlay; the image's own entry is only a placeholder.
    Rendered,
    /// Must exist with its type; everything else is free. A folder of this class may hold anything.
    Volatile,
    /// Never looked at. Only class rules name it; an ignored path is left out of the manifest.
    Ignored,
}

impl PathClass {
    /// All classes, in the order they are shown.
    pub const ALL: [Self; 5] = [
        Self::Pinned,
        Self::Seeded,
        Self::Rendered,
        Self::Volatile,
        Self::Ignored,
    ];

    /// The name used in recipes, manifests and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Seeded => "seeded",
            Self::Rendered => "rendered",
            Self::Volatile => "volatile",
            Self::Ignored => "ignored",
        }
    }
}

/// One rule of a recipe: paths the pattern covers have this class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassRule {
    /// Which paths.
    pub path: PathPattern,
    /// Their class.
    pub class: PathClass,
    /// A regular file with any content is as it should be, whatever is listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub or_file: bool,
    /// A link that holds exactly one of these texts (escaped) is as it should be, whatever is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or_links: Vec<String>,
}

const fn is_false(value: &bool) -> bool {
    !*value
}

impl ClassRule {
    /// A rule that allows nothing beside what is listed.
    #[must_use]
    pub const fn new(path: PathPattern, class: PathClass) -> Self {
        Self {
            path,
            class,
            or_file: false,
            or_links: Vec::new(),
        }
    }
}

/// Ordered rules; the last one that covers a path decides, and a path that none covers is `pinned`.
///
/// They also speak for paths that the image does not hold: a file that turns up where the rules say `seeded`,
/// `volatile` or `ignored` is no drift, anywhere else it is an added file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassRules(pub Vec<ClassRule>);

impl ClassRules {
    /// The class of this path.
    #[must_use]
    pub fn class_of(&self, path: &TreePath) -> PathClass {
        self.rule_of(path).map_or(PathClass::Pinned, |rule| rule.class)
    }

    /// The rule that decides about this path.
    #[must_use]
    pub fn rule_of(&self, path: &TreePath) -> Option<&ClassRule> {
        self.0.iter().rev().find(|rule| rule.path.matches(path))
    }

    /// Whether a path that is in no manifest may be there.
    #[must_use]
    pub fn allows_unlisted(&self, path: &TreePath) -> bool {
        matches!(
            self.class_of(path),
            PathClass::Seeded | PathClass::Volatile | PathClass::Ignored
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_covers_a_path_decides() {
        let rules: ClassRules = serde_json::from_str(
            r#"[{"path":"/var/lib/**","class":"volatile"},{"path":"/var/lib/dpkg/**","class":"pinned"}]"#,
        )
        .unwrap();
        assert_eq!(rules.class_of(&"/var/lib/x/y".parse().unwrap()), PathClass::Volatile);
        assert_eq!(
            rules.class_of(&"/var/lib/dpkg/status".parse().unwrap()),
            PathClass::Pinned
        );
        assert_eq!(rules.class_of(&"/etc".parse().unwrap()), PathClass::Pinned);
        assert!(rules.allows_unlisted(&"/var/lib/new".parse().unwrap()));
        assert!(!rules.allows_unlisted(&"/etc/new".parse().unwrap()));
    }

    #[test]
    fn a_rule_that_allows_nothing_else_is_written_as_ever() {
        let rule = ClassRule::new("/etc/x".parse().unwrap(), PathClass::Seeded);
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(text, r#"{"path":"/etc/x","class":"seeded"}"#);
        let either = r#"{"path":"/etc/x","class":"seeded","or_file":true,"or_links":["../y"]}"#;
        let rule: ClassRule = serde_json::from_str(either).unwrap();
        assert_eq!(serde_json::to_string(&rule).unwrap(), either);
    }
}
