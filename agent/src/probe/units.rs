//! Unit file states, as `systemctl list-unit-files` reads them from the files.
//!
//! A program that hangs or fails has not looked, and no state is concluded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use drift::Observation;

use crate::deploy::program::{ProgramError, run_bounded};

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

/// Has systemctl read the unit files below `root`. Blocks.
///
/// # Errors
/// Why there is no answer.
pub fn list_units(root: &Path) -> Result<BTreeMap<String, String>, Observation> {
    // `--root` evaluates the files itself, as the image builder did: the manager is not asked, which is busy right
    // after a start and answers a listing only within D-Bus's own 25 s.
    let root = format!("--root={}", root.display());
    let arguments = [
        root.as_str(),
        "list-unit-files",
        "--no-legend",
        "--no-pager",
        "--plain",
        "--full",
    ];
    let listing = output("systemctl", &arguments, TIMEOUT)?;
    let units = parse_units(&listing);
    if units.is_empty() {
        return Err(error("systemctl listed no units".to_owned()));
    }
    Ok(units)
}

fn output(program: &str, arguments: &[&str], timeout: Duration) -> Result<String, Observation> {
    let finished = run_bounded(program, arguments, timeout, LISTING_BYTES_MAX + 1).map_err(|failed| match failed {
        ProgramError::TimedOut { .. } => Observation::TimedOut,
        other => error(crate::deploy::chain(&other)),
    })?;
    if finished.output.len() as u64 > LISTING_BYTES_MAX {
        return Err(error(format!(
            "{program}: more than {LISTING_BYTES_MAX} bytes of output"
        )));
    }
    match finished.code {
        Some(0) => Ok(finished.output),
        Some(code) => Err(error(format!("{program}: exit code {code}"))),
        None => Err(error(format!("{program}: ended by a signal"))),
    }
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

    /// mondoohq/mql PR#8465: a link that leads nowhere enables nothing.
    #[test]
    fn mql_8465_a_dangling_link_is_no_enabled_unit() {
        let base = tempfile::tempdir().unwrap();
        let wants = base.path().join("etc/systemd/system/multi-user.target.wants");
        std::fs::create_dir_all(&wants).unwrap();
        let units = base.path().join("usr/lib/systemd/system");
        std::fs::create_dir_all(&units).unwrap();
        std::fs::write(units.join("there.service"), "[Install]\nWantedBy=multi-user.target\n").unwrap();
        for name in ["there.service", "gone.service"] {
            std::os::unix::fs::symlink(format!("/usr/lib/systemd/system/{name}"), wants.join(name)).unwrap();
        }
        let units = list_units(base.path()).unwrap();
        assert_eq!(units.get("there.service").map(String::as_str), Some("enabled"));
        assert_ne!(units.get("gone.service").map(String::as_str), Some("enabled"));
    }

    #[test]
    fn no_answer_is_an_observation() {
        let short = Duration::from_millis(50);
        assert_eq!(output("sleep", &["100"], short), Err(Observation::TimedOut));
        assert!(matches!(output("false", &[], TIMEOUT), Err(Observation::Error { .. })));
        assert!(matches!(
            output("/no/such/program", &[], TIMEOUT),
            Err(Observation::Error { .. })
        ));
        assert_eq!(output("echo", &["x"], TIMEOUT), Ok("x\n".to_owned()));
    }
}
