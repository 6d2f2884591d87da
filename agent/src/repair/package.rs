//! Packages: put back from the image, or taken away.
//!
//! A package comes back from the image's own contents and not from a mirror, which may have moved on or be out of reach.
//! No maintainer script runs: what they made when the image was built is in the manifest like any other file.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use drift::{DPKG_SHARED, FindingKind};
use manifest::{EntryKind, Package, TreePath};
use protocol::latest::{RepairStep, StepOutcome};

use super::contents::fetch_checked;
use super::dpkg::{self, Locks};
use super::file::Trouble;
use super::site::{Site, failed, refused};
use crate::node;
use crate::probe;
use crate::scan::Place;
use crate::state::write_file;

const STATUS: &str = "/var/lib/dpkg/status";
/// Largest status file or list taken from the image, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Top folders that are links into `/usr`; file lists still name some files by them.
const MERGED: [&[u8]; 6] = [b"/bin/", b"/sbin/", b"/lib/", b"/lib32/", b"/lib64/", b"/libx32/"];

/// What was done for a package.
#[derive(Default)]
struct Tally {
    restored: usize,
    moved: usize,
    problems: Vec<String>,
}

impl Tally {
    fn problem(&mut self, path: &TreePath, trouble: Trouble) {
        match trouble {
            // The node's own files stay its own.
            Trouble::Unclear(reason) => tracing::info!(%path, reason, "left alone"),
            Trouble::Failed(reason) => self.problems.push(format!("{path}: {reason}")),
        }
    }
}

