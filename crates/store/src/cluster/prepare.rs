//! Everything before the start: account, folders, lock, predecessors, version, initialisation, settings.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::account::{Account, OnParentDeath};
use super::initialise::{self, DataFolder};
use super::layout::{Layout, SOCKET_NAME};
use super::locate::{self, Programs};
use super::{ClusterConfig, ClusterError, DATABASE, ROLE, predecessor};

/// A cluster that is complete, configured and locked, but not started.
#[derive(Debug)]
pub struct PreparedCluster {
    pub(super) layout: Layout,
    programs: Programs,
    account: Account,
    pub(super) leave_limit: Duration,
    /// Held for as long as the cluster is in use; the kernel lets go of it with the process.
    _lock: File,
}

impl PreparedCluster {
    /// Prepares the cluster of `config`, making it when absent. Blocks: seconds for a new cluster, up to
    /// three times the limit when something of an earlier run has to leave first.
    pub fn prepare(config: &ClusterConfig) -> Result<Self, ClusterError> {
        let account = Account::current()?;
        let layout = Layout::make(&config.data_dir, &account)?;
        let lock = take_lock(&layout, config.leave_limit)?;
        predecessor::settle(&layout.data, config.leave_limit)?;
        let found = initialise::look(&layout.data, &account)?;
        let written_by = match found {
            DataFolder::Absent => None,
            DataFolder::WrittenBy(major) => Some(major),
        };
        let programs = locate::choose(&locate::installed(), written_by, &layout.data)?;
        if found == DataFolder::Absent {
            let started = Instant::now();
            initialise::initialise(&layout, &programs, &account)?;
            let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(data = %layout.data.display(), major = programs.major, duration_ms, "made a cluster");
        }
        initialise::write_settings(&layout, &layout.data, &account)?;
        remove_sockets(&layout.run)?;
        Ok(Self {
            layout,
            programs,
            account,
            leave_limit: config.leave_limit,
            _lock: lock,
        })
    }

    /// The command that runs the postmaster in the foreground. It gets SIGINT (fast shutdown) when the *thread* that
    /// spawns it ends.
    pub fn command(&self) -> Command {
        let mut command = self
            .account
            .command(&self.programs.postgres(), OnParentDeath::Interrupt);
        command.arg("-D").arg(&self.layout.data);
        command
    }

    /// How to connect, as the owner of the cluster, over its socket.
    pub fn connect_options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.layout.run)
            .port(5432)
            .username(ROLE)
            .database(DATABASE)
            .ssl_mode(PgSslMode::Disable)
    }

    /// The folder that holds the socket.
    pub fn socket_folder(&self) -> &Path {
        &self.layout.run
    }

    /// The major version of PostgreSQL that runs it.
    pub fn major_version(&self) -> u32 {
        self.programs.major
    }
}

fn take_lock(layout: &Layout, limit: Duration) -> Result<File, ClusterError> {
    let failed = |source| ClusterError::file("lock", &layout.lock)(source);
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&layout.lock)
        .map_err(failed)?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
            Err(TryLockError::WouldBlock) if started.elapsed() > limit => {
                return Err(ClusterError::InUse {
                    folder: layout.root.clone(),
                });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A socket's lock file names a process id that may be somebody else's after a reboot. The folder is ours, and no
/// postmaster lives: whatever is there is left over.
fn remove_sockets(run: &Path) -> Result<(), ClusterError> {
    for name in [SOCKET_NAME.to_owned(), format!("{SOCKET_NAME}.lock")] {
        let path = run.join(name);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(ClusterError::file("remove", &path)(source)),
        }
    }
    Ok(())
}
