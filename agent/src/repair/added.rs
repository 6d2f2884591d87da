//! Taking away what no manifest lists.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use manifest::TreePath;
use protocol::latest::{RepairStep, StepOutcome};
use rustix::io::Errno;

use super::file::{Trouble, say};
use super::site::{Site, refused};
use crate::scan::{entry_of, open_parent, open_root};

impl Site<'_> {
    /// The verb. What is taken away is kept for a week.
    pub fn remove_added_file(&mut self, step: &RepairStep, path: &str) -> StepOutcome {
        let Ok(path) = path.parse::<TreePath>() else {
            return refused("no path");
        };
        if let Err(outcome) = self.check_path(step, &path) {
            return outcome;
        }
        match self.take_away(&path) {
            Ok(()) => self.proved_path(&path, "moved to the undo folder".to_owned()),
            Err(trouble) => trouble.into(),
        }
    }

    /// Moves a path into the undo folder, if the baseline has nothing to do with it. One that is not there is no trouble.
    pub fn take_away(&mut self, path: &TreePath) -> Result<(), Trouble> {
        let unclear = |reason: &str| Err(Trouble::Unclear(reason.to_owned()));
        let Some(root) = self.expected.root_of(path).cloned() else {
            return unclear("it lies in no filesystem of the baseline");
        };
        if path.is_root() || self.expected.roots().iter().any(|root| root.mount.is_within(path)) {
            return unclear("a filesystem of the baseline is mounted there");
        }
        if entry_of(self.expected, &root, path).is_some() || self.expected.lists_below(path) {
            return unclear("the baseline lists it, or something in it");
        }
        if self.expected.allows_unlisted(path) {
            return unclear("a rule of the baseline allows it");
        }
        if self.looker.mounts().any_within(path) {
            return Err(Trouble::Failed("another filesystem is mounted there".to_owned()));
        }
        let top = open_root(&self.parts.base, &root, self.parts.roots_are_folders)
            .map_err(|reason| Trouble::Failed(format!("its filesystem: {}", reason.name())))?;
        let folder = match open_parent(&top, &root, path) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(say("opening its folder")(error)),
        };
        let name = OsStr::from_bytes(path.name());
        match rustix::fs::statat(&folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(say("looking at it")(error)),
        }
        self.undo.take(folder.as_fd(), name, path).map_err(Trouble::Failed)?;
        rustix::fs::fsync(&folder).map_err(say("flushing its folder"))
    }
}
