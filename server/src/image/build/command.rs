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
use super::progress::{Count, Reporter};

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

/// Says from a line how far a program is; none: the line says nothing of it.
pub(super) type Counter<'a> = &'a mut dyn FnMut(&str) -> Option<Count>;

/// What is watched while a program runs.
#[derive(Default)]
pub(super) struct Watch<'a> {
    /// How long it may take, and what sets that.
    pub limit: Option<(Duration, &'static str)>,
    /// How far it is.
    pub count: Option<Counter<'a>>,
}

/// Runs a command whose lines become progress, and ends it and all it started when the build is stopped.
pub(super) fn run(what: &str, stage: &'static str, command: Command, reporter: &Reporter) -> Result<(), BuildError> {
    run_watched(what, stage, command, reporter, Watch::default())
}

/// As [`run`]; what takes longer than it may is ended as well.
pub(super) fn run_watched(
    what: &str,
    stage: &'static str,
    mut command: Command,
    reporter: &Reporter,
    mut watch: Watch<'_>,
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
        let left = watch.limit.map(|(limit, _)| limit.saturating_sub(started.elapsed()));
        if let (Some(Duration::ZERO), Some((limit, setting))) = (left, watch.limit) {
            drop(child);
            return Err(BuildError::TimedOut {
                program: what.to_owned(),
                secs: limit.as_secs(),
                setting,
                output: tail_text(&tail),
            });
        }
        match lines.recv_timeout(left.map_or(HEARTBEAT, |left| left.min(HEARTBEAT))) {
            Ok(line) => {
                if let Some(count) = watch.count.as_mut().and_then(|count| count(&line)) {
                    reporter.count(stage, count)?;
                }
                // A package tool says hundreds of lines a second; people need a few.
                if said_at.elapsed() > Duration::from_millis(200) {
                    said_at = Instant::now();
                    reporter.show(stage, shortened(&line))?;
                }
                reporter.output(stage, line.as_str())?;
                if tail.len() == TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {
                let last = tail.back().map_or("", String::as_str);
                let line = format!("{} ({} s)", shortened(last), started.elapsed().as_secs());
                reporter.show(stage, line)?;
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
        output: tail_text(tail),
    }
}

fn tail_text(tail: &VecDeque<String>) -> String {
    tail.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
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
    use super::super::progress::Said;
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
        let said: Vec<_> = std::iter::from_fn(|| lines.blocking_recv()).collect();
        let is_spoken_for = |said: &Said| matches!(said, Said::Report { detail, .. } if detail.starts_with("busy ("));
        assert!(said.iter().any(is_spoken_for), "{said:?}");
        let kept = said.iter().filter(|said| matches!(said, Said::Output { .. })).count();
        assert_eq!(kept, 1, "a log has what the program said, once: {said:?}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_all_it_started() {
        let (reporter, _lines) = Reporter::channel();
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Whoever the script starts holds the pipe open: its end says that nobody lives.
        let script = format!("exec 3>{}; sleep 600 & echo begun; wait", pipe.display());
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(std::fs::read(pipe).unwrap()));
        let watch = Watch {
            limit: Some((Duration::from_millis(500), "hook_secs_max")),
            count: None,
        };
        let error = run_watched("the hook", "x", shell(&script), &reporter, watch).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("the hook took longer than") && text.contains("(hook_secs_max)") && text.ends_with("begun"),
            "{text}"
        );
        assert_eq!(ended.recv_timeout(Duration::from_secs(30)), Ok(Vec::new()));
    }

    #[test]
    fn lines_are_counted_as_they_come() {
        let (reporter, mut lines) = Reporter::channel();
        let mut done = 0;
        let mut count = |line: &str| {
            line.starts_with("did").then(|| {
                done += 1;
                Count {
                    done,
                    total: Some(2),
                    unit: "things",
                }
            })
        };
        let watch = Watch {
            limit: None,
            count: Some(&mut count),
        };
        run_watched(
            "the tool",
            "x",
            shell("echo did a; echo hm; echo did b"),
            &reporter,
            watch,
        )
        .unwrap();
        drop(reporter);
        let counts: Vec<u64> = std::iter::from_fn(|| lines.blocking_recv())
            .filter_map(|said| match said {
                Said::Count { count, .. } => Some(count.done),
                _ => None,
            })
            .collect();
        assert_eq!(counts, [1, 2]);
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
