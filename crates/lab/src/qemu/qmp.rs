//! The QEMU Machine Protocol: JSON objects, one a line, over a unix socket.
//!
//! One connection a command: QEMU serves one client at a time, and a connection that stays open would lock out a person
//! who wants to look.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest line taken; answers to the commands used here are far below.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// How many events may come between a command and its answer.
const EVENTS_MAX: usize = 1000;

/// A connection past the greeting, ready for commands.
#[derive(Debug)]
pub struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects to the socket at `path` and leaves negotiation mode. `limit` bounds each read and write from then on.
    ///
    /// # Errors
    /// When nothing listens there, or what listens does not speak QMP.
    pub fn connect(path: &Path, limit: Duration) -> Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| format!("no QEMU at {}", path.display()))?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        let greeting = qmp.read()?;
        if greeting.get("QMP").is_none() {
            bail!("expected QEMU's greeting, got {greeting}");
        }
        qmp.execute("qmp_capabilities", None)?;
        Ok(qmp)
    }

    /// Runs one command and returns its `return` value; events that come in between are skipped.
    ///
    /// # Errors
    /// When QEMU refuses the command (its own description is in the message), closes, or passes the time limit.
    pub fn execute(&mut self, command: &str, arguments: Option<Value>) -> Result<Value> {
        let mut request = json!({ "execute": command });
        if let Some(arguments) = arguments {
            request["arguments"] = arguments;
        }
        let line = format!("{request}\n");
        self.stream
            .get_mut()
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot send {command}"))?;
        for _ in 0..EVENTS_MAX {
            let mut answer = self.read().with_context(|| format!("no answer to {command}"))?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let description = error.get("desc").and_then(Value::as_str).unwrap_or("no description");
                bail!("QEMU refused {command}: {description}");
            }
        }
        bail!("{EVENTS_MAX} events and no answer to {command}")
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        self.stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        match line.last() {
            Some(b'\n') => serde_json::from_slice(&line).context("QEMU sent a line that is not JSON"),
            Some(_) if line.len() as u64 == LINE_BYTES_MAX => bail!("QEMU sent a line of more than 1 MiB"),
            _ => bail!("QEMU closed the connection"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    const GREETING: &str = r#"{"QMP":{"version":{"qemu":{"micro":22,"minor":2,"major":7}},"capabilities":["oob"]}}"#;

    /// Serves one connection: sends the greeting, then for each line received the given answer lines; returns what
    /// was received.
    fn fake(folder: &Path, greeting: &'static str, answers: &'static [&'static str]) -> JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(folder.join("qmp")).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            writeln!(stream, "{greeting}").unwrap();
            let mut received = Vec::new();
            for answer in answers {
                let Some(Ok(line)) = lines.next() else { break };
                received.push(line);
                writeln!(stream, "{answer}").unwrap();
            }
            received
        })
    }

    fn connect(folder: &Path) -> Result<Qmp> {
        Qmp::connect(&folder.join("qmp"), Duration::from_secs(5))
    }

    #[test]
    fn events_between_command_and_answer_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let server = fake(
            folder.path(),
            GREETING,
            &[
                r#"{"return":{}}"#,
                "{\"event\":\"RESET\"}\n{\"event\":\"RESUME\"}\n{\"return\":{\"status\":\"running\"}}",
            ],
        );
        let mut qmp = connect(folder.path()).unwrap();
        assert_eq!(
            qmp.execute("query-status", None).unwrap(),
            json!({ "status": "running" })
        );
        let received = server.join().unwrap();
        assert_eq!(
            received,
            [r#"{"execute":"qmp_capabilities"}"#, r#"{"execute":"query-status"}"#]
        );
    }

    #[test]
    fn a_refusal_carries_qemus_description() {
        let folder = tempfile::tempdir().unwrap();
        let _server = fake(
            folder.path(),
            GREETING,
            &[
                r#"{"return":{}}"#,
                r#"{"error":{"class":"GenericError","desc":"Device 'n9' not found"}}"#,
            ],
        );
        let mut qmp = connect(folder.path()).unwrap();
        let error = qmp
            .execute("set_link", Some(json!({ "name": "n9", "up": false })))
            .unwrap_err();
        assert_eq!(error.to_string(), "QEMU refused set_link: Device 'n9' not found");
    }

    #[test]
    fn a_stranger_a_silent_end_and_rubbish_are_errors() {
        for (greeting, answers, words) in [
            (r#"{"hello":1}"#, &[][..], "expected QEMU's greeting"),
            (GREETING, &[][..], "qmp_capabilities"),
            (GREETING, &["not json"][..], "qmp_capabilities"),
            ("[", &[][..], "not JSON"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let _server = fake(folder.path(), greeting, answers);
            let error = connect(folder.path()).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }
}
