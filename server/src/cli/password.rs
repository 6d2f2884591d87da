//! Asking for a password without showing it.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Most bytes read from standard input.
const INPUT_BYTES_MAX: u64 = 4_096;

/// The password to sign in with: `PLUMBLINE_PASSWORD`, what is typed, or the first line of standard input.
///
/// # Errors
/// There is none.
pub fn password_ask(prompt: &str) -> anyhow::Result<String> {
    if let Ok(password) = std::env::var("PLUMBLINE_PASSWORD") {
        return Ok(password);
    }
    read(prompt)
}

/// A new password: typed twice, or the first line of standard input. `PLUMBLINE_PASSWORD` is whoever signs in's.
///
/// # Errors
/// There is none, or it was not typed the same twice.
pub fn password_new(name: &str) -> anyhow::Result<String> {
    let password = read(&format!("New password for {name}: "))?;
    if std::io::stdin().is_terminal() && read("Again: ")? != password {
        bail!("that was not the same twice: nothing was changed");
    }
    Ok(password)
}

/// Whether the person says yes.
///
/// # Errors
/// There is nobody to ask.
pub fn confirm(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("{question} There is no terminal to ask on: --yes says so");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    Ok(matches!(line()?.trim(), "y" | "Y" | "yes"))
}

fn read(prompt: &str) -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let password = line()?;
        if password.is_empty() {
            bail!("expected a password on the first line of standard input");
        }
        return Ok(password);
    }
    eprint!("{prompt}");
    std::io::stderr().flush()?;
    let silence = Silence::begin()?;
    let password = line();
    drop(silence);
    eprintln!();
    password
}

fn line() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(INPUT_BYTES_MAX)
        .read_line(&mut text)
        .context("reading standard input")?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// While it lives, the terminal shows nothing of what is typed.
struct Silence(Termios);

impl Silence {
    fn begin() -> anyhow::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).context("asking the terminal")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &silent).context("silencing the terminal")?;
        let restored = before.clone();
        // Ctrl-C must not leave the terminal silent. From here on it ends the program this way.
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &restored);
                eprintln!();
                std::process::exit(130);
            }
        });
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // There is no other way to tell than the terminal that just failed.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
