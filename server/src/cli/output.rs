//! What goes to standard output.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::text::{self, Context};

/// Narrowest terminal that tables are folded to.
const WIDTH_MIN: u16 = 40;

/// How results are shown.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// As JSON.
    pub json: bool,
}

impl Output {
    /// Shows an answer of the server: as it is, or as a person reads it.
    ///
    /// # Errors
    /// The answer is not what this version understands.
    pub fn show<T: DeserializeOwned>(
        self,
        answer: &Value,
        render: impl FnOnce(&T, &Context) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return self.json(answer);
        }
        let view = T::deserialize(answer)
            .context("the server's answer is not understood: is it of another version? (--json shows it)")?;
        print(&text::lines(&render(&view, &context())))
    }

    /// As [`Output::show`], for a list.
    ///
    /// # Errors
    /// As [`Output::show`].
    pub fn list<T: DeserializeOwned>(
        self,
        answer: &Value,
        render: impl FnOnce(&[T], &Context) -> String,
    ) -> anyhow::Result<()> {
        self.show(answer, |items: &Vec<T>, context| render(items, context))
    }

    /// Shows JSON.
    ///
    /// # Errors
    /// Standard output fails.
    pub fn json(self, answer: &Value) -> anyhow::Result<()> {
        // One line for a program or a log, several for a person.
        let encoded = match std::io::stdout().is_terminal() {
            true => serde_json::to_string_pretty(answer)?,
            false => serde_json::to_string(answer)?,
        };
        print(&(text::json(&encoded) + "\n"))
    }

    /// Says what was done, where there is nothing to show; nothing with `--json`.
    ///
    /// # Errors
    /// Standard output fails.
    pub fn say(self, line: &str) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        print(&(text::cell(line) + "\n"))
    }
}

/// Where and when the reader is.
#[must_use]
pub fn context() -> Context {
    Context {
        now: Timestamp::now(),
        zone: TimeZone::system(),
        width: terminal_width(),
    }
}

fn terminal_width() -> Option<u16> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.max(WIDTH_MIN))
}

/// Prints. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// Standard output fails otherwise.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result.context("writing to standard output")?),
    }
}
