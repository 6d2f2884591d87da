//! Long commands: a sign of life while they run, their last words when they fail.

use anyhow::{Context as _, Result, bail};
use std::collections::VecDeque;
use std::env;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a line says that a command still runs.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The same in CI, where nobody watches and the log is kept.
const HEARTBEAT_CI: Duration = Duration::from_secs(60);
/// How many of the last lines a failure shows.
const TAIL_LINES: usize = 60;
/// The longest part of a line kept, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// How many characters of a line a heartbeat shows.
const HEARTBEAT_CHARACTERS: usize = 90;

/// Whether CI runs this (`CI=true`).
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Runs `command`, which does `what`: announces it, shows a heartbeat with its last line, and its time at the end.
///
/// # Errors
/// When it cannot be started or fails; the end of its output has been printed then.
pub fn run_announced(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("• {what}");
    let started = Instant::now();
    let result = run_quietly(what, command);
    if result.is_ok() {
        eprintln!("  done in {:.1} s", started.elapsed().as_secs_f64());
    }
    result
}

/// As [`run_announced`], without a line before and after: nothing is shown unless it takes long or fails.
///
/// # Errors
/// As [`run_announced`].
pub fn run_quietly(what: &str, command: &mut Command) -> Result<()> {
    let started = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}, to {what}"))?;
    let (sender, receiver) = sync_channel(256);
    let stdout = child.stdout.take().map(|stream| spawn_reader(stream, sender.clone()));
    let stderr = child.stderr.take().map(|stream| spawn_reader(stream, sender));
    let tail = follow(&receiver, started);
    for reader in [stdout, stderr].into_iter().flatten() {
        let _ended = reader.join();
    }
    let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
    if !status.success() {
        for line in tail {
            eprintln!("  | {line}");
        }
        bail!(
            "{what}: {program} failed ({status}) after {:.0} s",
            started.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Runs `command` with this program's own outputs: for programs that show their progress themselves.
///
/// # Errors
/// When it cannot be started or fails.
pub fn run_shown(what: &str, command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}, to {what}"))?;
    if !status.success() {
        bail!("{what}: {program} failed ({status})");
    }
    Ok(())
}

/// Runs a short command and returns its standard output.
///
/// # Errors
/// When it cannot be started or fails; the message carries its own words.
pub fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Takes lines until both readers have ended; returns the last of them.
fn follow(lines: &Receiver<String>, started: Instant) -> VecDeque<String> {
    let heartbeat = if in_ci() { HEARTBEAT_CI } else { HEARTBEAT };
    let mut tail: VecDeque<String> = VecDeque::with_capacity(TAIL_LINES);
    let mut next = started + heartbeat;
    loop {
        match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if tail.len() == TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {
                let last = tail.back().map(String::as_str).unwrap_or_default();
                let shown: String = last.chars().take(HEARTBEAT_CHARACTERS).collect();
                eprintln!("  … {} s  {shown}", started.elapsed().as_secs());
                next += heartbeat;
            }
            Err(RecvTimeoutError::Disconnected) => return tail,
        }
    }
}

fn spawn_reader(stream: impl Read + Send + 'static, lines: SyncSender<String>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        loop {
            let mut bytes = Vec::new();
            match stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            // A progress bar rewrites its line: what counts is its last state.
            let text = String::from_utf8_lossy(&bytes);
            let line = text.trim_end().rsplit('\r').next().unwrap_or_default();
            if !line.is_empty() && lines.send(line.to_owned()).is_err() {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failure_names_the_step_the_program_and_the_status() {
        let error = run_quietly("build the moon", &mut shell("echo no cheese >&2; exit 4")).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("build the moon") && text.contains("sh failed (exit status: 4)"),
            "{text}"
        );
    }

    #[test]
    fn only_the_last_lines_of_both_outputs_are_kept() {
        let (sender, receiver) = sync_channel(256);
        let many: String = (0..500).map(|number| format!("line {number}\n")).collect();
        let reader = spawn_reader(std::io::Cursor::new(format!("{many}10 %\r90 %\n").into_bytes()), sender);
        let tail = follow(&receiver, Instant::now());
        reader.join().unwrap();
        assert_eq!(tail.len(), TAIL_LINES);
        assert_eq!(tail.back().map(String::as_str), Some("90 %"));
        assert_eq!(tail.front().map(String::as_str), Some("line 441"));
    }
}
