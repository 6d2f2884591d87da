//! Building an image: recipe in, signed image in the store out.
//!
//! A build works in a folder of its own below `<data folder>/build`, which is removed when the build ends, however it
//! ends; what a killed build left is removed by the next one. One build runs at a time in a data folder. The store is
//! written last, and an image is in it only when it is complete.
//!
//! Refused: fakeroot and user namespaces (owners above the mapped range and file capabilities do not survive them), and
//! loop devices (a folder holds everything a manifest can say).

mod accounts;
mod agent_layer;
mod clean;
mod command;
mod debian;
mod deployer;
mod error;
mod facts;
mod files;
mod hooks;
mod identity;
mod initramfs;
mod modules;
mod os;
mod programs;
mod progress;
mod publish;
mod sources;
mod walk;

use std::path::{Path, PathBuf};

use manifest::{Digest, ManifestKind, Package};

pub use error::BuildError;
pub use progress::Progress;

use super::exclusive::Exclusive;
use super::keys::Keys;
use super::lock::{self, LOCK_FILE, Lock, LockChange};
use super::recipe::{FILES_FOLDER, Recipe};
use super::store::ImageStore;
use progress::Reporter;

/// What to build, from what, into where.
#[derive(Clone, Debug)]
pub struct BuildRequest {
    /// Folder of the recipe (`images/debian-12-lab`).
    pub recipe_dir: PathBuf,
    /// The appliance's data folder: `images`, `keys` and `build` in it are used.
    pub data_dir: PathBuf,
    /// Folder with `shimx64.efi` and `grubx64.efi.signed`, which an image of kind `os` boots by.
    pub loaders_dir: PathBuf,
    /// The agent, which a deployer needs; images of kind `os` hold none.
    pub agent_binary: Option<PathBuf>,
}

/// An image that is in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltImage {
    /// Its digest, which is its name.
    pub digest: Digest,
    /// Kind.
    pub kind: ManifestKind,
    /// Image name.
    pub name: String,
    /// Version: the instant the build began (UTC), `20260102T030405Z`; with a lock its instant, and the beginning of the
    /// recipe's digest, `20260102T030405Z-0123abcd`.
    pub version: String,
    /// Paths in the manifest.
    pub paths: u64,
    /// Regular files among them.
    pub files: u64,
    /// Share of the regular files whose class is `pinned`, 0 to 1.
    pub pinned_share: f64,
    /// Bytes of all files.
    pub content_bytes: u64,
    /// Bytes of all packs, or of the artifacts of a deployer.
    pub stored_bytes: u64,
}

/// Builds the image of a recipe, or fails and leaves the store as it was.
///
/// Dropping the future stops the build at its next sign of life, within a few seconds.
///
/// # Errors
/// [`BuildError`], which says what to do where there is something to do.
pub async fn build(request: BuildRequest, progress: &dyn Progress) -> Result<BuiltImage, BuildError> {
    let data_dir = request.data_dir.clone();
    blocking(data_dir, progress, move |mut build| {
        let folder = &request.recipe_dir;
        let recipe = Recipe::load(folder)?;
        if let Some(lock) = Lock::load(folder)? {
            let digest = lock::recipe_digest(folder, &recipe)
                .map_err(|(path, error)| BuildError::io(format!("reading {}", path.display()))(error))?;
            build.epoch = lock.epoch();
            build.version = locked_version(lock.epoch(), digest);
            build.lock = Some((folder.join(LOCK_FILE), lock));
        }
        build
            .reporter
            .say("start", format!("{} {}", recipe.name(), build.version))?;
        match recipe {
            Recipe::Os(recipe) => os::build(&build, &recipe, &request.loaders_dir),
            Recipe::Deployer(recipe) => {
                let files = folder.join(FILES_FOLDER);
                deployer::build(&build, &recipe, &files, request.agent_binary.as_deref())
            }
        }
    })
    .await
}

/// What became of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockUpdate {
    /// The lock's file.
    pub path: PathBuf,
    /// Whether there was none before.
    pub is_new: bool,
    /// Packages in it now.
    pub packages: usize,
    /// What changed in it; it was left alone where nothing did.
    pub changes: Vec<LockChange>,
}

/// Looks up the packages that a recipe would be built from today, by unpacking or installing them, and writes the lock
/// beside the recipe where they are others.
///
/// # Errors
/// As [`build`].
pub async fn lock_update(request: BuildRequest, progress: &dyn Progress) -> Result<LockUpdate, BuildError> {
    let data_dir = request.data_dir.clone();
    blocking(data_dir, progress, move |build| {
        let folder = &request.recipe_dir;
        let path = folder.join(LOCK_FILE);
        let packages = match Recipe::load(folder)? {
            Recipe::Os(recipe) => os::packages(&build, &recipe)?,
            Recipe::Deployer(recipe) => deployer::packages(&build, &recipe)?,
        };
        let before = Lock::load(folder)?;
        let now = time::OffsetDateTime::from_unix_timestamp(build.epoch).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
        let lock = Lock::new(now, &packages);
        let changes = before
            .as_ref()
            .map(|before| before.changes(&packages))
            .unwrap_or_default();
        let is_new = before.is_none();
        if is_new || !changes.is_empty() {
            let failed = || BuildError::io(format!("writing {}", path.display()));
            let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed())?;
            std::io::Write::write_all(&mut file, lock.text().as_bytes()).map_err(failed())?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            file.as_file().set_permissions(mode).map_err(failed())?;
            file.persist(&path).map_err(|error| failed()(error.error))?;
        }
        Ok(LockUpdate {
            path,
            is_new,
            packages: packages.len(),
            changes,
        })
    })
    .await
}

