//! PostgreSQL processes that an earlier run left on the data folder.
//!
//! They are found by their working folder, which PostgreSQL makes its data folder: that sees the backends which
//! outlive a killed postmaster for a moment as well as a living postmaster, and is not fooled by a process id in a
//! stale `postmaster.pid`. Removing a stale file is left to PostgreSQL, which also checks the shared memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ClusterError;

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Waits until no PostgreSQL process holds the data folder, telling those that stay to stop. Blocks for at most twice
/// the limit. The caller holds the lock of the cluster, so what is found belongs to no living server.
pub(super) fn settle(data: &Path, limit: Duration) -> Result<(), ClusterError> {
    if leaves_within(data, limit) {
        return Ok(());
    }
    let pids = residents(data);
    let postmaster = postmaster_pid(data).filter(|pid| pids.contains(pid));
    tracing::warn!(data = %data.display(), ?pids, ?postmaster, "stopping PostgreSQL processes of an earlier run");
    match postmaster {
        Some(pid) => send(pid, Signal::INT),
        None => pids.iter().for_each(|&pid| send(pid, Signal::QUIT)),
    }
    if leaves_within(data, limit) {
        return Ok(());
    }
    Err(ClusterError::PredecessorStays {
        data: data.to_owned(),
        pids: residents(data),
    })
}

fn leaves_within(data: &Path, limit: Duration) -> bool {
    let started = Instant::now();
    while !residents(data).is_empty() {
        if started.elapsed() > limit {
            return false;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    true
}

/// Process ids of the PostgreSQL processes whose working folder is `data`.
fn residents(data: &Path) -> Vec<u32> {
    let Ok(wanted) = fs::metadata(data) else {
        return Vec::new();
    };
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, folder): &(u32, _)| {
            let is_postgres = fs::read(folder.join("comm")).is_ok_and(|name| name == b"postgres\n");
            is_postgres
                && fs::metadata(folder.join("cwd"))
                    .is_ok_and(|cwd| (cwd.dev(), cwd.ino()) == (wanted.dev(), wanted.ino()))
        })
        .map(|(pid, _)| pid)
        .collect()
}

/// The first line of `postmaster.pid`.
fn postmaster_pid(data: &Path) -> Option<u32> {
    fs::read_to_string(data.join("postmaster.pid"))
        .ok()?
        .lines()
        .next()?
        .trim()
        .parse()
        .ok()
}

fn send(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    // One that has left meanwhile is what was wanted.
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(process, signal);
    }
}
