//! Profiles: lists of rules, one built on another.
//!
//! A profile file names its parts (files of rules beside it), or another profile that it extends with changed rules,
//! rules that are off, and rules of its own. Reading resolves all that: a [`Profile`] is a plain list, in order of ids.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use yaml::{YamlError, read};

use crate::check::Check;
use crate::fix::{Fix, Unfixed};
use crate::rule::{Rule, RuleId, Severity};

/// Profiles that extend one another, at most.
const EXTENDS_MAX: usize = 8;

/// A profile with everything it extends taken in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The file's name without `.yaml`.
    pub name: String,
    /// One line.
    pub title: String,
    /// The profile it was built on.
    #[serde(default)]
    pub extends: Option<String>,
    /// Rules that are checked, in order of ids.
    pub rules: Vec<Rule>,
    /// Rules that are not, in order of ids, with the reason.
    #[serde(default)]
    pub off: Vec<RuleOff>,
    /// What this profile changed, in order of ids.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Conflicts that no rule of the profile stands for.
    #[serde(default)]
    pub notes: Vec<Note>,
}

impl Profile {
    /// A rule that is checked.
    #[must_use]
    pub fn rule(&self, id: &RuleId) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id == *id)
    }
}

/// A rule that is not checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleOff {
    /// Which.
    pub id: RuleId,
    /// Its title; taken from the rule that is turned off.
    #[serde(default)]
    pub title: String,
    /// Why.
    pub reason: String,
}

/// What an extending profile changes of a rule; what it does not name stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which.
    pub id: RuleId,
    /// Why.
    pub reason: String,
    /// Another title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Another severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Other checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<Check>>,
    /// Other fixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixes: Option<Vec<Fix>>,
    /// No fix any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfixed: Option<Unfixed>,
}

/// A conflict that is a matter of role, firmware or policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// What it is about.
    pub subject: String,
    /// What stands against what.
    pub conflict: String,
    /// What is suggested.
    pub suggested: String,
}

/// A profile that could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A file could not be read or parsed.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The folder of profiles could not be read.
    #[error("reading {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The files are well-formed and contradict one another.
    #[error("{}: {problem}", path.display())]
    Rules {
        /// The file.
        path: PathBuf,
        /// What is wrong and what was expected.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    title: String,
    #[serde(default)]
    extends: Option<String>,
    /// Files of rules, relative to this one.
    #[serde(default)]
    parts: Vec<PathBuf>,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    changes: Vec<Change>,
    #[serde(default)]
    off: Vec<RuleOff>,
    #[serde(default)]
    notes: Vec<Note>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile {
    rules: Vec<Rule>,
}

/// Reads one profile and what it extends, which lies in the same folder.
///
/// # Errors
/// [`ProfileError`]: a file that cannot be read or parsed (with line and column), a rule twice, a change of a rule that
/// is not there, a rule with neither fix nor a reason for having none.
pub fn profile_read(path: &Path) -> Result<Profile, ProfileError> {
    profile_read_at(path, 0)
}

/// Reads all profiles of a folder (`*.yaml`; not its subfolders), in order of names, those that others extend first.
///
/// # Errors
/// As [`profile_read`].
pub fn profiles_read(folder: &Path) -> Result<Vec<Profile>, ProfileError> {
    let failed = |source| ProfileError::Folder {
        path: folder.to_owned(),
        source,
    };
    let mut profiles = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            profiles.push(profile_read(&path)?);
        }
    }
    profiles.sort_by(|a, b| (a.extends.is_some(), &a.name).cmp(&(b.extends.is_some(), &b.name)));
    Ok(profiles)
}

fn profile_read_at(path: &Path, depth: usize) -> Result<Profile, ProfileError> {
    let wrong = |problem: String| ProfileError::Rules {
        path: path.to_owned(),
        problem,
    };
    let file: ProfileFile = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut rules: BTreeMap<RuleId, Rule> = BTreeMap::new();
    let mut off: BTreeMap<RuleId, RuleOff> = BTreeMap::new();
    if let Some(parent) = &file.extends {
        if depth >= EXTENDS_MAX {
            return Err(wrong(format!("more than {EXTENDS_MAX} profiles extend one another")));
        }
        if parent.is_empty() || parent.contains(['/', '.']) {
            return Err(wrong(format!(
                "extends {parent:?}, expected the name of a profile beside this one"
            )));
        }
        let parent = profile_read_at(&folder.join(format!("{parent}.yaml")), depth + 1)?;
        rules = parent.rules.into_iter().map(|rule| (rule.id.clone(), rule)).collect();
        off = parent.off.into_iter().map(|rule| (rule.id.clone(), rule)).collect();
    }
    let mut own = file.rules;
    for part in &file.parts {
        let part: PartFile = read(&folder.join(part))?;
        own.extend(part.rules);
    }
    for rule in own {
        if off.contains_key(&rule.id) {
            off.remove(&rule.id);
        } else if rules.contains_key(&rule.id) {
            return Err(wrong(format!(
                "{} is there already; a change goes under `changes`",
                rule.id
            )));
        }
        rules.insert(rule.id.clone(), rule);
    }
    let mut changed = BTreeSet::new();
    for change in &file.changes {
        let Some(rule) = rules.get_mut(&change.id).filter(|_| changed.insert(change.id.clone())) else {
            return Err(wrong(format!(
                "changes {}, which is not there or changed already",
                change.id
            )));
        };
        change_rule(rule, change);
    }
    for mut rule in file.off {
        if let Some(removed) = rules.remove(&rule.id) {
            rule.title = removed.title;
        } else if rule.title.is_empty() || off.contains_key(&rule.id) {
            // One that was never a rule (not adopted) brings a title of its own.
            return Err(wrong(format!("turns off {}, which is not on", rule.id)));
        }
        off.insert(rule.id.clone(), rule);
    }
    if let Some(problem) = rules.values().find_map(rule_problem) {
        return Err(wrong(problem));
    }
    let mut changes = file.changes;
    changes.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Profile {
        name,
        title: file.title,
        extends: file.extends,
        rules: rules.into_values().collect(),
        off: off.into_values().collect(),
        changes,
        notes: file.notes,
    })
}

fn change_rule(rule: &mut Rule, change: &Change) {
    if let Some(title) = &change.title {
        rule.title.clone_from(title);
    }
    if let Some(severity) = change.severity {
        rule.severity = severity;
    }
    if let Some(checks) = &change.checks {
        rule.checks.clone_from(checks);
    }
    if let Some(fixes) = &change.fixes {
        rule.fixes.clone_from(fixes);
        rule.unfixed = None;
    }
    if change.unfixed.is_some() {
        rule.unfixed = change.unfixed;
        rule.fixes.clear();
    }
}

fn rule_problem(rule: &Rule) -> Option<String> {
    let id = &rule.id;
    if rule.checks.is_empty() {
        return Some(format!("{id} checks nothing"));
    }
    match (rule.fixes.is_empty(), rule.unfixed.is_some()) {
        (true, false) => Some(format!(
            "{id} has no fixes; expected some, or `unfixed` with the reason"
        )),
        (false, true) => Some(format!("{id} has fixes and `unfixed`; expected one of them")),
        _ => None,
    }
}
