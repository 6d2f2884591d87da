//! The private PostgreSQL: a cluster of the appliance's own, run from the programs of the installed package.
//!
//! *Idea.* With no database configured, `<data_dir>/postgres` holds a cluster that only this server uses: made by
//! `initdb` when absent, started as a child process, stopped with the server. It listens on a unix socket and on
//! nothing else; who may enter is decided by the kernel (peer authentication), so there is no password to keep.
//!
//! *Invariants.*
//! - One server at a time: a file lock on the folder is held for as long as the cluster is (and goes with the process,
//!   however it dies).
//! - PostgreSQL never outlives its server: the kernel sends it SIGINT (fast shutdown) when the thread that started it
//!   ends. That thread does nothing else and lives as long as the child.
//! - A folder is a cluster only when it is complete: it is made under another name, and renamed.
//! - `fsync` stays on. What was committed survives `kill -9` of either process and a power cut.
//!
//! *Refused.* The `postgresql_embedded` crate: it starts with `fsync` off and on a TCP port. `pg_ctl`: it detaches the
//! postmaster, so that its death is seen late and a server killed by `kill -9` leaves it behind. Debian's
//! `pg_createcluster`: it writes outside the data folder.

mod account;
mod error;
mod initialise;
mod layout;
mod locate;
mod log;
mod postmaster;
mod predecessor;
mod prepare;
mod run;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

pub use error::ClusterError;
pub use postmaster::Ending;
pub use prepare::PreparedCluster;
pub use run::{RunningCluster, start};

/// The role that owns the private cluster; root, the service account and the account of the server map to it.
pub const ROLE: &str = "plumbline";

/// The database inside the private cluster.
pub const DATABASE: &str = "plumbline";

/// The oldest major version of PostgreSQL that is started.
pub const MAJOR_VERSION_MIN: u32 = 15;

/// Where the private cluster lives.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The appliance's data folder. The cluster takes `postgres/` in it: `data` (PostgreSQL's own), `run` (the
    /// socket, unless the path is too long for one), `log` (at most 8 MiB) and `lock`.
    ///
    /// Under root the processes run as the package's `postgres` account, which must be able to enter this folder.
    pub data_dir: PathBuf,
    /// How long a server that is leaving, and the PostgreSQL of an earlier run, may take before the start fails or the
    /// latter is told to stop: 30 s.
    pub leave_limit: Duration,
}

impl ClusterConfig {
    /// The cluster of a data folder, with the usual limits.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            leave_limit: Duration::from_secs(30),
        }
    }
}
