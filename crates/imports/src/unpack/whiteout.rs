//! Whiteouts (OCI image specification, "Filesystem Layers"): what a layer says is gone from those below it.
//!
//! A whiteout never hides what its own layer brings, wherever in the archive it stands.

use rustix::fs::FileType;
use rustix::io::Errno;

use super::Unpacker;
use crate::EntryProblem;
use crate::name::join;
use crate::tree::{self, Folder, Keep};

pub(super) const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that aufs keeps for itself.
const RESERVED: &[u8] = b".wh..wh.";

pub(super) enum Failure {
    Problem(EntryProblem),
    Failed(Errno),
}

impl Unpacker<'_, '_> {
    /// Carries out the whiteout `name` in `folder`.
    pub(super) fn whiteout(&mut self, folder: &Folder, name: &[u8]) -> Result<(), Failure> {
        let hidden = name.strip_prefix(PREFIX).unwrap_or(name);
        if name != OPAQUE && name.starts_with(RESERVED) {
            return Ok(());
        }
        if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(Failure::Problem(EntryProblem::Whiteout));
        }
        let Some(touched) = &self.touched else { return Ok(()) };
        let result = if name == OPAQUE {
            hide_below(touched, folder, b".", &folder.path)
        } else {
            let path = join(&folder.path, hidden);
            self.devices.remove(&path);
            if !touched.contains(&path) {
                tree::remove_entry(folder, hidden).map(|_| ())
            } else if tree::file_type(folder, hidden) == Ok(FileType::Directory) {
                // The folder is this layer's; what else is in it may come from below.
                hide_below(touched, folder, hidden, &path)
            } else {
                Ok(())
            }
        };
        self.tree.forget();
        result.map_err(Failure::Failed)
    }
}

fn hide_below(
    touched: &std::collections::HashSet<Vec<u8>>,
    folder: &Folder,
    name: &[u8],
    path: &[u8],
) -> Result<(), Errno> {
    tree::remove_children(folder, name, &mut |below| {
        if touched.contains(&join(path, below)) {
            Keep::Itself
        } else {
            Keep::No
        }
    })
}
