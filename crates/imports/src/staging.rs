//! A folder that appears under its name complete or not at all.
//!
//! It grows inside a folder of its own beside the target, which nobody but root can enter (a setuid program of a half
//! unpacked root is nobody's to run) and whose name says what it is. Whoever dies half-way leaves that one, never
//! something that looks like a root.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, RenameFlags};

use crate::ImportError;

pub(crate) struct Staging {
    outer: tempfile::TempDir,
    target: PathBuf,
}

impl Staging {
    /// Starts a folder that is to stand at `target`, whose parent must exist.
    pub(crate) fn begin(target: &Path) -> Result<Self, ImportError> {
        if target.symlink_metadata().is_ok() {
            return Err(ImportError::TargetExists {
                path: target.to_owned(),
            });
        }
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let outer = tempfile::Builder::new()
            .prefix(".unfinished-import-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(ImportError::io("create a folder in", parent.display().to_string()))?;
        let staging = Self {
            outer,
            target: target.to_owned(),
        };
        let root = staging.root();
        rustix::fs::mkdir(&root, Mode::from_raw_mode(0o755))
            .and_then(|()| rustix::fs::chmod(&root, Mode::from_raw_mode(0o755)))
            .map_err(ImportError::errno("create", root.display().to_string()))?;
        Ok(staging)
    }

    /// Where the folder grows.
    pub(crate) fn root(&self) -> PathBuf {
        self.outer.path().join("root")
    }

    /// Where temporary files of this import may lie; gone with it.
    pub(crate) fn scratch(&self) -> &Path {
        self.outer.path()
    }

    /// Gives the folder its name.
    pub(crate) fn finish(self) -> Result<(), ImportError> {
        let text = self.target.display().to_string();
        rustix::fs::renameat_with(CWD, self.root(), CWD, &self.target, RenameFlags::NOREPLACE).map_err(|errno| {
            if errno == rustix::io::Errno::EXIST {
                ImportError::TargetExists {
                    path: self.target.clone(),
                }
            } else {
                ImportError::errno("give its name to", text)(errno)
            }
        })
    }
}
