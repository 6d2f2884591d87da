//! The node that the agent looks after, as far as its code must know it.
//!
//! The same code serves the machine it runs on and plain folders: a simulated fleet is many folders, each with a
//! [`NodeParts`] of its own, in one process. Nothing here or below is global.

pub mod boot_next;
mod packages;
mod systemctl;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use drift::Observation;
use rustix::time::ClockId;
use uuid::Uuid;

pub use packages::Dpkg;
pub(crate) use packages::is_package_name;
pub use systemctl::Systemctl;

/// Most folders watched for changes; each costs the kernel about a kilobyte.
const WATCHES_MAX: usize = 200_000;

/// Unit files and their states. Blocks; every call is bounded in time.
pub trait UnitManager: Send + Sync + Debug {
    /// Unit file states by unit name.
    ///
    /// # Errors
    /// Why nobody knows.
    fn list(&self) -> Result<BTreeMap<String, String>, Observation>;

    /// Brings a unit from the state it has (`None`: there is no such unit) to another one, and does what follows from it
    /// at once. Says what was done; whether it worked is told by [`UnitManager::list`] alone.
    ///
    /// # Errors
    /// What was refused or failed, for people.
    fn set_state(&self, unit: &str, from: Option<&str>, to: &str) -> Result<String, String>;
}

/// Takes packages away with all that their scripts do. Blocks; every call is bounded in time.
pub trait PackageManager: Send + Sync + Debug {
    /// Purges `name:architecture`.
    ///
    /// # Errors
    /// The end of what it said.
    fn purge(&self, package: &str) -> Result<(), String>;
}

/// Where the time since boot comes from.
#[derive(Clone, Copy, Debug)]
pub enum Uptime {
    /// The machine's own, suspended time included.
    Machine,
    /// Booted at this instant.
    Since(Instant),
}

impl Uptime {
    /// Time since boot.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        match self {
            Self::Machine => {
                let time = rustix::time::clock_gettime(ClockId::Boottime);
                Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
            }
            Self::Since(boot) => boot.elapsed(),
        }
    }
}

/// A node: this machine, or a folder that stands for one.
#[derive(Clone, Debug)]
pub struct NodeParts {
    /// The folder that is the node's `/`.
    pub base: PathBuf,
    /// This boot.
    pub boot_id: Uuid,
    /// Time since boot.
    pub uptime: Uptime,
    /// Unit files.
    pub units: Arc<dyn UnitManager>,
    /// Package manager; `None`: packages are taken away by their file lists.
    pub packages: Option<Arc<dyn PackageManager>>,
    /// Most folders watched for changes; 0: nothing is watched, and changes are only seen by scans. Each node with
    /// watches needs one of the 128 inotify instances that a user may have
    /// (`/proc/sys/fs/inotify/max_user_instances`).
    pub watches_max: usize,
    /// All filesystems of the baseline are plain folders below `base`; on a machine one that is not mounted is a root
    /// that could not be looked at.
    pub roots_are_folders: bool,
}

impl NodeParts {
    /// The machine this process runs on.
    ///
    /// # Errors
    /// When the kernel does not tell its boot id.
    pub fn of_machine() -> anyhow::Result<Self> {
        let path = "/proc/sys/kernel/random/boot_id";
        let text = std::fs::read_to_string(path).context(path)?;
        Ok(Self {
            base: "/".into(),
            boot_id: text.trim().parse().context(path)?,
            uptime: Uptime::Machine,
            units: Arc::new(Systemctl::of_machine()),
            packages: Some(Arc::new(Dpkg)),
            watches_max: WATCHES_MAX,
            roots_are_folders: false,
        })
    }

    /// A folder that stands for a node just booted. What is not in it (`proc/cmdline`, `proc/sys/…`) is said to be
    /// unreadable; unit files are handled by `systemctl --root`, packages by their lists.
    #[must_use]
    pub fn of_folder(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
            boot_id: Uuid::new_v4(),
            uptime: Uptime::Since(Instant::now()),
            units: Arc::new(Systemctl::of_folder(base)),
            packages: None,
            watches_max: WATCHES_MAX,
            roots_are_folders: true,
        }
    }

    /// Whether it is the machine this process runs on, so that the process's own numbers are the agent's.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        self.base == Path::new("/")
    }
}
