//! systemctl, on a running node and on a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drift::Observation;

use super::UnitManager;
use crate::deploy::program::run_ok;
use crate::probe;

/// Time allowed to one call.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Unit files by systemctl. On a folder only links are made and taken away; on the machine the manager is told, and
/// units are started and stopped.
#[derive(Clone, Debug)]
pub struct Systemctl {
    root: PathBuf,
    is_running: bool,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    DaemonReload,
    Unmask,
    UnmaskRuntime,
    Enable,
    Disable,
    DisableRuntime,
    Mask,
    Start,
    Stop,
}

impl Call {
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::DaemonReload => &["daemon-reload"],
            Self::Unmask => &["unmask"],
            Self::UnmaskRuntime => &["unmask", "--runtime"],
            Self::Enable => &["enable"],
            Self::Disable => &["disable"],
            Self::DisableRuntime => &["disable", "--runtime"],
            Self::Mask => &["mask"],
            Self::Start => &["start"],
            Self::Stop => &["stop"],
        }
    }

    /// Asks the manager and touches no file.
    const fn is_for_manager(self) -> bool {
        matches!(self, Self::DaemonReload | Self::Start | Self::Stop)
    }
}

impl Systemctl {
    /// Of the machine.
    #[must_use]
    pub fn of_machine() -> Self {
        Self {
            root: "/".into(),
            is_running: true,
        }
    }

    /// Of a folder in which no systemd runs.
    #[must_use]
    pub fn of_folder(base: &Path) -> Self {
        Self {
            root: base.to_owned(),
            is_running: false,
        }
    }

    fn call(&self, call: Call, unit: &str) -> Result<(), String> {
        let root = format!("--root={}", self.root.display());
        let mut arguments = vec!["--no-ask-password", "--quiet"];
        if !self.is_running {
            arguments.push(&root);
        }
        arguments.extend(call.words());
        if call != Call::DaemonReload {
            arguments.extend(["--", unit]);
        }
        run_ok("systemctl", &arguments, TIMEOUT)
            .map(drop)
            .map_err(|error| crate::deploy::chain(&error))
    }
}

impl UnitManager for Systemctl {
    fn list(&self) -> Result<BTreeMap<String, String>, Observation> {
        probe::list_units(&self.root)
    }

    fn set_state(&self, unit: &str, from: Option<&str>, to: &str) -> Result<String, String> {
        let calls = calls(unit, from, to)?;
        let mut done = Vec::new();
        for call in calls
            .into_iter()
            .filter(|call| self.is_running || !call.is_for_manager())
        {
            let words = call.words().join(" ");
            self.call(call, unit)
                .map_err(|error| format!("{words}: {error}; done before it: {}", done.join(", ")))?;
            done.push(words);
        }
        Ok(done.join(", "))
    }
}

/// The calls that lead from one unit file state to another.
fn calls(unit: &str, from: Option<&str>, to: &str) -> Result<Vec<Call>, String> {
    let from = from.ok_or("there is no such unit file")?;
    let mut calls = vec![Call::DaemonReload];
    match from {
        "masked" => calls.push(Call::Unmask),
        "masked-runtime" => calls.push(Call::UnmaskRuntime),
        "enabled-runtime" => calls.push(Call::DisableRuntime),
        _ => {}
    }
    // A template has no life of its own; its instances have.
    let is_template = unit.contains("@.");
    let and = |call, calls: &mut Vec<Call>| {
        if !is_template {
            calls.push(call);
        }
    };
    match to {
        "enabled" => {
            calls.push(Call::Enable);
            and(Call::Start, &mut calls);
        }
        "disabled" | "indirect" => {
            calls.push(Call::Disable);
            and(Call::Stop, &mut calls);
        }
        "masked" => {
            // Links that enable it would stay behind the mask, and the image has none.
            if from == "enabled" {
                calls.push(Call::Disable);
            }
            calls.push(Call::Mask);
            and(Call::Stop, &mut calls);
        }
        "static" | "alias" | "generated" | "linked" if calls.len() > 1 => {}
        _ => {
            return Err(format!(
                "no call leads from {from} to {to}: it follows from the unit's files"
            ));
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_a_state_is_done_as_well() {
        use Call::{DaemonReload, Disable, Enable, Mask, Start, Stop, Unmask, UnmaskRuntime};
        let cases: [(&str, Option<&str>, &str, &[Call]); 7] = [
            (
                "a.service",
                Some("masked"),
                "enabled",
                &[DaemonReload, Unmask, Enable, Start],
            ),
            ("a.service", Some("disabled"), "enabled", &[DaemonReload, Enable, Start]),
            ("a@.service", Some("disabled"), "enabled", &[DaemonReload, Enable]),
            ("a.service", Some("enabled"), "disabled", &[DaemonReload, Disable, Stop]),
            (
                "a.timer",
                Some("enabled"),
                "masked",
                &[DaemonReload, Disable, Mask, Stop],
            ),
            ("a.service", Some("masked"), "static", &[DaemonReload, Unmask]),
            (
                "a.service",
                Some("masked-runtime"),
                "alias",
                &[DaemonReload, UnmaskRuntime],
            ),
        ];
        for (unit, from, to, expected) in cases {
            assert_eq!(calls(unit, from, to).as_deref(), Ok(expected), "{unit} {from:?} {to}");
        }
        assert!(calls("a.service", None, "enabled").is_err());
        assert!(calls("a.service", Some("enabled"), "static").is_err());
    }

    #[test]
    fn a_folder_gets_links_and_nobody_is_started() {
        let base = tempfile::tempdir().unwrap();
        let units = base.path().join("usr/lib/systemd/system");
        std::fs::create_dir_all(&units).unwrap();
        std::fs::create_dir_all(base.path().join("etc/systemd/system")).unwrap();
        let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
        std::fs::write(units.join("plumb-test.service"), unit).unwrap();
        let systemctl = Systemctl::of_folder(base.path());
        let state = || systemctl.list().unwrap()["plumb-test.service"].clone();
        assert_eq!(state(), "disabled");
        for (from, to) in [
            ("disabled", "enabled"),
            ("enabled", "masked"),
            ("masked", "enabled"),
            ("enabled", "disabled"),
        ] {
            let done = systemctl.set_state("plumb-test.service", Some(from), to).unwrap();
            assert!(!done.contains("start") && !done.contains("reload"), "{done}");
            assert_eq!(state(), to, "{done}");
        }
    }
}
