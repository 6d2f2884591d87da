//! Unit file states, and the links that make them.
//!
//! A unit's finding stands for its links (`drift::fold_findings`), so its repair puts them right as well, whatever the
//! state says by then: one link of several already makes a unit `enabled`.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use drift::{FindingKind, unit_of_link};
use manifest::{EntryKind, TreePath};
use protocol::latest::{RepairStep, StepOutcome};

use super::site::{Site, done, failed, refused};
use crate::probe;

/// Where the links are, in the node's own configuration.
const FOLDER: &str = "/etc/systemd/system";
/// Most folders of links, and most names in one of them, that are looked at.
const NAMES_MAX: usize = 10_000;

impl Site<'_> {
    /// The verb.
    pub fn set_unit(&mut self, step: &RepairStep, unit: &str) -> StepOutcome {
        let Some(state) = self.expected.facts().units.get(unit).cloned() else {
            return refused("the baseline does not speak of it");
        };
        let checked = self.check_fact(step, FindingKind::Unit, unit);
        let was = match &checked {
            Ok(difference) => difference.actual.as_ref().and_then(|actual| actual.get("state")),
            Err(StepOutcome::NothingToDo) if self.wrong_links(unit).is_empty() => return StepOutcome::NothingToDo,
            Err(StepOutcome::NothingToDo) => Some(state.as_str()),
            Err(outcome) => return outcome.clone(),
        };
        let did = match self.parts.units.set_state(unit, was, &state) {
            Ok(did) => format!("{did}: {state}, was {}", was.unwrap_or("not there")),
            Err(reason) => return failed(reason),
        };
        match self.restore_links(unit) {
            Ok(0) => self.proved_fact(FindingKind::Unit, unit, did),
            Ok(links) => match self.proved_fact(FindingKind::Unit, unit, did) {
                StepOutcome::Done { detail } => done(format!("{detail}; {links} of its links put right")),
                other => other,
            },
            Err(reason) => failed(format!("{did}; {reason}")),
        }
    }

    /// Links of a unit that are not as the baseline says.
    fn wrong_links(&mut self, unit: &str) -> Vec<TreePath> {
        let links = self.links_listed(unit).into_iter().chain(self.links_there(unit));
        let links: BTreeSet<TreePath> = links.collect();
        links
            .into_iter()
            .filter(|path| self.looker.look(path).difference.is_some())
            .collect()
    }

    fn restore_links(&mut self, unit: &str) -> Result<usize, String> {
        let wrong = self.wrong_links(unit);
        for path in &wrong {
            let look = self.looker.look(path);
            let is_added = look
                .difference
                .as_ref()
                .is_some_and(|difference| difference.expected.is_none());
            let result = match is_added {
                true => self.take_away(path),
                false => self.restore(path, &look).map(drop),
            };
            if let Err(trouble) = result {
                return Err(format!("{path}: {}", trouble.text()));
            }
        }
        Ok(wrong.len())
    }

    /// Links of a unit that the baseline lists.
    fn links_listed(&self, unit: &str) -> Vec<TreePath> {
        self.expected
            .positions()
            .filter(|position| unit_of_link(self.expected.path_bytes(*position)) == Some(unit))
            .filter_map(|position| TreePath::from_bytes(self.expected.path_bytes(position)).ok())
            .filter(|path| {
                let entry = self.expected.get(path);
                entry.is_some_and(|entry| matches!(entry.kind, EntryKind::Symlink(_)))
            })
            .collect()
    }

    /// Links of a unit that are there.
    fn links_there(&self, unit: &str) -> Vec<TreePath> {
        let top = probe::under(&self.parts.base, FOLDER);
        let mut folders = vec![top.clone()];
        let listed = std::fs::read_dir(&top).into_iter().flatten().flatten().take(NAMES_MAX);
        let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(listed.filter(is_folder).map(|entry| entry.path()));
        folders
            .into_iter()
            .map(|folder| folder.join(unit))
            .filter(|path| path.is_symlink())
            .filter_map(|path| {
                let below = path.strip_prefix(&self.parts.base).ok()?;
                TreePath::from_bytes([b"/", below.as_os_str().as_bytes()].concat()).ok()
            })
            .filter(|path| unit_of_link(path.as_bytes()) == Some(unit))
            .collect()
    }
}
