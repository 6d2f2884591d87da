//! What can keep the private cluster from running, each with the way out for the person who reads it.

use std::io;
use std::path::{Path, PathBuf};

use super::MAJOR_VERSION_MIN;

/// Why the private cluster could not be made, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No usable PostgreSQL is installed.
    #[error(
        "no PostgreSQL {MAJOR_VERSION_MIN} or newer is installed (looked in /usr/lib/postgresql/*/bin and PATH); \
         install it (Debian: apt-get install postgresql) or set database.url to a server elsewhere"
    )]
    NotInstalled,

    /// The data folder was written by a major version that is not installed.
    #[error(
        "{} was written by PostgreSQL {found}, which is not installed here (installed: {}). Ways out: \
         (1) run it as it is: apt-get install postgresql-{found}; \
         (2) move it to a newer version with both installed and Plumbline stopped: initdb a new folder beside it \
         with that version and the same options (--username=plumbline --data-checksums), run pg_upgrade from the \
         old folder to the new one, and put the new one in its place; \
         (3) dump and restore: pg_dump on a machine that has PostgreSQL {found}, move the folder away, start \
         Plumbline once, and load the dump",
        data.display(), versions(installed)
    )]
    VersionMissing {
        /// PostgreSQL's data folder.
        data: PathBuf,
        /// The major version that wrote it.
        found: u32,
        /// The major versions installed here, newest first.
        installed: Vec<u32>,
    },

    /// The data folder was written by a version older than the schema can live on.
    #[error(
        "{} was written by PostgreSQL {found}; Plumbline needs {MAJOR_VERSION_MIN} or newer: install a newer version \
         beside it and move the folder with pg_upgrade, or dump it and restore",
        data.display()
    )]
    VersionTooOld {
        /// PostgreSQL's data folder.
        data: PathBuf,
        /// The major version that wrote it.
        found: u32,
    },

    /// Something else lives where the cluster should be.
    #[error("{} is neither empty nor a complete PostgreSQL cluster: move it away, or restore it whole", data.display())]
    NotACluster {
        /// PostgreSQL's data folder.
        data: PathBuf,
    },

    /// The folder belongs to an account other than the one PostgreSQL would run as.
    #[error(
        "{} belongs to user id {owner}, but PostgreSQL would run as {account} (user id {uid}): run Plumbline under \
         the same account as before, or chown -R the folder",
        path.display()
    )]
    WrongOwner {
        /// The folder.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// Name of the account PostgreSQL runs as.
        account: String,
        /// User id of that account.
        uid: u32,
    },

    /// PostgreSQL's account cannot enter the data folder.
    #[error(
        "PostgreSQL refuses to run as root and runs as {account}, which may not enter {}: chmod o+x that folder, or \
         choose a data folder elsewhere, such as /var/lib/plumbline",
        folder.display()
    )]
    FolderClosed {
        /// The first folder on the way that is closed.
        folder: PathBuf,
        /// Name of the account PostgreSQL runs as.
        account: String,
    },

    /// Another server holds the cluster.
    #[error("another Plumbline server is using {}", folder.display())]
    InUse {
        /// The cluster's folder.
        folder: PathBuf,
    },

    /// Processes of an earlier run do not leave.
    #[error(
        "PostgreSQL processes of an earlier run still hold {} and do not stop (process ids {pids:?}): end them, then \
         start again",
        data.display()
    )]
    PredecessorStays {
        /// PostgreSQL's data folder.
        data: PathBuf,
        /// The processes.
        pids: Vec<u32>,
    },

    /// The account PostgreSQL should run as could not be found out.
    #[error("cannot find the account {name:?} that PostgreSQL should run as: {reason}")]
    Account {
        /// Name of the account, or "(ours)".
        name: String,
        /// What `id` said.
        reason: String,
    },

    /// A program of the package or of the system could not be started.
    #[error("cannot run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },

    /// A program ran and failed.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program.
        program: String,
        /// Its exit status, in words.
        status: String,
        /// The end of what it said.
        output: String,
    },

    /// A file or folder of the cluster could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },

    /// PostgreSQL ended before it took a connection.
    #[error("PostgreSQL ended while starting ({status}); the end of its log:\n{log_tail}")]
    EndedEarly {
        /// Its exit status, in words.
        status: String,
        /// The end of its log, at most 4 KiB.
        log_tail: String,
    },

    /// PostgreSQL runs but took no connection within the limit, or refused ours.
    #[error("PostgreSQL took no connection within {limit_secs} s; the end of its log:\n{log_tail}")]
    NotReady {
        /// The limit, in seconds.
        limit_secs: u64,
        /// The end of its log, at most 4 KiB.
        log_tail: String,
        /// The last answer to a connection.
        #[source]
        source: Option<sqlx::Error>,
    },

    /// PostgreSQL did not stop, not even when told to leave at once.
    #[error("PostgreSQL (process {pid}) did not stop within {limit_secs} s")]
    DoesNotStop {
        /// The postmaster.
        pid: u32,
        /// The limit, in seconds.
        limit_secs: u64,
    },

    /// The thread that does the blocking work was lost.
    #[error("the preparation of the cluster was interrupted")]
    Interrupted,
}

impl ClusterError {
    /// For `map_err`: a file operation that failed.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// "17, 15", or "none".
fn versions(installed: &[u32]) -> String {
    if installed.is_empty() {
        return "none".to_owned();
    }
    installed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