/// Makes the agent layer of an agent binary: the program and its unit, signed by the agent-release key.
///
/// # Errors
/// As [`build`]; [`BuildError::InputMissing`] when there is no such binary.
pub async fn build_agent_layer(
    binary: &Path,
    data_dir: &Path,
    progress: &dyn Progress,
) -> Result<BuiltImage, BuildError> {
    let binary = binary.to_owned();
    blocking(data_dir.to_owned(), progress, move |build| {
        agent_layer::build(&build, &binary)
    })
    .await
}

/// What every step of a build needs.
struct Build {
    reporter: Reporter,
    store: ImageStore,
    keys: Keys,
    /// This build's own folder.
    work: PathBuf,
    /// The instant the build began, or the lock's, in seconds since 1970; no time in an image is later.
    epoch: i64,
    /// The same instant as the version.
    version: String,
    /// The lock and where it lies, where the recipe has one.
    lock: Option<(PathBuf, Lock)>,
    /// For the store's asynchronous calls from the build's thread.
    runtime: tokio::runtime::Handle,
}

impl Build {
    /// Refuses packages that are not those of the lock.
    fn check_lock(&self, packages: &[Package]) -> Result<(), BuildError> {
        let Some((path, lock)) = &self.lock else {
            return Ok(());
        };
        let changes = lock.changes(packages);
        if changes.is_empty() {
            return Ok(());
        }
        Err(BuildError::LockDiffers {
            path: path.clone(),
            changes: lock::changes_text(&changes),
        })
    }
}

/// Runs a build on a thread of its own, with its folder, and passes on what it says.
async fn blocking<T: Send + 'static>(
    data_dir: PathBuf,
    progress: &dyn Progress,
    work: impl FnOnce(Build) -> Result<T, BuildError> + Send + 'static,
) -> Result<T, BuildError> {
    let (reporter, mut lines) = Reporter::channel();
    let runtime = tokio::runtime::Handle::current();
    let task = tokio::task::spawn_blocking(move || {
        let folder = WorkFolder::claim(&data_dir)?;
        let now = time::OffsetDateTime::now_utc();
        let build = Build {
            reporter,
            store: ImageStore::open(&data_dir)?,
            keys: Keys::load_or_create(&data_dir.join("keys"))?,
            work: folder.path.clone(),
            epoch: now.unix_timestamp(),
            version: version(now),
            lock: None,
            runtime,
        };
        work(build)
    });
    while let Some(line) = lines.recv().await {
        tracing::debug!(build.stage = line.stage, build.detail = line.detail, "build");
        progress.report(line.stage, &line.detail);
    }
    match task.await {
        Ok(result) => result,
        Err(error) => Err(BuildError::Io {
            what: "the build's thread ended".to_owned(),
            source: std::io::Error::other(error),
        }),
    }
}

fn version(now: time::OffsetDateTime) -> String {
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    )
}

/// The version of a locked build: the lock's time, and the beginning of the recipe's digest, since the same packages
/// serve many recipes.
fn locked_version(epoch: i64, recipe: Digest) -> String {
    let now = time::OffsetDateTime::from_unix_timestamp(epoch).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let digest: String = recipe.to_string().chars().take(8).collect();
    format!("{}-{digest}", version(now))
}

/// The folder of one build. While it lives, no other build works in the same data folder.
struct WorkFolder {
    path: PathBuf,
    _lock: Exclusive,
}

impl WorkFolder {
    fn claim(data_dir: &Path) -> Result<Self, BuildError> {
        let failed = |path: &Path| BuildError::io(format!("preparing {}", path.display()));
        let lock = Exclusive::claim(data_dir)?;
        let builds = lock.builds.clone();
        // With the lock held, whatever is here was left by a build that was killed.
        for left in std::fs::read_dir(&builds).map_err(failed(&builds))? {
            let left = left.map_err(failed(&builds))?.path();
            if left.is_dir() {
                std::fs::remove_dir_all(&left).map_err(failed(&left))?;
            }
        }
        let path = builds.join(uuid::Uuid::new_v4().simple().to_string());
        std::fs::create_dir(&path).map_err(failed(&path))?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a build's folder is left behind");
        }
    }
}

#[cfg(test)]
mod real_build_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_the_builds_ran() {
        let instant = |seconds| time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        assert_eq!(version(instant(1_767_323_045)), "20260102T030405Z");
        assert!(version(instant(1_767_323_045)) < version(instant(1_767_323_046)));
    }

    #[test]
    fn one_build_at_a_time_and_nothing_is_left() {
        let data = tempfile::tempdir().unwrap();
        let builds = data.path().join("build");
        std::fs::create_dir_all(builds.join("left-by-a-killed-build/usr")).unwrap();
        let first = WorkFolder::claim(data.path()).unwrap();
        std::fs::write(first.path.join("x"), "").unwrap();
        assert!(matches!(WorkFolder::claim(data.path()), Err(BuildError::Busy { .. })));
        drop(first);
        let names: Vec<_> = std::fs::read_dir(&builds)
            .unwrap()
            .map(|item| item.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lock"]);
        WorkFolder::claim(data.path()).unwrap();
    }
}
