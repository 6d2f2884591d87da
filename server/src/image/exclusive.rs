//! One writer of a data folder at a time: builds, imports, and whoever removes.
//!
//! A build may find a pack in the store that no image uses any more, and use it; whoever removed it at that moment would
//! take it from under the build. So all of them hold `<data folder>/build/lock` while they work. The lock ends with its
//! process, however that ends.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The lock of a data folder, held until this is dropped.
#[derive(Debug)]
pub struct Exclusive {
    /// The folder `build`, made if need be; only its owner looks in.
    pub builds: PathBuf,
    _lock: File,
}

/// The lock could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExclusiveError {
    /// Somebody else holds it.
    #[error("another build, import or removal is at work ({} is locked): wait until it ends", path.display())]
    Busy {
        /// The lock's file.
        path: PathBuf,
    },
    /// The folder or the file could not be made or opened.
    #[error("preparing {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl Exclusive {
    /// Takes the lock, or says at once that it is taken.
    ///
    /// # Errors
    /// [`ExclusiveError`].
    pub fn claim(data_dir: &Path) -> Result<Self, ExclusiveError> {
        let builds = data_dir.join("build");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ExclusiveError::Io { path, source }
        };
        // Trees hold setuid programs and shadow files: nobody else looks in.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&builds)
            .map_err(failed(&builds))?;
        let builds = builds.canonicalize().map_err(failed(&builds))?;
        let path = builds.join("lock");
        let lock = File::create(&path).map_err(failed(&path))?;
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(ExclusiveError::Busy { path });
        }
        Ok(Self { builds, _lock: lock })
    }
}
