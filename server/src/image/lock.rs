//! Lock files: which version of each package an image is built from.
//!
//! Idea: the same recipe with the same packages gives the same image to the byte, so the lock also says what time it is
//! in the image. It is kept beside the recipe, under version control; a build that would take another version fails and
//! says so, and `plumbline image update` is the one thing that writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use manifest::{Digest, Hasher, Package};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::recipe::{FILES_FOLDER, RECIPE_FILE, Recipe};
use yaml::YamlError;

/// The lock's file name beside the recipe.
pub const LOCK_FILE: &str = "image.lock";
/// Differences named in an error; the rest is counted.
const NAMED_MAX: usize = 10;
/// Folders in folders among a recipe's files.
const DEPTH_MAX: usize = 64;

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// When the versions were looked up: the time of the image.
    as_of: String,
    /// Version by `NAME:ARCHITECTURE`.
    packages: BTreeMap<String, String>,
    /// [`Lock::as_of`] in seconds since 1970.
    #[serde(skip)]
    epoch: i64,
}

/// One package that is not what a lock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockChange {
    /// `NAME:ARCHITECTURE`.
    pub package: String,
    /// Its version before; none when it is new.
    pub before: Option<String>,
    /// Its version now; none when it is gone.
    pub now: Option<String>,
}

impl Lock {
    /// A lock of these packages at this instant.
    #[must_use]
    pub fn new(now: OffsetDateTime, packages: &[Package]) -> Self {
        let epoch = now.unix_timestamp();
        Self {
            as_of: OffsetDateTime::from_unix_timestamp(epoch)
                .ok()
                .and_then(|now| now.format(&Rfc3339).ok())
                .unwrap_or_default(),
            packages: by_name(packages),
            epoch,
        }
    }

    /// The lock beside the recipe in this folder; none when there is none.
    ///
    /// # Errors
    /// [`YamlError`], with the line.
    pub fn load(folder: &Path) -> Result<Option<Self>, YamlError> {
        let path = folder.join(LOCK_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = yaml::read_text(&path)?;
        let mut lock: Self = yaml::parse(&path, &text)?;
        let as_of = OffsetDateTime::parse(&lock.as_of, &Rfc3339).map_err(|_| {
            let problem = format!("as_of {:?}: expected an instant as 2026-01-02T03:04:05Z", lock.as_of);
            YamlError::at(&path, &text, (0, 0), problem)
        })?;
        lock.epoch = as_of.unix_timestamp();
        Ok(Some(lock))
    }

    /// The time of the image, in seconds since 1970.
    #[must_use]
    pub const fn epoch(&self) -> i64 {
        self.epoch
    }

    /// What these packages have otherwise than the lock, by name.
    #[must_use]
    pub fn changes(&self, packages: &[Package]) -> Vec<LockChange> {
        let now = by_name(packages);
        let mut changes: Vec<LockChange> = self
            .packages
            .iter()
            .filter(|(package, version)| now.get(*package) != Some(version))
            .map(|(package, version)| LockChange {
                package: package.clone(),
                before: Some(version.clone()),
                now: now.get(package).cloned(),
            })
            .collect();
        let new = now.iter().filter(|(package, _)| !self.packages.contains_key(*package));
        changes.extend(new.map(|(package, version)| LockChange {
            package: package.clone(),
            before: None,
            now: Some(version.clone()),
        }));
        changes.sort_by(|a, b| a.package.cmp(&b.package));
        changes
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "# Written by `plumbline image update`: the packages this image is built from, and its time.\nas_of: {}\npackages:\n",
            self.as_of
        );
        for (package, version) in &self.packages {
            // Both hold no quotes; a version may look like a number.
            let _ = writeln!(text, "  \"{package}\": \"{version}\"");
        }
        text
    }

