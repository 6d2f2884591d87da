//! Entries of archives onto a root, layer by layer.
//!
//! What stands at an entry's path is removed first and made anew, so that a file that shares its inode with another
//! path never changes there; only a folder that meets a folder stays, with what is in it. Owners come before modes
//! (chown clears setuid bits), modes before attributes, times last.

mod whiteout;
mod write;

use std::collections::{HashMap, HashSet};
use std::io::Read;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::archive::{Entry, Kind, Reader, Time};
use crate::error::escape;
use crate::imported::NoteKind;
use crate::name::{components, join, link_components};
use crate::notes::Notes;
use crate::progress::Meter;
use crate::tree::{self, Folder, FolderError, Tree};
use crate::{EntryProblem, ImportError, Limits};

/// Applies archives to one root.
pub(crate) struct Unpacker<'a, 'm> {
    tree: Tree,
    limits: &'a Limits,
    meter: &'a mut Meter<'m>,
    pub(crate) notes: Notes,
    pub(crate) entries: u64,
    pub(crate) content_bytes: u64,
    /// Times of folders: set when nothing is put into them any more.
    folder_times: HashMap<Vec<u8>, Time>,
    /// Device nodes that were left out: a hard link may name one.
    devices: HashSet<Vec<u8>>,
    /// Paths that the current layer made or went through; a whiteout never hides these. `None` for the lowest layer,
    /// below which there is nothing to hide.
    touched: Option<HashSet<Vec<u8>>>,
}

/// What an archive is to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it: names are names.
    Root,
    /// The lowest layer of an image: whiteouts hide nothing.
    LowestLayer,
    /// A layer over others.
    Layer,
}

impl<'a, 'm> Unpacker<'a, 'm> {
    pub(crate) fn new(tree: Tree, limits: &'a Limits, meter: &'a mut Meter<'m>) -> Self {
        Self {
            tree,
            limits,
            meter,
            notes: Notes::new(limits.notes_max),
            entries: 0,
            content_bytes: 0,
            folder_times: HashMap::new(),
            devices: HashSet::new(),
            touched: None,
        }
    }

    /// Unpacks one archive.
    pub(crate) fn apply<R: Read>(&mut self, archive: &mut Reader<R>, part: Part) -> Result<(), ImportError> {
        self.touched = (part == Part::Layer).then(HashSet::new);
        while let Some(entry) = archive.next()? {
            self.entries += 1;
            if self.entries > self.limits.entries_max {
                return Err(ImportError::Limit {
                    what: "entries",
                    place: archive.archive().to_owned(),
                    found: self.entries,
                    limit: self.limits.entries_max,
                });
            }
            self.meter.entry()?;
            self.entry(archive, &entry, part)?;
        }
        if archive.drain()? {
            self.notes.add(
                NoteKind::DataAfterEnd,
                archive.archive(),
                "what stands after the end of the archive was not read",
            );
        }
        Ok(())
    }

