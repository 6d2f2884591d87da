//! Running the programs a build needs, with signs of life while they run.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::BuildError;
use super::progress::Reporter;

/// Last lines kept for the error message.
const TAIL_LINES: usize = 30;
/// Bytes of a line that are kept.
const LINE_BYTES_MAX: u64 = 4096;
/// Characters of a line that are said as progress.
const LINE_CHARS_SAID: usize = 120;
/// A program that says nothing is spoken for this often.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Refuses to begin when one of these programs is missing.
pub(super) fn require(programs: &[(&'static str, &'static str)]) -> Result<(), BuildError> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for &(program, package) in programs {
        let mut found = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]);
        if !found.any(|folder| folder.join(program).is_file()) {
            return Err(BuildError::ProgramMissing { program, package });
        }
    }
    Ok(())
}

/// A command with a plain environment: the operator's locale and settings change no image.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", "/root")
        .env("DEBIAN_FRONTEND", "noninteractive");
    for name in ["http_proxy", "https_proxy", "no_proxy"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// A command that runs a program of the tree inside the tree.
///
/// In mount and process namespaces of its own: when it ends, `/proc` and `/dev` are gone from the tree and nothing it
/// started lives on, however it ended.
pub(super) fn command_in(root: &Path, program: &str, epoch: i64) -> Command {
    command_within(&[], root, program, epoch)
}

/// As [`command_in`], without any network.
pub(super) fn command_isolated(root: &Path, program: &str, epoch: i64) -> Command {
    command_within(&["--net"], root, program, epoch)
}

fn command_within(namespaces: &[&str], root: &Path, program: &str, epoch: i64) -> Command {
    // The tree comes as $0, so that no path is ever part of the script.
    let script = "mount -t proc proc \"$0/proc\" && mount --bind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"";
    let mut command = command("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"])
        .args(namespaces)
        .args(["sh", "-c", script])
        .arg(root)
        .arg(program)
        .env("SOURCE_DATE_EPOCH", epoch.to_string());
    command
}

/// Runs a command to its end and gives its standard output; both outputs are in the error when it fails.
pub(super) fn output(what: &str, mut command: Command) -> Result<Vec<u8>, BuildError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(BuildError::io(format!("starting {what}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = [output.stdout, output.stderr].concat();
    let lines: Vec<_> = String::from_utf8_lossy(&said).lines().map(str::to_owned).collect();
    let tail = lines[lines.len().saturating_sub(TAIL_LINES)..]
        .iter()
        .cloned()
        .collect();
    Err(failed(what, output.status, &tail))
}

/// Runs a command whose lines on standard error become progress, and ends it and all it started when the build is
/// stopped.
pub(super) fn run(
    what: &str,
    stage: &'static str,
    mut command: Command,
    reporter: &Reporter,
) -> Result<(), BuildError> {
    // Both outputs share one pipe, so that the tail shows them in the order they came.
    let (reader, writer) = std::io::pipe().map_err(BuildError::io(format!("starting {what}")))?;
    let second = writer.try_clone().map_err(BuildError::io(format!("starting {what}")))?;
    command
        .stdin(Stdio::null())
        .stdout(second)
        .stderr(writer)
        .process_group(0);
    let child = command.spawn().map_err(BuildError::io(format!("starting {what}")))?;
    // The command holds the writing ends; without this the reader never sees the end.
    drop(command);
    let mut child = Group(child);

    let (sender, lines) = mpsc::sync_channel(256);
    let thread = std::thread::spawn(move || read_lines(reader, &sender));
    let started = Instant::now();
    let mut said_at = started;
    let mut tail = VecDeque::with_capacity(TAIL_LINES);
    loop {
        match lines.recv_timeout(HEARTBEAT) {
            Ok(line) => {
                // A package tool says hundreds of lines a second; people need a few.
                if said_at.elapsed() > Duration::from_millis(200) {
                    said_at = Instant::now();
                    reporter.say(stage, shortened(&line))?;
                }
                if tail.len() == TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {
                let last = tail.back().map_or("", String::as_str);
                let line = format!("{} ({} s)", shortened(last), started.elapsed().as_secs());
                reporter.say(stage, line)?;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // The reader is done: it saw the end of the pipe.
    let _ = thread.join();
    let status = child.0.wait().map_err(BuildError::io(format!("waiting for {what}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(what, status, &tail))
    }
}

/// The start of a line, for a screen.
fn shortened(line: &str) -> String {
    line.chars().take(LINE_CHARS_SAID).collect()
}

fn failed(what: &str, status: ExitStatus, tail: &VecDeque<String>) -> BuildError {
    BuildError::Program {
        program: what.to_owned(),
        status: status.to_string(),
        output: tail.iter().map(String::as_str).collect::<Vec<_>>().join("\n"),
    }
}

fn read_lines(reader: impl Read, sender: &mpsc::SyncSender<String>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // Progress bars rewrite one line with carriage returns: the last state counts.
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end().rsplit('\r').next().unwrap_or_default();
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        if !text.is_empty() && sender.send(text).is_err() {
            return;
        }
    }
}

/// A child and its process group, ended when dropped before it was waited for.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            if let Some(group) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_last_words() {
        let (reporter, _lines) = Reporter::channel();
        let error = run("the tool", "x", shell("seq 100; echo no space >&2; exit 3"), &reporter).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the tool failed (exit status: 3)"), "{text}");
        assert!(text.ends_with("99\n100\nno space"), "{text}");
        assert!(!text.contains("\n1\n"), "only the tail: {text}");
    }

    #[test]
    fn a_silent_program_is_spoken_for() {
        let (reporter, mut lines) = Reporter::channel();
        run("the tool", "x", shell("echo busy; sleep 3.5"), &reporter).unwrap();
        drop(reporter);
        let said: Vec<_> = std::iter::from_fn(|| lines.blocking_recv())
            .map(|line| line.detail)
            .collect();
        assert!(said.iter().any(|line| line.starts_with("busy (")), "{said:?}");
    }

    #[test]
    fn a_build_that_nobody_listens_to_ends_its_programs() {
        let (reporter, lines) = Reporter::channel();
        drop(lines);
        let started = Instant::now();
        let error = run("the tool", "x", shell("sleep 1; echo more; sleep 600"), &reporter).unwrap_err();
        assert!(matches!(error, BuildError::Stopped));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
