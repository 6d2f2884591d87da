//! A server in a process of its own, started for one measurement and stopped after it.
//!
//! Invariant: a server dies with this program: its parent's death is its own (`setpriv --pdeathsig`), and processes that
//! it started are in its group, which is ended as a whole.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long a server may take to answer its first request, or to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server that runs.
pub struct Running {
    child: Child,
    group: Pid,
}

impl Running {
    /// Starts `program` and waits until `answers` says that it serves.
    ///
    /// # Errors
    /// When it cannot be started, ends at once, does not answer in time, or `answers` fails: it answered wrongly.
    pub fn start(program: &Path, arguments: &[String], answers: impl FnMut() -> Result<bool>) -> Result<Self> {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let group = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process without a number")?;
        let mut running = Self { child, group };
        running.await_answer(answers)?;
        Ok(running)
    }

    fn await_answer(&mut self, mut answers: impl FnMut() -> Result<bool>) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once: {status}");
            }
            if answers()? {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        bail!("no answer within {} s", PATIENCE.as_secs())
    }

    /// The most memory its first process has held so far, in bytes (`VmHWM`): all of it, where there is one process.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory_peak_bytes(&self) -> Result<u64> {
        memory_peak_bytes(self.child.id())
    }

    /// Processor time it has used so far, in seconds: its first process's, and that of children it has waited for. Counted
    /// in hundredths.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn processor_secs(&self) -> Result<f64> {
        processor_secs(self.child.id())
    }

    /// As [`Running::memory_peak_bytes`], with the processes that it keeps: their sum, shared memory counted in each.
    ///
    /// # Errors
    /// As there.
    pub fn family_memory_peak_bytes(&self) -> Result<u64> {
        self.family().into_iter().map(memory_peak_bytes).sum()
    }

    /// As [`Running::processor_secs`], with the processes that it keeps.
    ///
    /// # Errors
    /// As there.
    pub fn family_processor_secs(&self) -> Result<f64> {
        self.family().into_iter().map(processor_secs).sum()
    }

    /// Its first process and that one's children.
    fn family(&self) -> Vec<u32> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|word| word.parse().ok());
        std::iter::once(id).chain(children).collect()
    }

    /// Ends it and what it started.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        // A group that is gone is as good as ended.
        let _ended = kill_process_group(self.group, Signal::KILL);
        self.child.wait().context("cannot wait for a server")?;
        // What it started may hold the address a moment longer.
        let limit = Instant::now() + PATIENCE;
        while test_kill_process_group(self.group).is_ok() && Instant::now() < limit {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ended = self.end();
        }
    }
}

fn memory_peak_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    peak_bytes(&status).with_context(|| format!("{path} has no VmHWM"))
}

fn processor_secs(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    processor_ticks(&stat)
        .map(|ticks| ticks as f64 / 100.0)
        .with_context(|| format!("{path} has no times"))
}

/// `VmHWM` of `/proc/PID/status`, which counts in KiB.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The sum of utime, stime, cutime and cstime of `/proc/PID/stat`: fields 14 to 17, counted after the name, which may hold
/// anything. On every Linux for people's machines, a tick is a hundredth of a second.
fn processor_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let times: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .take(4)
        .map_while(|field| field.parse().ok())
        .collect();
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_found_after_any_name() {
        let stat = "7 (in.tftpd (x) 1 2) S 1 7 7 0 -1 4194560 130 0 0 0 3 4 10 20 20 0 1 0 100 0 0";
        assert_eq!(processor_ticks(stat), Some(37));
        assert_eq!(processor_ticks("7 (in.tftpd) S 1 7"), None);
    }

    #[test]
    fn the_peak_is_read_from_what_the_kernel_writes() {
        let status = "Name:\tplumbline\nVmPeak:\t  999 kB\nVmHWM:\t    5120 kB\nVmRSS:\t 100 kB\n";
        assert_eq!(peak_bytes(status), Some(5 << 20));
        assert_eq!(peak_bytes("Name:\tkthreadd\n"), None);
    }
}
