//! What the tests of the private cluster share.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection};
use store::cluster::{ClusterConfig, RunningCluster};
use tempfile::TempDir;

/// A data folder that the service account may enter.
pub fn data_dir() -> TempDir {
    tempfile::Builder::new()
        .prefix("plumbline-cluster-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap()
}

pub fn config(folder: &Path) -> ClusterConfig {
    ClusterConfig::new(folder)
}

pub fn data_folder(folder: &Path) -> PathBuf {
    folder.join("postgres/data")
}

pub async fn connect(cluster: &RunningCluster) -> PgConnection {
    cluster.connect_options().connect().await.unwrap()
}

/// One committed row more in the table `kept`.
pub async fn write_row(cluster: &RunningCluster) {
    let mut connection = connect(cluster).await;
    sqlx::query("CREATE TABLE IF NOT EXISTS kept (at timestamptz)")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("INSERT INTO kept VALUES (now())")
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

pub async fn row_count(cluster: &RunningCluster) -> i64 {
    let mut connection = connect(cluster).await;
    let count = sqlx::query_scalar("SELECT count(*) FROM kept")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    count
}

/// Whether a process runs, and is no zombie that nobody waited for.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z'))
}

pub fn kill_9(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

pub fn wait_until(limit: Duration, what: &str, mut predicate: impl FnMut() -> bool) {
    let started = Instant::now();
    while !predicate() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
