//! The postmaster as our child.
//!
//! The kernel's parent-death signal follows the *thread* that forked, not the process: a thread of a pool that idles
//! out would stop the database. So one thread spawns the postmaster and then only waits for it.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::{oneshot, watch};

use super::ClusterError;
use super::log::{self, LogTail};

/// A fast shutdown writes a checkpoint: seconds on a slow disk.
const FAST_SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// An immediate shutdown kills what does not leave after 5 s by itself.
const IMMEDIATE_SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// How the postmaster ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Its exit status or signal, in words.
    pub status: String,
    /// The end of its log, at most 4 KiB.
    pub log_tail: String,
}

/// A started postmaster; told to shut down when dropped.
#[derive(Debug)]
pub(super) struct Postmaster {
    pid: u32,
    /// Names this process even after its number was given to another.
    process: OwnedFd,
    /// Its exit status in words, once it ended.
    ended: watch::Receiver<Option<String>>,
    log: LogTail,
}

impl Postmaster {
    /// Starts `command` on a thread of its own.
    pub async fn spawn(command: Command, log_folder: &Path) -> Result<Self, ClusterError> {
        let failed = |source| ClusterError::Spawn {
            program: "postgres".to_owned(),
            source,
        };
        let log_folder = log_folder.to_owned();
        let (started_sender, started) = oneshot::channel();
        std::thread::Builder::new()
            .name("postgres-holder".to_owned())
            .spawn(move || hold(command, &log_folder, started_sender))
            .map_err(failed)?;
        started.await.map_err(|_| ClusterError::Interrupted)?.map_err(failed)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn log_tail(&self) -> String {
        self.log.text()
    }

    pub fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Waits for the end.
    pub async fn ending(&self) -> Ending {
        let mut ended = self.ended.clone();
        let status = match ended.wait_for(Option::is_some).await {
            Ok(status) => status.clone().unwrap_or_default(),
            Err(_) => "unknown".to_owned(),
        };
        Ending {
            status,
            log_tail: self.log.text_at_end().await,
        }
    }

    /// Fast shutdown; an immediate one (crash recovery at the next start) when that takes more than 30 s.
    pub async fn stop(&self) -> Result<(), ClusterError> {
        for (signal, limit) in [
            (Signal::INT, FAST_SHUTDOWN_LIMIT),
            (Signal::QUIT, IMMEDIATE_SHUTDOWN_LIMIT),
        ] {
            self.signal(signal);
            let mut ended = self.ended.clone();
            if tokio::time::timeout(limit, ended.wait_for(Option::is_some))
                .await
                .is_ok()
            {
                return Ok(());
            }
            tracing::warn!(
                pid = self.pid,
                ?signal,
                limit_secs = limit.as_secs(),
                "PostgreSQL does not stop"
            );
        }
        let limit_secs = (FAST_SHUTDOWN_LIMIT + IMMEDIATE_SHUTDOWN_LIMIT).as_secs();
        Err(ClusterError::DoesNotStop {
            pid: self.pid,
            limit_secs,
        })
    }

    fn signal(&self, signal: Signal) {
        // One that has ended already is what was wanted.
        let _ = pidfd_send_signal(&self.process, signal);
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::INT);
        }
    }
}

/// The whole life of the thread that holds the postmaster.
fn hold(mut command: Command, log_folder: &Path, started: oneshot::Sender<std::io::Result<Postmaster>>) {
    // A group of its own: Ctrl-C at a terminal is for the server, which stops the database last.
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let (ended_sender, ended) = watch::channel(None);
    let observed = (|| {
        let stderr = child.stderr.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let log = log::keep(stderr, log_folder)?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(std::io::ErrorKind::InvalidData)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Postmaster {
            pid: child.id(),
            process,
            ended,
            log,
        })
    })();
    if observed.is_err() {
        let _ = child.kill();
    }
    // When the caller no longer waits, dropping the postmaster here tells it to shut down.
    let _ = started.send(observed);
    let status = child
        .wait()
        .map_or_else(|error| error.to_string(), |status| status.to_string());
    ended_sender.send_replace(Some(status));
}
