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
mod event;
mod facts;
mod files;
mod hardening;
mod hooks;
mod identity;
mod import;
mod initramfs;
mod module_signing;
mod modules;
mod os;
mod programs;
mod progress;
mod publish;
mod sources;
mod walk;

use std::fs::File;
use std::path::{Path, PathBuf};

use manifest::{Digest, KeyId, ManifestKind, Package};

pub use error::BuildError;
pub use event::BuildEvent;
pub use progress::{Count, Progress};

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
    /// What is left to do before it is an image, where the key that signs is on another machine.
    pub to_sign: Option<ToSign>,
}

/// A manifest that waits for its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToSign {
    /// The file to sign.
    pub manifest: PathBuf,
    /// What is said beside the signature and covered by it.
    pub comment: String,
    /// The key that is to sign, where one may.
    pub key: Option<KeyId>,
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
        // A key that may not sign is told now and not after the work.
        build.keys.image_signer()?;
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
            Recipe::Deployer(recipe, base) => {
                let files = folder.join(FILES_FOLDER);
                deployer::build(&build, &recipe, &base, &files, request.agent_binary.as_deref())
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
            Recipe::Deployer(_, base) => deployer::packages(&build, &base)?,
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
    /// The appliance's data folder.
    data_dir: PathBuf,
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
    /// The day of [`Build::epoch`].
    fn day(&self) -> time::Date {
        let instant = time::OffsetDateTime::from_unix_timestamp(self.epoch);
        instant.unwrap_or(time::OffsetDateTime::UNIX_EPOCH).date()
    }

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
            data_dir: data_dir.clone(),
            keys: Keys::load_or_create(&data_dir.join("keys"))?,
            work: folder.path.clone(),
            epoch: now.unix_timestamp(),
            version: version(now),
            lock: None,
            runtime,
        };
        work(build)
    });
    while let Some(said) = lines.recv().await {
        tracing::debug!(?said, "build");
        said.tell(progress);
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
        let lock = clean_up(data_dir)?;
        let builds = &lock.builds;
        let path = builds.join(uuid::Uuid::new_v4().simple().to_string());
        std::fs::create_dir(&path).map_err(BuildError::io(format!("preparing {}", path.display())))?;
        Ok(Self { path, _lock: lock })
    }
}

/// Takes the lock of a data folder's builds and removes what a build left that was killed.
fn clean_up(data_dir: &Path) -> Result<Exclusive, BuildError> {
    let failed = |path: &Path| BuildError::io(format!("preparing {}", path.display()));
    let lock = Exclusive::claim(data_dir)?;
    // With the lock held, whatever is here was left by a build that was killed.
    for left in std::fs::read_dir(&lock.builds).map_err(failed(&lock.builds))? {
        let left = left.map_err(failed(&lock.builds))?.path();
        if left.is_dir() {
            std::fs::remove_dir_all(&left).map_err(failed(&left))?;
        }
    }
    Ok(lock)
}

/// Removes what a build left that was killed.
///
/// # Errors
/// [`BuildError::Busy`] while one runs; [`BuildError::Io`].
pub fn remove_leftovers(data_dir: &Path) -> Result<(), BuildError> {
    clean_up(data_dir).map(|_| ())
}

/// Whether a build runs in this data folder, whoever started it.
#[must_use]
pub fn is_running(data_dir: &Path) -> bool {
    let lock = File::open(data_dir.join("build").join("lock"));
    lock.is_ok_and(|lock| rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err())
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
        assert!(!is_running(data.path()));
        let first = WorkFolder::claim(data.path()).unwrap();
        std::fs::write(first.path.join("x"), "").unwrap();
        assert!(matches!(WorkFolder::claim(data.path()), Err(BuildError::Busy { .. })));
        assert!(is_running(data.path()) && remove_leftovers(data.path()).is_err());
        assert!(
            first.path.join("x").exists(),
            "of a build that runs, nothing is removed"
        );
        drop(first);
        assert!(!is_running(data.path()));
        let names: Vec<_> = std::fs::read_dir(&builds)
            .unwrap()
            .map(|item| item.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lock"]);
        std::fs::create_dir_all(builds.join("left-by-another/usr")).unwrap();
        remove_leftovers(data.path()).unwrap();
        assert_eq!(std::fs::read_dir(&builds).unwrap().count(), 1);
        WorkFolder::claim(data.path()).unwrap();
    }

    /// The key that signs is on another machine.
    #[tokio::test]
    async fn a_build_without_the_secret_key_ends_with_what_is_to_be_signed() {
        let data = tempfile::tempdir().unwrap();
        let keys = data.path().join("keys");
        std::fs::create_dir(&keys).unwrap();
        let elsewhere = manifest::KeyPair::generate().unwrap();
        std::fs::write(keys.join("image.pub"), elsewhere.public().as_str()).unwrap();
        let build = async || {
            let header = manifest::Header::new(ManifestKind::Os, "debian", "1");
            let made = blocking(data.path().to_owned(), &(), |build| {
                publish::with_packs(&build, header, Vec::new(), |_| Ok(std::io::empty()))
            });
            made.await.unwrap()
        };
        let built = build().await;
        let to_sign = built.to_sign.unwrap();
        assert_eq!(to_sign.key, Some(elsewhere.public().id().unwrap()));
        assert_eq!(to_sign.comment, "plumbline os debian 1");
        let bytes = std::fs::read(&to_sign.manifest).unwrap();
        assert_eq!(Digest::of(&bytes), built.digest);
        let store = ImageStore::open(data.path()).unwrap();
        assert_eq!(store.list().await.unwrap(), [], "it is no image yet");

        let signature = elsewhere.sign(&bytes, &to_sign.comment).unwrap();
        store.put_signature(built.digest, &signature).await.unwrap();
        assert_eq!(store.list().await.unwrap(), [built.digest]);
        assert_eq!(build().await.to_sign, None, "the same build is signed already");
    }
}
