//! The PostgreSQL that all tests of a checkout share.
//!
//! nextest runs each test in a process of its own, so the server must outlive the process that started it, and must
//! still go away. Each test process holds a shared file lock (the *lease*) until it ends, by whatever means; a
//! supervising shell tries for the exclusive lock every few seconds and stops the server once it could have had it for
//! a minute. Counting processes, or touching a file now and then, were refused: the first goes wrong with `kill -9`,
//! the second with a test that stands in a debugger.
//!
//! Every start makes a new cluster in a new folder (a second), so that nothing of an earlier run, however it ended,
//! matters. It runs with `fsync` off: these databases are for the length of a test.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use store::cluster::{ClusterConfig, DATABASE, PreparedCluster, ROLE};
use tokio::sync::OnceCell;

use crate::wait_for;

/// How long nobody must use the server before it is stopped, and how often that is looked at.
const IDLE_SECS: u32 = 60;
const PAUSE_SECS: u32 = 5;

/// A new cluster and its first connection, on a machine that compiles at the same time.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// What only tests may have: no waiting for the disk, and connections for many tests at once.
const SETTINGS: [&str; 5] = [
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "max_connections=400",
    // Copying a small template through the log needs no checkpoint; large checkpoints then only cost.
    "max_wal_size=4GB",
];

/// The server, in use by this process.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    /// Held until the process ends.
    _lease: File,
}

impl Server {
    /// The server of this checkout, started when it does not run.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Server> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| Self::find_or_start(default_folder(), IDLE_SECS, PAUSE_SECS))
            .await
    }

    /// The server of `folder`, started when it does not run.
    async fn find_or_start(folder: PathBuf, idle_secs: u32, pause_secs: u32) -> anyhow::Result<Self> {
        make_folder(&folder)?;
        let lease_path = folder.join("lease");
        let lease = open_lock_file(&lease_path)?;
        let start = open_lock_file(&folder.join("start"))?;
        let (lease, _start) = tokio::task::spawn_blocking(move || {
            start.lock()?;
            // Waits while a supervisor that found nobody stops its server.
            lease.lock_shared()?;
            Ok::<_, std::io::Error>((lease, start))
        })
        .await?
        .context("cannot lock the test server's folder")?;

        let current = folder.join("current");
        if let Ok(url) = fs::read_to_string(&current)
            && answers(&url).await
        {
            return Ok(Self { url, _lease: lease });
        }
        remove_generations(&folder);
        let generation = folder.join(format!("run-{}", uuid::Uuid::new_v4().simple()));
        make_folder(&generation)?;
        let config = ClusterConfig::new(&generation);
        let prepared = tokio::task::spawn_blocking(move || PreparedCluster::prepare(&config))
            .await?
            .context("cannot make a PostgreSQL for the tests")?;
        let url = url_of(prepared.socket_folder(), DATABASE);
        supervise(&prepared, &lease_path, &generation, idle_secs, pause_secs)?;
        let is_ready = wait_for(READY_LIMIT, "the PostgreSQL of the tests", async || answers(&url).await).await;
        if let Err(error) = is_ready {
            let log = fs::read_to_string(generation.join("postgres.log")).unwrap_or_default();
            return Err(anyhow::Error::new(error).context(format!("PostgreSQL's log:\n{log}")));
        }
        fs::write(&current, &url).with_context(|| format!("cannot write {}", current.display()))?;
        Ok(Self { url, _lease: lease })
    }

    /// How to connect to the database that belongs to no test.
    pub fn admin_options(&self) -> anyhow::Result<PgConnectOptions> {
        Ok(PgConnectOptions::from_str(&self.url)?)
    }

    /// The address of a database on this server.
    pub fn database_url(&self, name: &str) -> String {
        self.url.replacen(&format!("/{DATABASE}?"), &format!("/{name}?"), 1)
    }
}

/// `postgres:///<database>?host=<socket folder>&user=<role>`: the socket's folder holds no byte that needs escaping.
fn url_of(socket_folder: &Path, database: &str) -> String {
    format!(
        "postgres:///{database}?host={}&user={ROLE}&sslmode=disable",
        socket_folder.display()
    )
}

