//! A supervised child process: its output in a file, its end never forgotten.
//!
//! Children get a process group of their own, so that Ctrl-C in a terminal reaches only the runner, which then ends
//! them in order.

use crate::wait::{wait_regardless, wait_until};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// How much of a log is looked at, in bytes, counted from its end.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How many of the last lines of a log an error carries.
const LOG_TAIL_LINES: usize = 15;
/// How long `Drop` lets a process end by itself after SIGTERM.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// A running (or ended) child process. Dropping it ends the process.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    child: Child,
    log_path: PathBuf,
}

impl Supervised {
    /// Starts `command` with no input and both outputs appended to the file at `log_path`.
    ///
    /// `name` is what errors and logs call it.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be started.
    pub fn spawn(name: &str, mut command: Command, log_path: &Path) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(log_path)
            .with_context(|| format!("cannot open the log {}", log_path.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.get_program().display()))?;
        tracing::debug!(process.name = name, process.id = child.id(), "started");
        Ok(Self {
            name: name.to_owned(),
            child,
            log_path: log_path.to_owned(),
        })
    }

    /// The process id; meaningful while [`Self::exit_status`] is `None`.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the process ended, or `None` while it runs.
    ///
    /// # Errors
    /// When the operating system cannot say.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("cannot look after {}", self.name))
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// As [`Self::exit_status`].
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.exit_status()?.is_none())
    }

    /// What the process has written so far, at most the last 8 MiB, invalid UTF-8 replaced.
    pub fn log_text(&self) -> String {
        text_of(&self.log_path, 0)
    }

    /// Waits until a line of the log contains `pattern` and returns that line.
    ///
    /// # Errors
    /// When the limit passes or the process ends first; the message then carries the end of its log.
    pub fn wait_line(&mut self, pattern: &str, limit: Duration) -> Result<String> {
        let what = format!("`{pattern}` from {}", self.name);
        let waited = wait_until(limit, &what, || {
            // Looked at before the log: what was written just before the end must still be found.
            let ended = self.exit_status()?;
            let log = self.log_text();
            match (log.lines().find(|line| line.contains(pattern)), ended) {
                (Some(line), _) => Ok(Some(line.to_owned())),
                (None, Some(status)) => bail!("{} ended ({status}) before it said `{pattern}`", self.name),
                (None, None) => Ok(None),
            }
        });
        waited.with_context(|| format!("the log {} ends:\n{}", self.log_path.display(), self.log_tail()))
    }

    /// Waits for the process to end by itself.
    ///
    /// # Errors
    /// When the limit passes.
    pub fn wait_end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        wait_until(limit, &what, || self.exit_status())
    }

    /// Asks the process to end (SIGTERM), and kills it when it still runs after `limit`. Safe to repeat.
    ///
    /// # Errors
    /// When a signal cannot be sent to a process that runs.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.exit_status()? {
            return Ok(status);
        }
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a child has a process id")?;
        kill_process(pid, Signal::TERM).with_context(|| format!("cannot end {}", self.name))?;
        if let Ok(status) = wait_regardless(limit, "the end", || self.exit_status()) {
            return Ok(status);
        }
        tracing::warn!(
            process.name = self.name,
            limit_ms = limit.as_millis(),
            "did not end when asked; killing it"
        );
        self.kill()
    }

    /// Kills the process (SIGKILL) and waits for its end. Safe to repeat.
    ///
    /// # Errors
    /// When a signal cannot be sent to a process that runs.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child
            .kill()
            .with_context(|| format!("cannot kill {}", self.name))?;
        self.child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Resident memory in MiB, or `None` when the process has ended.
    pub fn rss_mib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        rss_mib_of_status(&status)
    }

    fn log_tail(&self) -> String {
        let log = self.log_text();
        let lines: Vec<&str> = log.lines().collect();
        let first = lines.len().saturating_sub(LOG_TAIL_LINES);
        lines.get(first..).unwrap_or_default().join("\n")
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Err(error) = self.terminate(DROP_LIMIT) {
            tracing::warn!(process.name = self.name, error = %format!("{error:#}"), "may have been left behind");
        }
    }
}

/// The text of the file at `path` from `offset_bytes` on, at most its last 8 MiB; empty when it cannot be read, which
/// is how a log looks before its first line.
pub(crate) fn text_of(path: &Path, offset_bytes: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let start = offset_bytes.max(file.metadata()?.len().saturating_sub(LOG_BYTES_MAX));
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// `VmRSS` of a `/proc/PID/status` text, in MiB rounded down.
fn rss_mib_of_status(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn spawn_shell(script: &str, folder: &Path) -> Supervised {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Supervised::spawn("script", command, &folder.join("log")).unwrap()
    }

    #[test]
    fn a_line_is_found_while_the_process_runs_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = spawn_shell("echo one; echo listening on 8080 >&2; exec sleep 60", folder.path());
        assert_eq!(
            process.wait_line("listening", Duration::from_secs(10)).unwrap(),
            "listening on 8080"
        );
        assert!(process.is_running().unwrap());
        process.terminate(Duration::from_secs(10)).unwrap();
        assert!(!process.is_running().unwrap());
    }

    #[test]
    fn an_early_end_is_told_with_the_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = spawn_shell("echo port is taken; exit 7", folder.path());
        let error = process.wait_line("listening", Duration::from_secs(30)).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("port is taken") && text.contains("exit status: 7"),
            "{text}"
        );
    }

    #[test]
    fn a_process_deaf_to_sigterm_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = spawn_shell("trap '' TERM; echo deaf; while :; do sleep 0.1; done", folder.path());
        process.wait_line("deaf", Duration::from_secs(10)).unwrap();
        let started = Instant::now();
        let status = process.terminate(Duration::from_millis(300)).unwrap();
        assert!(!status.success());
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn dropping_ends_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let process = spawn_shell("exec sleep 60", folder.path());
        let proc_path = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(proc_path.exists());
        drop(process);
        assert!(!proc_path.exists());
    }

    #[test]
    fn resident_memory_is_read_from_the_status_text() {
        assert_eq!(
            rss_mib_of_status("Name:\tqemu\nVmRSS:\t  524288 kB\nThreads:\t4\n"),
            Some(512)
        );
        assert_eq!(rss_mib_of_status("Name:\tzombie\n"), None);
    }
}
