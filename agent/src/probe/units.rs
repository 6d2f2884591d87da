//! Unit file states, as `systemctl list-unit-files` reads them from the files.
//!
//! A program that hangs or fails has not looked, and no state is concluded.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use drift::Observation;
use tokio::io::AsyncReadExt;

/// Time allowed to systemctl: it runs at idle priority, on nodes that have other work.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Largest listing, in bytes.
const LISTING_BYTES_MAX: u64 = 8 << 20;

/// States by unit name, from `list-unit-files --plain --no-legend --full`.
#[must_use]
pub fn parse_units(listing: &str) -> BTreeMap<String, String> {
    let unit = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    listing.lines().filter_map(unit).collect()
}

/// Has systemctl read the unit files.
///
/// # Errors
/// Why there is no answer.
pub async fn list_units() -> Result<BTreeMap<String, String>, Observation> {
    // `--root=/` evaluates the files itself, as the image builder did: the manager is not asked, which is busy right
    // after a start and answers a listing only within D-Bus's own 25 s.
    let arguments = [
        "--root=/",
        "list-unit-files",
        "--no-legend",
        "--no-pager",
        "--plain",
        "--full",
    ];
    let listing = output("systemctl", &arguments, TIMEOUT).await?;
    let units = parse_units(&listing);
    if units.is_empty() {
        return Err(error("systemctl listed no units".to_owned()));
    }
    Ok(units)
}

async fn output(program: &str, arguments: &[&str], timeout: Duration) -> Result<String, Observation> {
    let failed = |what: std::io::Error| error(format!("{program}: {what}"));
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let Some(stdout) = child.stdout.take() else {
        return Err(error(format!("{program}: no output")));
    };
    let answer = async {
        let mut bytes = Vec::new();
        stdout
            .take(LISTING_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .await
            .map_err(failed)?;
        if bytes.len() as u64 > LISTING_BYTES_MAX {
            return Err(error(format!(
                "{program}: more than {LISTING_BYTES_MAX} bytes of output"
            )));
        }
        let status = child.wait().await.map_err(failed)?;
        if !status.success() {
            return Err(error(format!("{program}: {status}")));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    tokio::time::timeout(timeout, answer)
        .await
        .unwrap_or(Err(Observation::TimedOut))
}

fn error(detail: String) -> Observation {
    Observation::Error { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_the_second_column() {
        let units = parse_units(
            "ssh.service        enabled  enabled\ngetty@.service enabled enabled\n\nproc-x.mount static -\nboot.mount generated -\n",
        );
        assert_eq!(units["getty@.service"], "enabled");
        assert_eq!(units["proc-x.mount"], "static");
        assert_eq!(units.len(), 4);
    }

    #[tokio::test]
    async fn no_answer_is_an_observation() {
        let short = Duration::from_millis(50);
        assert_eq!(output("sleep", &["100"], short).await, Err(Observation::TimedOut));
        assert!(matches!(
            output("false", &[], TIMEOUT).await,
            Err(Observation::Error { .. })
        ));
        assert!(matches!(
            output("/no/such/program", &[], TIMEOUT).await,
            Err(Observation::Error { .. })
        ));
        assert_eq!(output("echo", &["x"], TIMEOUT).await, Ok("x\n".to_owned()));
    }
}