/// One folder for each user and checkout. Not under `target`: PostgreSQL's account may have no way into a home folder.
fn default_folder() -> PathBuf {
    let checkout = workspace_root();
    let digest = hex::encode(Sha256::digest(checkout.as_os_str().as_encoded_bytes()));
    let uid = own_uid().unwrap_or(0);
    std::env::temp_dir().join(format!(
        "plumbline-testkit-{uid}-{}",
        digest.get(..8).unwrap_or_default()
    ))
}

/// The folder that holds `migrations/` and `crates/`.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
        .to_owned()
}

fn own_uid() -> std::io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

/// A folder of ours that PostgreSQL's account may enter.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    match DirBuilder::new().mode(0o711).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", folder.display()));
        }
        _ => {}
    }
    // In a folder where anybody can make one of this name first.
    let metadata = fs::symlink_metadata(folder)?;
    ensure!(
        metadata.is_dir() && metadata.uid() == own_uid()?,
        "{} is not a folder of ours",
        folder.display()
    );
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
    Ok(())
}

fn open_lock_file(path: &Path) -> anyhow::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Whether a connection works within 5 s.
async fn answers(url: &str) -> bool {
    let Ok(options) = PgConnectOptions::from_str(url) else {
        return false;
    };
    let Ok(Ok(connection)) = tokio::time::timeout(Duration::from_secs(5), options.connect()).await else {
        return false;
    };
    connection.close().await.is_ok()
}

/// What servers that died with their supervisor left. Best effort: a new one has a folder of its own.
fn remove_generations(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"run-") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Starts the supervisor in a session of its own, away from the terminal and the process group of this test.
fn supervise(
    prepared: &PreparedCluster,
    lease: &Path,
    generation: &Path,
    idle_secs: u32,
    pause_secs: u32,
) -> anyhow::Result<()> {
    let postgres = prepared.command();
    let log = File::create(generation.join("postgres.log"))?;
    let mut command = Command::new("setsid");
    command
        .args(["sh", "-c", include_str!("supervisor.sh"), "supervisor"])
        .args([lease, generation])
        .args([idle_secs.to_string(), pause_secs.to_string()])
        .arg(postgres.get_program())
        .args(postgres.get_args());
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut supervisor = command
        .spawn()
        .context("cannot start the supervisor of the test server")?;
    if let Some(status) = supervisor.try_wait()? {
        bail!("the supervisor of the test server ended at once: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The postmaster that answers at `url`.
    async fn postmaster_pid(server: &Server) -> u32 {
        let mut connection = server.admin_options().unwrap().connect().await.unwrap();
        let text: String = sqlx::query_scalar("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn it_is_shared_while_in_use_and_leaves_when_idle() {
        let parent = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .unwrap();
        let folder = parent.path().join("server");
        let first = Server::find_or_start(folder.clone(), 1, 1).await.unwrap();
        let second = Server::find_or_start(folder.clone(), 1, 1).await.unwrap();
        let pid = postmaster_pid(&first).await;
        assert_eq!(postmaster_pid(&second).await, pid);
        let process = PathBuf::from(format!("/proc/{pid}"));

        drop(first);
        let left_early = wait_for(Duration::from_secs(4), "nothing", async || !process.exists()).await;
        left_early.expect_err("it stopped under a process that uses it");

        drop(second);
        wait_for(Duration::from_secs(20), "the idle server to stop", async || {
            !process.exists()
        })
        .await
        .unwrap();
        let is_clean = async || {
            fs::read_dir(&folder)
                .unwrap()
                .all(|entry| entry.unwrap().path().is_file())
        };
        wait_for(Duration::from_secs(20), "its folder to go", is_clean)
            .await
            .unwrap();

        // And one that comes later gets another.
        let third = Server::find_or_start(folder, 1, 1).await.unwrap();
        assert_ne!(postmaster_pid(&third).await, pid);
        let process = PathBuf::from(format!("/proc/{}", postmaster_pid(&third).await));
        drop(third);
        wait_for(Duration::from_secs(20), "the idle server to stop", async || {
            !process.exists()
        })
        .await
        .unwrap();
    }
}