impl Site<'_> {
    /// The verb for a package that the image has.
    pub fn reinstall_package(&mut self, step: &RepairStep, key: &str) -> StepOutcome {
        let Some(package) = self.expected_package(key) else {
            return refused("the image has no such package");
        };
        if let Err(outcome) = self.check_fact(step, FindingKind::Package, key) {
            return outcome;
        }
        let _locks = match Locks::take(&self.parts.base) {
            Ok(locks) => locks,
            Err(reason) => return failed(reason),
        };
        let mut tally = Tally::default();
        let owned = self.owned_by(key);
        let times = (self.times_of)(&|path| owned.contains(path));
        self.times.extend(times);
        // What is new first, so that nothing stands in the way of what is restored.
        for path in self.listed_now(key).into_iter().chain(self.records_now(key)) {
            self.take_if_unknown(&path, &mut tally);
        }
        for path in &owned {
            let look = self.looker.look(path);
            let is_below_what_is_gone = look.place == Place::NoFolder;
            if look.difference.is_none() && !is_below_what_is_gone {
                continue;
            }
            match self.restore(path, &look) {
                Ok(_) => tally.restored += 1,
                Err(trouble) => tally.problem(path, trouble),
            }
        }
        if !tally.problems.is_empty() {
            // The version is only said to be the image's when its files are.
            return failed(format!(
                "{} paths restored, {} not: {}",
                tally.restored,
                tally.problems.len(),
                tally.problems[0]
            ));
        }
        if let Err(reason) = self.restore_paragraph(key, &package) {
            return failed(format!("{} paths restored; dpkg's status: {reason}", tally.restored));
        }
        self.tidy_shared_records(&mut tally);
        let detail = format!(
            "{} from the image: {} paths restored, {} moved to the undo folder",
            package.version, tally.restored, tally.moved
        );
        self.proved_fact(FindingKind::Package, key, detail)
    }

    /// The verb for a package that the image does not have.
    pub fn remove_package(&mut self, step: &RepairStep, key: &str) -> StepOutcome {
        if self.expected_package(key).is_some() {
            return refused("the image has this package");
        }
        if !node::is_package_name(key) {
            return refused("no name of a package");
        }
        if let Err(outcome) = self.check_fact(step, FindingKind::Package, key) {
            return outcome;
        }
        let detail = match &self.parts.packages {
            Some(packages) => match packages.purge(key) {
                Ok(()) => "purged".to_owned(),
                Err(reason) => return failed(reason),
            },
            None => match self.take_package_away(key) {
                Ok(detail) => detail,
                Err(reason) => return failed(reason),
            },
        };
        self.tidy_shared_records(&mut Tally::default());
        self.proved_fact(FindingKind::Package, key, detail)
    }

    /// Records that every change of any package leaves behind, which the package's finding stood for: the status itself
    /// is put right paragraph by paragraph, and what another changed package still needs stays for its own step.
    fn tidy_shared_records(&mut self, tally: &mut Tally) {
        let paths: Vec<TreePath> = DPKG_SHARED
            .iter()
            .filter(|path| **path != STATUS.as_bytes())
            .filter_map(|path| TreePath::from_bytes(*path).ok())
            .collect();
        for path in paths {
            let look = self.looker.look(&path);
            match &look.difference {
                None => {}
                Some(difference) if difference.expected.is_none() => self.take_if_unknown(&path, tally),
                Some(_) => match self.restore(&path, &look) {
                    Ok(_) => tally.restored += 1,
                    Err(trouble) => tally.problem(&path, trouble),
                },
            }
        }
    }

    fn take_package_away(&mut self, key: &str) -> Result<String, String> {
        let _locks = Locks::take(&self.parts.base)?;
        let mut tally = Tally::default();
        for path in self.listed_now(key).into_iter().chain(self.records_now(key)) {
            self.take_if_unknown(&path, &mut tally);
        }
        if let Some(problem) = tally.problems.first() {
            return Err(problem.clone());
        }
        let status = self.current_status()?;
        self.write_status(&dpkg::without(&status, key))?;
        Ok(format!("{} paths moved to the undo folder", tally.moved))
    }

    fn expected_package(&self, key: &str) -> Option<Package> {
        let is_it = |package: &&Package| format!("{}:{}", package.name, package.architecture) == key;
        self.expected.facts().packages.iter().find(is_it).cloned()
    }

    /// Moves what the baseline has nothing to do with; the rest stays.
    fn take_if_unknown(&mut self, path: &TreePath, tally: &mut Tally) {
        let look = self.looker.look(path);
        let is_added = look
            .difference
            .as_ref()
            .is_some_and(|difference| difference.expected.is_none());
        if !is_added {
            return;
        }
        match self.take_away(path) {
            Ok(()) => tally.moved += 1,
            Err(trouble) => tally.problem(path, trouble),
        }
    }

    /// Paths of the baseline that a package owns: by the lists kept while the packages were as they should be, by the
    /// image's own list, and its records. In byte order, so that a folder comes before what is in it.
    fn owned_by(&self, key: &str) -> BTreeSet<TreePath> {
        let mut paths = BTreeSet::new();
        let stems = probe::list_stems(key);
        if let Err(error) = probe::kept_list(self.package_lists, &stems, |line| paths.extend(listed_path(line))) {
            tracing::info!(%error, "no file lists are kept");
        }
        let info: Option<TreePath> = probe::INFO.parse().ok();
        for stem in &stems {
            let list: Option<TreePath> = format!("{}/{stem}.list", probe::INFO).parse().ok();
            if let Some(text) = list.and_then(|list| self.image_content(&list).ok()) {
                paths.extend(text.split(|byte| *byte == b'\n').filter_map(listed_path));
            }
        }
        let records = self.expected.positions().filter_map(|position| {
            let path = TreePath::from_bytes(self.expected.path_bytes(position)).ok()?;
            (path.parent() == info && is_record_of(path.name(), &stems)).then_some(path)
        });
        paths.extend(records.collect::<Vec<_>>());
        paths.retain(|path| self.expected.get(path).is_some());
        paths
    }

    /// What a package owns by its list as it is now, folders before what is in them.
    fn listed_now(&self, key: &str) -> BTreeSet<TreePath> {
        let mut paths = BTreeSet::new();
        for stem in probe::list_stems(key).iter().filter(|stem| !stem.contains(['/', '\\'])) {
            let list = probe::under(&self.parts.base, probe::INFO).join(format!("{stem}.list"));
            let mut bytes = Vec::new();
            let is_file = std::fs::symlink_metadata(&list).is_ok_and(|metadata| metadata.is_file());
            if is_file
                && let Ok(file) = std::fs::File::open(&list)
                && file.take(probe::LIST_BYTES_MAX).read_to_end(&mut bytes).is_ok()
            {
                paths.extend(bytes.split(|byte| *byte == b'\n').filter_map(listed_path));
            }
        }
        paths
    }

    /// dpkg's records of a package as they are now.
    fn records_now(&self, key: &str) -> BTreeSet<TreePath> {
        use std::os::unix::ffi::OsStrExt;
        let stems = probe::list_stems(key);
        let Ok(info) = probe::INFO.parse::<TreePath>() else {
            return BTreeSet::new();
        };
        let listing = std::fs::read_dir(probe::under(&self.parts.base, probe::INFO))
            .into_iter()
            .flatten()
            .flatten();
        listing
            .filter(|entry| is_record_of(entry.file_name().as_bytes(), &stems))
            .filter_map(|entry| info.join(entry.file_name().as_bytes()).ok())
            .collect()
    }

    /// The content that the baseline has for a path.
    fn image_content(&self, path: &TreePath) -> Result<Vec<u8>, String> {
        let entry = self.expected.get(path).ok_or("the baseline does not list it")?;
        let EntryKind::File(Some(content)) = entry.kind else {
            return Err("the baseline has no content for it".to_owned());
        };
        if content.size > RECORD_BYTES_MAX {
            return Err(format!("it has {} bytes", content.size));
        }
        let mut bytes = Vec::new();
        fetch_checked(self.contents, &content, &mut bytes)?;
        Ok(bytes)
    }

    fn restore_paragraph(&self, key: &str, package: &Package) -> Result<(), String> {
        let status: TreePath = STATUS.parse().map_err(|_| "no path".to_owned())?;
        let has_content = matches!(
            self.expected.get(&status).map(|entry| entry.kind),
            Some(EntryKind::File(Some(_)))
        );
        // A server that does not give a content that it has is no reason to make something up.
        let image = if has_content {
            Some(self.image_content(&status)?)
        } else {
            None
        };
        let image = image.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let current = self.current_status()?;
        let paragraph = image
            .as_deref()
            .and_then(|image| dpkg::paragraph_of(image, key))
            .unwrap_or_else(|| {
                tracing::warn!(
                    package = key,
                    "the image's own status of it is not at hand; taking what the manifest says"
                );
                dpkg::made_up(package, dpkg::paragraph_of(&current, key).as_deref())
            });
        self.write_status(&dpkg::with(&current, key, &paragraph, image.as_deref()))
    }

    fn current_status(&self) -> Result<String, String> {
        probe::read_text(&probe::under(&self.parts.base, STATUS))
            .map_err(|reason| format!("{STATUS}: {}", reason.name()))
    }

    /// Whole or not at all, with the mode and owner that it should have.
    fn write_status(&self, text: &str) -> Result<(), String> {
        let file = probe::under(&self.parts.base, STATUS);
        let failed = |error: std::io::Error| format!("{STATUS}: {error}");
        replace_keeping_metadata(&file, text.as_bytes()).map_err(failed)
    }
}

fn replace_keeping_metadata(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let before = std::fs::symlink_metadata(file)?;
    let beside = file.with_file_name("status-plumbline");
    write_file(&beside, bytes)?;
    std::os::unix::fs::chown(&beside, Some(before.uid()), Some(before.gid()))?;
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(before.mode() & 0o7777))?;
    std::fs::File::open(&beside)?.sync_all()?;
    std::fs::rename(&beside, file)
}

/// A line of a file list as the path where the file is.
fn listed_path(line: &[u8]) -> Option<TreePath> {
    if line == b"/." {
        return None;
    }
    let path = if MERGED.iter().any(|top| line.starts_with(top)) {
        [b"/usr".as_slice(), line].concat()
    } else {
        line.to_vec()
    };
    TreePath::from_bytes(path).ok()
}

/// `openssh-server.postinst`, `libc6:amd64.list`.
fn is_record_of(name: &[u8], stems: &BTreeSet<String>) -> bool {
    let Ok(name) = str::from_utf8(name) else { return false };
    name.rsplit_once('.').is_some_and(|(stem, _)| stems.contains(stem))
}