    /// Sets the times of folders. Call it after the last archive.
    pub(crate) fn finish(&mut self) -> Result<(), ImportError> {
        for (path, time) in &self.folder_times {
            match self.tree.beneath(path) {
                Ok(folder) => write::set_time(&folder, b".", *time)
                    .map_err(ImportError::errno("set the time of", escape(path)))?,
                // It was replaced later.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(ImportError::errno("open", escape(path))(errno)),
            }
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, archive: &mut Reader<R>, entry: &Entry, part: Part) -> Result<(), ImportError> {
        let refuse = |problem| ImportError::Entry {
            archive: archive.archive().to_owned(),
            path: escape(&entry.name),
            problem,
        };
        let path = components(&entry.name, self.limits.depth_max).map_err(refuse)?;
        let Some((&name, parents)) = path.split_last() else {
            if entry.kind != Kind::Directory {
                return Err(refuse(EntryProblem::Empty));
            }
            let root = self.tree.root();
            return self.folder_metadata(&root, entry, Vec::new());
        };
        let whiteout = part != Part::Root && name.starts_with(whiteout::PREFIX);
        let folder = match self.tree.folder(parents, !whiteout) {
            Ok(folder) => folder,
            // Nothing to hide.
            Err(FolderError::Absent) if whiteout => return Ok(()),
            Err(error) => return Err(error.of(archive.archive(), &entry.name)),
        };
        if whiteout {
            return self.whiteout(&folder, name).map_err(|error| match error {
                whiteout::Failure::Problem(problem) => refuse(problem),
                whiteout::Failure::Failed(errno) => ImportError::errno("remove", escape(&entry.name))(errno),
            });
        }
        if entry.size > self.limits.file_bytes_max {
            return Err(ImportError::Limit {
                what: "bytes of the file",
                place: format!("{} in {}", escape(&entry.name), archive.archive()),
                found: entry.size,
                limit: self.limits.file_bytes_max,
            });
        }
        self.content_bytes = self.content_bytes.saturating_add(entry.size);
        if self.content_bytes > self.limits.content_bytes_max {
            return Err(ImportError::Limit {
                what: "bytes of content",
                place: format!("{} in {}", escape(&entry.name), archive.archive()),
                found: self.content_bytes,
                limit: self.limits.content_bytes_max,
            });
        }
        for (attribute, why) in &entry.skipped {
            self.notes.add(
                NoteKind::AttributeSkipped,
                escape(&entry.name),
                format!("{attribute}: {why}"),
            );
        }
        let path = join(&folder.path, name);
        self.touch(&path);
        self.put(archive, entry, &folder, name, path)
    }

    fn put<R: Read>(
        &mut self,
        archive: &mut Reader<R>,
        entry: &Entry,
        folder: &Folder,
        name: &[u8],
        path: Vec<u8>,
    ) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(&entry.name));
        if let Kind::Link(target) = &entry.kind {
            return self.hard_link(archive.archive(), entry, target, folder, name, path);
        }
        self.devices.remove(&path);
        let found = match tree::file_type(folder, name) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed("look at")(errno)),
        };
        let stays = entry.kind == Kind::Directory && found == Some(FileType::Directory);
        if !stays && let Some(found) = found {
            self.remove(folder, name, found).map_err(failed("remove"))?;
        }
        match &entry.kind {
            Kind::Directory => {
                if !stays {
                    rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o700)).map_err(failed("create"))?;
                }
                let handle = self.tree.beneath(&path).map_err(failed("open"))?;
                let made = Folder {
                    handle: handle.into(),
                    path: path.clone(),
                };
                self.folder_metadata(&made, entry, path)
            }
            Kind::File => write::file(archive, entry, folder, name, self.meter),
            Kind::Symlink(target) => {
                if target.is_empty() || target.contains(&0) {
                    let problem = if target.is_empty() {
                        EntryProblem::Empty
                    } else {
                        EntryProblem::Nul
                    };
                    return Err(ImportError::Entry {
                        archive: archive.archive().to_owned(),
                        path: escape(&entry.name),
                        problem,
                    });
                }
                rustix::fs::symlinkat(&**target, folder, name).map_err(failed("create"))?;
                write::special_metadata(folder, name, entry)
            }
            Kind::Fifo => {
                rustix::fs::mknodat(folder, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                    .map_err(failed("create"))?;
                rustix::fs::chmodat(folder, name, Mode::from_raw_mode(entry.mode & 0o777), AtFlags::empty())
                    .map_err(failed("set the mode of"))?;
                write::special_metadata(folder, name, entry)
            }
            Kind::Device => {
                self.notes.add(
                    NoteKind::DeviceSkipped,
                    escape(&path),
                    "device nodes are made by a node's kernel",
                );
                self.devices.insert(path);
                Ok(())
            }
            // Handled above.
            Kind::Link(_) => Ok(()),
        }
    }

    fn hard_link(
        &mut self,
        archive: &str,
        entry: &Entry,
        target: &[u8],
        folder: &Folder,
        name: &[u8],
        path: Vec<u8>,
    ) -> Result<(), ImportError> {
        let refuse = |problem| ImportError::Entry {
            archive: archive.to_owned(),
            path: escape(&entry.name),
            problem,
        };
        let failed = |action| ImportError::errno(action, escape(&entry.name));
        let missing = || refuse(EntryProblem::LinkMissing(escape(target)));
        let parts = link_components(target, self.limits.depth_max).map_err(refuse)?;
        let Some((&target_name, parents)) = parts.split_last() else {
            return Err(refuse(EntryProblem::LinkToFolder(escape(target))));
        };
        let target_folder = match self.tree.folder(parents, false) {
            Ok(folder) => folder,
            Err(FolderError::Absent) => return Err(missing()),
            Err(error) => return Err(error.of(archive, &entry.name)),
        };
        let target_path = join(&target_folder.path, target_name);
        match tree::file_type(&target_folder, target_name) {
            Ok(FileType::Directory) => return Err(refuse(EntryProblem::LinkToFolder(escape(target)))),
            // A link to itself says nothing.
            Ok(_) if target_path == path => return Ok(()),
            Ok(_) => {}
            Err(Errno::NOENT) if self.devices.contains(&target_path) => {
                let detail = format!("hard link to the device node {}", escape(&target_path));
                self.notes.add(NoteKind::LinkSkipped, escape(&path), detail);
                if let Ok(found) = tree::file_type(folder, name) {
                    self.remove(folder, name, found).map_err(failed("remove"))?;
                }
                self.devices.insert(path);
                return Ok(());
            }
            Err(Errno::NOENT) => return Err(missing()),
            Err(errno) => return Err(failed("look at the target of")(errno)),
        }
        if let Ok(found) = tree::file_type(folder, name) {
            self.remove(folder, name, found).map_err(failed("remove"))?;
        }
        self.devices.remove(&path);
        rustix::fs::linkat(&target_folder, target_name, folder, name, AtFlags::empty()).map_err(|errno| match errno {
            // What it replaces held the target.
            Errno::NOENT => missing(),
            errno => failed("create")(errno),
        })
    }

    fn folder_metadata(&mut self, folder: &Folder, entry: &Entry, path: Vec<u8>) -> Result<(), ImportError> {
        write::folder(folder, entry)?;
        self.folder_times.insert(path, entry.modified);
        Ok(())
    }

    fn remove(&mut self, folder: &Folder, name: &[u8], found: FileType) -> Result<(), Errno> {
        // A folder, or the way to one.
        if matches!(found, FileType::Directory | FileType::Symlink) {
            self.tree.forget();
        }
        tree::remove_entry(folder, name).map(|_| ())
    }

    /// Remembers that this layer made `path`, and went through the folders above it.
    fn touch(&mut self, path: &[u8]) {
        let Some(touched) = &mut self.touched else { return };
        let mut end = path.len();
        while !touched.contains(&path[..end]) {
            touched.insert(path[..end].to_vec());
            match path[..end].iter().rposition(|&byte| byte == b'/') {
                Some(cut) => end = cut,
                None => break,
            }
        }
    }
}
