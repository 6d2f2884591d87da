//! Short commands: run, capture, with a time limit and a bound on what is kept of their output.

use crate::interrupt;
use crate::wait::wait_regardless;
use anyhow::{Context as _, Result, bail};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// What is kept of each output stream, in bytes; the rest is read and dropped.
pub const OUTPUT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What a finished command left.
#[derive(Debug)]
pub struct Captured {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output, at most [`OUTPUT_BYTES_MAX`], invalid UTF-8 replaced.
    pub stdout: String,
    /// Its standard error, under the same bound.
    pub stderr: String,
}

/// Runs `command` with no input and waits for it, at most for `limit`; past that, or when this
/// program is asked to stop, it is killed.
///
/// # Errors
/// When it cannot be started, the limit passes or the program is asked to stop. An exit status other than zero is not an error here.
pub fn run_captured(command: &mut Command, limit: Duration) -> Result<Captured> {
    run(command, limit, &interrupt::requested)
}

fn run(command: &mut Command, limit: Duration, stop: &dyn Fn() -> bool) -> Result<Captured> {
    let line = command_line(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    let stdout = child
        .stdout
        .take()
        .map(|stream| thread::spawn(move || read_bounded(stream)));
    let stderr = child
        .stderr
        .take()
        .map(|stream| thread::spawn(move || read_bounded(stream)));
    let waited = wait_regardless(limit, &format!("`{line}` to end"), || match child.try_wait()? {
        None if stop() => bail!("asked to stop while `{line}` ran"),
        status => Ok(status),
    });
    if waited.is_err() {
        // Both may fail only because the process has just ended by itself, which is what is wanted.
        let _already_ended = child.kill();
        let _reaped = child.wait();
    }
    let status = waited?;
    let text = |reader: Option<thread::JoinHandle<String>>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
    Ok(Captured {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

/// Runs a short command that must succeed, even while the program is being stopped; returns its standard output.
///
/// # Errors
/// When it cannot be started, when the limit passes, and when the exit status is not zero: the message then carries the command's own words.
pub fn run_checked(command: &mut Command, limit: Duration) -> Result<String> {
    let captured = run(command, limit, &|| false)?;
    if !captured.status.success() {
        bail!(
            "`{}` failed ({}): {}",
            command_line(command),
            captured.status,
            captured.stderr.trim()
        );
    }
    Ok(captured.stdout)
}

fn read_bounded(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    // A read error ends the text early; the exit status still tells how the command went.
    let _read = stream.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    let _drained = std::io::copy(&mut stream, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_status_are_kept() {
        let captured = run_captured(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert_eq!(captured.status.code(), Some(3));
        assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_failure_repeats_the_commands_own_words() {
        let error = run_checked(&mut shell("echo no such bridge >&2; exit 1"), Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("no such bridge"), "{error}");
    }

    #[test]
    fn a_command_past_its_limit_is_ended() {
        let started = Instant::now();
        let error = run_captured(Command::new("sleep").arg("60"), Duration::from_millis(200)).unwrap_err();
        assert!(error.to_string().contains("`sleep 60` to end"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