    /// What has apt prefer these versions (`apt_preferences(5)`), older ones too.
    #[must_use]
    pub fn pins(&self) -> String {
        let mut text = String::new();
        for (package, version) in &self.packages {
            let _ = write!(
                text,
                "Package: {package}\nPin: version {version}\nPin-Priority: 1001\n\n"
            );
        }
        text
    }
}

fn by_name(packages: &[Package]) -> BTreeMap<String, String> {
    let named = packages.iter().map(|package| {
        let name = format!("{}:{}", package.name, package.architecture);
        (name, package.version.clone())
    });
    named.collect()
}

/// Changes in words, at most [`NAMED_MAX`] of them.
#[must_use]
pub fn changes_text(changes: &[LockChange]) -> String {
    let word = |change: &LockChange| match (&change.before, &change.now) {
        (Some(before), Some(now)) => format!("{} {before} → {now}", change.package),
        (Some(before), None) => format!("{} {before} is gone", change.package),
        (None, now) => format!("{} {} is new", change.package, now.as_deref().unwrap_or_default()),
    };
    let mut text = changes.iter().take(NAMED_MAX).map(word).collect::<Vec<_>>().join(", ");
    if changes.len() > NAMED_MAX {
        let _ = write!(text, " and {} more", changes.len() - NAMED_MAX);
    }
    text
}

/// A digest of all that a recipe says: its text, that of the recipes under it, every file beside them, and the rules of
/// its hardening profile. Two builds
/// with one lock and one such digest are one version.
///
/// # Errors
/// The file that cannot be read, and why.
pub fn recipe_digest(folder: &Path, recipe: &Recipe) -> Result<Digest, (PathBuf, std::io::Error)> {
    let mut hasher = Hasher::new();
    let (folders, besides): (Vec<PathBuf>, Vec<PathBuf>) = match recipe {
        Recipe::Os(recipe) => (
            recipe.folders.clone(),
            recipe.besides().map(|(_, beside)| beside.path()).collect(),
        ),
        Recipe::Deployer(_, base) => (
            vec![folder.to_owned()],
            base.keyring.iter().map(super::recipe::Beside::path).collect(),
        ),
    };
    if let Recipe::Os(recipe) = recipe
        && let Some(hardening) = &recipe.hardening
    {
        let profile = serde_json::to_vec(&hardening.profile).map_err(|error| (folder.to_owned(), error.into()))?;
        add(&mut hasher, &profile);
    }
    for folder in &folders {
        add_file(&mut hasher, RECIPE_FILE.as_bytes(), &folder.join(RECIPE_FILE))?;
        let files = folder.join(FILES_FOLDER);
        if files.exists() {
            add_folder(&mut hasher, &files, b"", 0)?;
        }
    }
    for (number, path) in besides.iter().enumerate() {
        add_file(&mut hasher, number.to_string().as_bytes(), path)?;
    }
    Ok(hasher.finish())
}

/// Adds a part with its length before it, so that no two lists of parts run into the same bytes.
fn add(hasher: &mut Hasher, part: &[u8]) {
    hasher.update(&(part.len() as u64).to_le_bytes());
    hasher.update(part);
}

fn add_file(hasher: &mut Hasher, name: &[u8], path: &Path) -> Result<(), (PathBuf, std::io::Error)> {
    let content = std::fs::read(path).map_err(|error| (path.to_owned(), error))?;
    add(hasher, name);
    add(hasher, &content);
    Ok(())
}

