//! Bringing rules about in a root folder.
//!
//! Everything that files can do is written here; what they cannot (packages, kernel arguments) is handed out as
//! [`Demands`] for the image build. The same profile writes the same bytes whatever the order of building, and a second
//! run writes nothing. Paths are taken inside the root, as everywhere.

mod edit;
mod steps;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use manifest::TreePath;
use serde::{Deserialize, Serialize};

use crate::evaluate::{Context, unmet};
use crate::fix::Fix;
use crate::place::Unlooked;
use crate::profile::Profile;
use crate::rule::{Rule, RuleId};
use crate::waiver::Waiver;
use writer::Writer;

/// Rules could not be brought about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The root folder cannot be opened.
    #[error("opening the root folder {}", path.display())]
    Root {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A path of the root cannot be written.
    #[error("{path}: {action}")]
    Write {
        /// The path in the root.
        path: TreePath,
        /// What was tried.
        action: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file of the root that has to be edited cannot be read or understood.
    #[error("{0}")]
    Unlooked(Unlooked),
}

impl From<Unlooked> for ApplyError {
    fn from(why: Unlooked) -> Self {
        Self::Unlooked(why)
    }
}

/// One change of the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Written {
    /// Where; with no link on the way.
    pub path: TreePath,
    /// What was done: `written`, `linked`, `mode`, `owner`, `removed`, `folder`.
    pub action: String,
}

/// What files cannot bring about, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demands {
    /// Packages the image needs.
    pub packages_needed: BTreeSet<String>,
    /// Packages the image must not hold.
    pub packages_unwanted: BTreeSet<String>,
    /// Arguments for the kernel command line.
    pub command_line_tokens: BTreeSet<String>,
}

/// What [`apply`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// What changed, in order of paths; empty when all was so already.
    pub written: Vec<Written>,
    /// What the image build has to see to.
    #[serde(flatten)]
    pub demands: Demands,
    /// Rules left alone because a waiver for them is in force.
    pub waived: Vec<RuleId>,
    /// Sysctls that now hold at boot.
    pub sysctls: BTreeMap<String, String>,
    /// Modules that are not to be loaded.
    pub modules_forbidden: BTreeSet<String>,
}

/// What a profile asks of packages and the kernel command line; known before there is a root. Rules under a waiver in
/// force ask for nothing.
#[must_use]
pub fn demands(profile: &Profile, waivers: &[Waiver], today: time::Date) -> Demands {
    let mut demands = Demands::default();
    let rules = profile.rules.iter().filter(|rule| !is_waived(rule, waivers, today));
    for fix in rules.flat_map(|rule| &rule.fixes) {
        match fix {
            Fix::PackageInstall(name) => {
                demands.packages_needed.insert(name.clone());
            }
            Fix::PackageRemove(names) => demands.packages_unwanted.extend(names.iter().cloned()),
            Fix::CommandLine(argument) => {
                demands.command_line_tokens.insert(argument.clone());
            }
            _ => {}
        }
    }
    demands
}

/// Writes what a profile asks for into a root folder. Rules under a waiver in force are left alone.
///
/// # Errors
/// [`ApplyError`]; what was written before it stays.
pub fn apply(profile: &Profile, root: &Path, waivers: &[Waiver], today: time::Date) -> Result<Applied, ApplyError> {
    let mut writer = Writer::open(root)?;
    let mut rules = Vec::new();
    let mut waived = Vec::new();
    {
        let context = Context::new(writer.tree());
        for rule in &profile.rules {
            if is_waived(rule, waivers, today) {
                waived.push(rule.id.clone());
                continue;
            }
            let mut applies = true;
            for condition in &rule.applies_when {
                applies &= unmet(&context, condition)?.is_none();
            }
            if applies {
                rules.push(rule);
            }
        }
    }
    steps::collected(&mut writer, &profile.name, &rules)?;
    let (mut sysctls, mut modules_forbidden) = (BTreeMap::new(), BTreeSet::new());
    for rule in rules {
        for fix in &rule.fixes {
            match fix {
                Fix::Sysctl(key, value) => drop(sysctls.insert(key.clone(), value.clone())),
                Fix::ModuleDisabled(module) => drop(modules_forbidden.insert(module.clone())),
                _ => {}
            }
            steps::step(&mut writer, &rule.id, fix)?;
        }
    }
    let mut written = writer.finish();
    written.sort();
    written.dedup();
    Ok(Applied {
        written,
        demands: demands(profile, waivers, today),
        waived,
        sysctls,
        modules_forbidden,
    })
}

fn is_waived(rule: &Rule, waivers: &[Waiver], today: time::Date) -> bool {
    waivers
        .iter()
        .any(|waiver| waiver.rule == rule.id && waiver.is_in_force(today))
}
