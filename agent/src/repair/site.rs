//! Where a job works: the node, what it should be, and where things are kept.

use std::collections::BTreeMap;
use std::path::Path;

use drift::{Difference, Expected, FactFindings, FindingKind, SecretKey, seal_secrets};
use manifest::TreePath;
use protocol::latest::{RepairStep, StepOutcome};

use super::contents::ContentSource;
use super::undo::Undo;
use crate::node::NodeParts;
use crate::probe;
use crate::scan::{Looker, PathLook, Place};

/// Longest reason or detail of a step, in bytes: two thousand of them fit into one body.
const TEXT_BYTES_MAX: usize = 256;

/// Gives the modification times of the paths that are wanted.
pub(super) type TimesOf<'a> = dyn Fn(&dyn Fn(&TreePath) -> bool) -> BTreeMap<TreePath, i64> + 'a;

pub(super) struct Site<'a> {
    pub parts: &'a NodeParts,
    pub expected: &'a Expected,
    pub looker: Looker<'a>,
    pub contents: &'a dyn ContentSource,
    pub secret_key: Option<&'a SecretKey>,
    pub undo: Undo,
    /// Modification times of the manifests, as far as they were asked for.
    pub times: BTreeMap<TreePath, i64>,
    /// Gives times of more paths.
    pub times_of: &'a TimesOf<'a>,
    /// File lists of the packages as they were.
    pub package_lists: &'a Path,
}

pub(super) fn done(detail: impl Into<String>) -> StepOutcome {
    StepOutcome::Done {
        detail: bounded(&detail.into()),
    }
}

pub(super) fn refused(reason: impl Into<String>) -> StepOutcome {
    StepOutcome::Refused {
        reason: bounded(&reason.into()),
    }
}

pub(super) fn failed(reason: impl Into<String>) -> StepOutcome {
    StepOutcome::Failed {
        reason: bounded(&reason.into()),
    }
}

/// One plain line, cut.
fn bounded(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// What a difference is, for people.
fn words(difference: Option<&Difference>) -> String {
    let Some(difference) = difference else {
        return "as it should be".to_owned();
    };
    let side = |side: &Option<drift::Attributes>| side.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    format!("{} instead of {}", side(&difference.actual), side(&difference.expected))
}

impl Site<'_> {
    /// The difference of a path as it is now, with the digests that the server knows.
    pub fn sealed(&self, look: &PathLook) -> Option<Difference> {
        let mut differences: Vec<Difference> = look.difference.iter().cloned().collect();
        seal_secrets(&mut differences, self.secret_key);
        differences.pop()
    }

    /// Looks at the path of a step: the step goes on with what differs, if it is what the job was made for.
    ///
    /// # Errors
    /// What came of the step instead.
    pub fn check_path(&mut self, step: &RepairStep, path: &TreePath) -> Result<PathLook, StepOutcome> {
        self.check_group(step, FindingKind::File, &path.to_string())?;
        let look = self.looker.look(path);
        match &look.place {
            Place::Covered(above) => return Err(refused(format!("{above} is told in its stead"))),
            Place::Mounted => return Err(failed("another filesystem is mounted here")),
            // It is gone with the folder above it.
            Place::NoFolder if self.expected.get(path).is_none() => return Err(StepOutcome::NothingToDo),
            Place::NoFolder => return Err(refused("the folder it belongs in is not there")),
            _ => {}
        }
        let difference = self.sealed(&look);
        check_variant(step, difference.as_ref())?;
        if let (None, Some(unknown)) = (&difference, &look.unknown) {
            return Err(failed(format!("nobody could look: {}", unknown.name())));
        }
        if difference.is_none() {
            Err(StepOutcome::NothingToDo)
        } else {
            Ok(look)
        }
    }

    /// Looks at the fact of a step.
    ///
    /// # Errors
    /// What came of the step instead.
    pub fn check_fact(&mut self, step: &RepairStep, kind: FindingKind, key: &str) -> Result<Difference, StepOutcome> {
        self.check_group(step, kind, key)?;
        let difference = self.fact(kind, key).map_err(failed)?;
        check_variant(step, difference.as_ref())?;
        difference.ok_or(StepOutcome::NothingToDo)
    }

    /// How a fact differs now.
    ///
    /// # Errors
    /// Why nobody could look.
    pub fn fact(&self, kind: FindingKind, key: &str) -> Result<Option<Difference>, String> {
        let (base, units) = (&self.parts.base, self.parts.units.as_ref());
        let found: FactFindings = probe::look_at_facts(base, self.expected.facts(), units, &[kind].into());
        let is_it = |unknown: &&drift::Unknown| unknown.key == key || unknown.key == drift::Unknown::ALL;
        if let Some(unknown) = found.unknown.iter().find(is_it) {
            return Err(format!("nobody could look: {}", unknown.observation.name()));
        }
        Ok(found.differences.into_iter().find(|difference| difference.key == key))
    }

    fn check_group(&self, step: &RepairStep, kind: FindingKind, key: &str) -> Result<(), StepOutcome> {
        if step.group == drift::group_hash(kind, key) {
            Ok(())
        } else {
            Err(refused(format!("the finding is not about {key}")))
        }
    }

    /// The proof of a step that did its work: the fact is as it should be.
    pub fn proved_fact(&self, kind: FindingKind, key: &str, detail: String) -> StepOutcome {
        match self.fact(kind, key) {
            Ok(None) => done(detail),
            Ok(difference) => failed(format!("{detail}; still {}", words(difference.as_ref()))),
            Err(error) => failed(format!("{detail}; {error}")),
        }
    }

    /// The proof of a step that did its work: the path is as it should be.
    pub fn proved_path(&mut self, path: &TreePath, detail: String) -> StepOutcome {
        let look = self.looker.look(path);
        if look.is_same() {
            return done(detail);
        }
        let difference = self.sealed(&look);
        match (&difference, &look.unknown) {
            (None, Some(unknown)) => failed(format!("{detail}; nobody could look: {}", unknown.name())),
            _ => failed(format!("{detail}; still {}", words(difference.as_ref()))),
        }
    }
}

fn check_variant(step: &RepairStep, difference: Option<&Difference>) -> Result<(), StepOutcome> {
    match difference {
        Some(now) if now.variant() != step.variant => Err(refused(format!(
            "it differs in another way than when the job was made: {}",
            words(Some(now))
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_one_bounded_line() {
        assert_eq!(bounded("a\nb\x1b[2K"), "a b [2K");
        assert_eq!(bounded(&"\u{e9}".repeat(1_000)).len(), TEXT_BYTES_MAX);
    }
}
