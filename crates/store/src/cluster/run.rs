//! The cluster while it runs.

use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::postmaster::{Ending, Postmaster};
use super::{ClusterConfig, ClusterError, PreparedCluster, predecessor};

/// A start may have to replay the log of a crash.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// One attempt to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Between two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(25);

/// The private cluster, started. Dropping it tells PostgreSQL to shut down but does not wait; [`RunningCluster::stop`]
/// does. When the process dies without either, the kernel tells PostgreSQL.
#[derive(Debug)]
pub struct RunningCluster {
    postmaster: Postmaster,
    prepared: PreparedCluster,
}

/// Makes the cluster when absent, starts it, and waits until it takes connections: within 60 s, after up to 90 s for
/// what an earlier run left behind.
///
/// # Errors
/// [`ClusterError`]: nothing suitable installed, another server on the folder, a folder of another version, or the
/// end of PostgreSQL's log when it does not come up. Nothing is left running then.
pub async fn start(config: &ClusterConfig) -> Result<RunningCluster, ClusterError> {
    let config = config.clone();
    let prepared = blocking(move || PreparedCluster::prepare(&config)).await?;
    let postmaster = launch(&prepared).await?;
    Ok(RunningCluster { postmaster, prepared })
}

impl RunningCluster {
    /// How to connect: as the owner of the cluster, over its socket.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.prepared.connect_options()
    }

    /// Process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.postmaster.pid()
    }

    /// The major version of PostgreSQL that runs.
    pub fn major_version(&self) -> u32 {
        self.prepared.major_version()
    }

    /// Waits until the postmaster ends, for whatever reason, and tells how. Can be awaited many times, and dropped.
    pub async fn exited(&self) -> Ending {
        self.postmaster.ending().await
    }

    /// Starts the cluster again, after it ended or (stopping it first) while it runs. Connections of before are lost;
    /// what was committed is not.
    ///
    /// # Errors
    /// As [`start`]; the cluster is then stopped, and this can be called again.
    pub async fn restart(&mut self) -> Result<(), ClusterError> {
        self.postmaster.stop().await?;
        // The backends of a killed postmaster leave a moment later.
        let (data, limit) = (self.prepared.layout.data.clone(), self.prepared.leave_limit);
        blocking(move || predecessor::settle(&data, limit)).await?;
        self.postmaster = launch(&self.prepared).await?;
        Ok(())
    }

    /// Fast shutdown: transactions under way are rolled back. After 30 s an immediate one.
    ///
    /// # Errors
    /// [`ClusterError::DoesNotStop`] when it still runs 10 s after that.
    pub async fn stop(self) -> Result<(), ClusterError> {
        self.postmaster.stop().await
    }
}

async fn launch(prepared: &PreparedCluster) -> Result<Postmaster, ClusterError> {
    let started = Instant::now();
    let postmaster = Postmaster::spawn(prepared.command(), &prepared.layout.log).await?;
    if let Err(error) = wait_until_ready(&postmaster, prepared.connect_options()).await {
        // The first error is the one to tell.
        let _ = postmaster.stop().await;
        return Err(error);
    }
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        pid = postmaster.pid(),
        data = %prepared.layout.data.display(),
        socket_folder = %prepared.layout.run.display(),
        duration_ms,
        "the private PostgreSQL runs"
    );
    Ok(postmaster)
}

/// Ready means that a connection works, not that a file or a log line exists.
async fn wait_until_ready(postmaster: &Postmaster, options: PgConnectOptions) -> Result<(), ClusterError> {
    tokio::select! {
        ending = postmaster.ending() => {
            Err(ClusterError::EndedEarly { status: ending.status, log_tail: ending.log_tail })
        }
        result = connect_within(READY_LIMIT, &options) => result.map_err(|source| ClusterError::NotReady {
            limit_secs: READY_LIMIT.as_secs(),
            log_tail: postmaster.log_tail(),
            source,
        }),
    }
}

async fn connect_within(limit: Duration, options: &PgConnectOptions) -> Result<(), Option<sqlx::Error>> {
    let started = Instant::now();
    let mut last = None;
    while started.elapsed() < limit {
        match tokio::time::timeout(CONNECT_LIMIT, options.connect()).await {
            Ok(Ok(connection)) => {
                let _ = connection.close().await;
                return Ok(());
            }
            Ok(Err(error)) if is_final(&error) => return Err(Some(error)),
            Ok(Err(error)) => last = Some(error),
            Err(_) => {}
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
    Err(last)
}

/// Whether waiting cannot help: the server answers and refuses us (class 28) or has no such database (3D).
fn is_final(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.starts_with("28") || code.starts_with("3D"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClusterError> + Send + 'static,
) -> Result<T, ClusterError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ClusterError::Interrupted)?
}