fn add_folder(hasher: &mut Hasher, folder: &Path, under: &[u8], depth: usize) -> Result<(), (PathBuf, std::io::Error)> {
    let failed = |error| (folder.to_owned(), error);
    if depth > DEPTH_MAX {
        return Err(failed(std::io::Error::other("too many folders in each other")));
    }
    let mut items = Vec::new();
    for item in std::fs::read_dir(folder).map_err(failed)? {
        items.push(item.map_err(failed)?);
    }
    items.sort_by_key(std::fs::DirEntry::file_name);
    for item in items {
        let path = item.path();
        let failed = |error| (path.clone(), error);
        let name = [under, b"/", item.file_name().as_bytes()].concat();
        let metadata = item.metadata().map_err(failed)?;
        if metadata.is_dir() {
            add_folder(hasher, &path, &name, depth + 1)?;
        } else if metadata.is_symlink() {
            add(hasher, &name);
            add(
                hasher,
                std::fs::read_link(&path).map_err(failed)?.as_os_str().as_bytes(),
            );
        } else {
            let is_executable = metadata.permissions().mode() & 0o100 != 0;
            add(hasher, if is_executable { b"x" } else { b"-" });
            add_file(hasher, &name, &path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            architecture: "amd64".to_owned(),
            version: version.to_owned(),
        }
    }

    fn instant() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_767_323_045).unwrap()
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Lock::load(folder.path()).unwrap(), None);
        let lock = Lock::new(instant(), &[package("a", "1:2.0-1"), package("b", "3.1")]);
        std::fs::write(folder.path().join(LOCK_FILE), lock.text()).unwrap();
        let read = Lock::load(folder.path()).unwrap().unwrap();
        assert_eq!((&read, read.epoch()), (&lock, 1_767_323_045));
        assert!(lock.text().contains("as_of: 2026-01-02T03:04:05Z\n"), "{}", lock.text());
        assert!(
            lock.pins()
                .starts_with("Package: a:amd64\nPin: version 1:2.0-1\nPin-Priority: 1001\n")
        );
    }

    #[test]
    fn an_instant_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LOCK_FILE), "as_of: yesterday\npackages: {}\n").unwrap();
        let error = Lock::load(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("image.lock") && error.contains("expected an instant"),
            "{error}"
        );
    }

    #[test]
    fn what_differs_from_a_lock_is_named() {
        let lock = Lock::new(instant(), &[package("a", "1"), package("b", "1"), package("c", "1")]);
        assert_eq!(
            lock.changes(&[package("c", "1"), package("b", "1"), package("a", "1")]),
            []
        );
        let changes = lock.changes(&[package("a", "2"), package("c", "1"), package("d", "4")]);
        assert_eq!(
            changes_text(&changes),
            "a:amd64 1 → 2, b:amd64 1 is gone, d:amd64 4 is new"
        );
        let many: Vec<_> = (0..12).map(|n| package(&format!("p{n:02}"), "1")).collect();
        assert!(changes_text(&Lock::new(instant(), &[]).changes(&many)).ends_with("p09:amd64 1 is new and 2 more"));
    }

    #[test]
    fn whatever_a_recipe_says_is_in_its_digest() {
        let images = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = images.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "base/image.yaml",
            "kind: os\nname: base\ndistribution: {suite: bookworm, components: [main]}\nkernel: {package: l}\n",
        );
        write("base/files/etc/motd", "hello\n");
        write("top/image.yaml", "kind: os\nname: top\nextends: base\nhooks: [h.sh]\n");
        write("top/h.sh", "#!/bin/sh\n");
        let digest = || {
            let folder = images.path().join("top");
            recipe_digest(&folder, &Recipe::load(&folder).unwrap()).unwrap()
        };
        let mut seen = vec![digest()];
        assert_eq!(digest(), seen[0]);
        for (path, text) in [
            ("base/files/etc/motd", "goodbye\n"),
            ("base/files/etc/issue", ""),
            ("top/h.sh", "#!/bin/sh\ntrue\n"),
            (
                "top/image.yaml",
                "kind: os\nname: top\nextends: base\nhooks: [h.sh]\npackages: [nano]\n",
            ),
        ] {
            write(path, text);
            assert!(!seen.contains(&digest()), "{path}");
            seen.push(digest());
        }
        let motd = images.path().join("base/files/etc/motd");
        std::fs::set_permissions(motd, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!seen.contains(&digest()), "an execute bit");
    }
}
