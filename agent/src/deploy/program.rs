//! Running tools of the ramdisk and of a node: no shell, bounded output, bounded time.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Output kept of each stream, in bytes.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(10);

/// A program that did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It did not start.
    #[error("{program} does not start")]
    Start {
        /// Its name.
        program: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// It was ended because it took too long.
    #[error("{command} was stopped after {limit_secs} s")]
    TimedOut {
        /// Name and arguments.
        command: String,
        /// Its limit.
        limit_secs: u64,
    },
    /// It said no.
    #[error("{command}: {status}: {output}")]
    Failed {
        /// Name and arguments.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote.
        output: String,
    },
}

/// How a program ended that ran to its end.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output, as far as it is kept.
    pub output: String,
    /// Standard error, as far as it is kept.
    pub errors: String,
}

/// Runs a program to its end, whatever its exit code. Blocks.
///
/// # Errors
/// [`ProgramError::Start`] or [`ProgramError::TimedOut`].
pub fn run(program: &str, arguments: &[&str], limit: Duration) -> Result<Finished, ProgramError> {
    run_bounded(program, arguments, limit, OUTPUT_BYTES_MAX)
}

/// As [`run`], keeping up to `output_bytes_max` bytes of each stream.
///
/// # Errors
/// As [`run`].
pub fn run_bounded(
    program: &str,
    arguments: &[&str],
    limit: Duration,
    output_bytes_max: u64,
) -> Result<Finished, ProgramError> {
    let failed = |source| ProgramError::Start {
        program: program.to_owned(),
        source,
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        // Package scripts must never wait for an answer.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().map(|stream| collect(stream, output_bytes_max));
    let errors = child.stderr.take().map(|stream| collect(stream, output_bytes_max));
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(POLL),
            None => {
                // The collecting threads end when the last holder of the pipes does; they are not waited for.
                let _ = child.kill();
                let _ = child.wait();
                return Err(ProgramError::TimedOut {
                    command: command(program, arguments),
                    limit_secs: limit.as_secs(),
                });
            }
        }
    };
    Ok(Finished {
        code: status.code(),
        output: output.and_then(|thread| thread.join().ok()).unwrap_or_default(),
        errors: errors.and_then(|thread| thread.join().ok()).unwrap_or_default(),
    })
}

/// Runs a program that must succeed, and gives its standard output. Blocks.
///
/// # Errors
/// [`ProgramError`], with the end of what the program wrote.
pub fn run_ok(program: &str, arguments: &[&str], limit: Duration) -> Result<String, ProgramError> {
    let finished = run(program, arguments, limit)?;
    if finished.code == Some(0) {
        return Ok(finished.output);
    }
    let said = format!("{} {}", finished.output.trim(), finished.errors.trim());
    let tail: Vec<char> = said.trim().chars().rev().take(500).collect();
    Err(ProgramError::Failed {
        command: command(program, arguments),
        status: finished
            .code
            .map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}")),
        output: tail.into_iter().rev().collect(),
    })
}

fn command(program: &str, arguments: &[&str]) -> String {
    format!("{program} {}", arguments.join(" ")).trim_end().to_owned()
}

fn collect(mut stream: impl Read + Send + 'static, bytes_max: u64) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let _ = stream.by_ref().take(bytes_max).read_to_end(&mut kept);
        // The rest is read and dropped, so that the program never stops at a full pipe.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_the_program_said() {
        let error = run_ok("sh", &["-c", "echo disk is busy >&2; exit 3"], Duration::from_secs(20)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit code 3") && text.contains("disk is busy"), "{text}");
        assert!(run_ok("plumbline-no-such-program", &[], Duration::from_secs(1)).is_err());
    }

    #[test]
    fn a_program_that_never_ends_is_stopped() {
        let error = run("sleep", &["600"], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ProgramError::TimedOut { .. }), "{error}");
    }

    #[test]
    fn output_without_end_is_bounded_and_does_not_block_the_program() {
        let finished = run("sh", &["-c", "head -c 1000000 /dev/zero"], Duration::from_secs(20)).unwrap();
        assert_eq!((finished.code, finished.output.len()), (Some(0), 64 << 10));
    }
}
