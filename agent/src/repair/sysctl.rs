//! Sysctls: the running value, and the file that sets another one at the next boot.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use drift::FindingKind;
use manifest::TreePath;
use protocol::latest::{RepairStep, StepOutcome};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::file::Trouble;
use super::site::{Site, done, failed, refused};
use crate::probe;

/// Files put right for one key, one after the other.
const ROUNDS_MAX: usize = 16;

impl Site<'_> {
    /// The verb for the running value.
    pub fn set_sysctl(&mut self, step: &RepairStep, key: &str) -> StepOutcome {
        let Some(value) = self.expected.facts().sysctls.get(key).cloned() else {
            return refused("the baseline does not speak of it");
        };
        let difference = match self.check_fact(step, FindingKind::SysctlRunning, key) {
            Ok(difference) => difference,
            Err(outcome) => return outcome,
        };
        let Some(actual) = difference.actual else {
            return failed("this kernel has no such key");
        };
        if let Err(error) = write_value(&self.parts.base, key, &value) {
            return failed(format!("writing {value:?}: {error}"));
        }
        self.proved_fact(
            FindingKind::SysctlRunning,
            key,
            format!("set to {value:?}, was {actual}"),
        )
    }

    /// The verb for the value of the next boot.
    pub fn persist_sysctl(&mut self, step: &RepairStep, key: &str) -> StepOutcome {
        if !self.expected.facts().sysctls.contains_key(key) {
            return refused("the baseline does not speak of it");
        }
        if let Err(outcome) = self.check_fact(step, FindingKind::SysctlPersisted, key) {
            return outcome;
        }
        let mut touched = Vec::new();
        for _ in 0..ROUNDS_MAX {
            match self.put_one_right(key) {
                Ok(Some(what)) => touched.push(what),
                Ok(None) => break,
                Err(reason) => return failed(reason),
            }
            match self.fact(FindingKind::SysctlPersisted, key) {
                Ok(None) => return done(touched.join(", ")),
                Ok(Some(_)) => {}
                Err(reason) => return failed(reason),
            }
        }
        let touched = if touched.is_empty() {
            "no file was found to be wrong".to_owned()
        } else {
            touched.join(", ")
        };
        self.proved_fact(FindingKind::SysctlPersisted, key, touched)
    }

    /// Puts the next file right that may be why a key has another value: the one that sets it, then one that hides a
    /// file of the baseline by its name, then a file of the baseline that is not as it should be.
    fn put_one_right(&mut self, key: &str) -> Result<Option<String>, String> {
        let (files, assignments) = probe::persisted_sources(&self.parts.base)
            .map_err(|reason| format!("nobody could look: {}", reason.name()))?;
        let setting = assignments
            .file_of(key)
            .and_then(|at| files.get(at))
            .and_then(|file| tree_path(file));
        let mut candidates: Vec<TreePath> = setting.iter().cloned().collect();
        candidates.extend(self.sysctl_files_hiding());
        candidates.extend(self.sysctl_files_listed());
        for path in candidates {
            let look = self.looker.look(&path);
            if look.difference.is_none() {
                continue;
            }
            let is_added = self.expected.get(&path).is_none();
            let result = if is_added {
                self.take_away(&path)
                    .map(|()| format!("moved {path} to the undo folder"))
            } else {
                self.restore(&path, &look).map(|_| format!("restored {path}"))
            };
            return match result {
                Ok(what) => Ok(Some(what)),
                Err(Trouble::Failed(reason) | Trouble::Unclear(reason)) => Err(format!("{path}: {reason}")),
            };
        }
        match setting {
            Some(path) => Err(format!(
                "{path} sets it, and that file is as the baseline says or allowed by it"
            )),
            None => Ok(None),
        }
    }

    /// Files that no manifest lists and that have the name of a listed one in another folder.
    fn sysctl_files_hiding(&self) -> Vec<TreePath> {
        let listed: BTreeSet<Vec<u8>> = self
            .sysctl_files_listed()
            .iter()
            .map(|path| path.name().to_vec())
            .collect();
        let mut hiding = Vec::new();
        for folder in probe::SYSCTL_FOLDERS {
            let Ok(folder) = folder.parse::<TreePath>() else {
                continue;
            };
            for name in &listed {
                hiding.extend(folder.join(name).ok().filter(|path| self.expected.get(path).is_none()));
            }
        }
        hiding
    }

    fn sysctl_files_listed(&self) -> Vec<TreePath> {
        let folders: Vec<TreePath> = probe::SYSCTL_FOLDERS
            .iter()
            .filter_map(|folder| folder.parse().ok())
            .collect();
        self.expected
            .positions()
            .filter_map(|position| TreePath::from_bytes(self.expected.path_bytes(position)).ok())
            .filter(|path| {
                let parent = path.parent();
                parent.is_some_and(|parent| folders.contains(&parent)) || path.as_bytes() == b"/etc/sysctl.conf"
            })
            .collect()
    }
}

fn tree_path(file: &Path) -> Option<TreePath> {
    TreePath::from_bytes(file.as_os_str().as_bytes()).ok()
}

/// Writes below `/proc/sys` and nowhere else; a key that is not there is not made.
fn write_value(base: &Path, key: &str, value: &str) -> std::io::Result<()> {
    let path = probe::key_path(key).ok_or_else(|| std::io::Error::other("no sysctl key"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, base, flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let handle = rustix::fs::openat2(&top, format!("proc/sys/{path}"), flags, Mode::empty(), resolve)?;
    std::fs::File::from(handle).write_all(format!("{value}\n").as_bytes())
}
