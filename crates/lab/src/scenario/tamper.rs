//! Somebody works on a running node over SSH; what they leave is found and repaired.

use super::run::Run;
use super::step;
use crate::ssh::SshTarget;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One thing that is done on the node: the command, and the kind and key of the finding it must lead to.
struct Tampering {
    what: &'static str,
    command: &'static str,
    kind: &'static str,
    key: &'static str,
}

const TAMPERINGS: [Tampering; 9] = [
    Tampering {
        what: "a configuration file is edited",
        command: "echo 'PermitRootLogin yes' >> /etc/ssh/sshd_config",
        kind: "file",
        key: "/etc/ssh/sshd_config",
    },
    Tampering {
        what: "a mode is opened up",
        command: "chmod 0666 /etc/profile",
        kind: "file",
        key: "/etc/profile",
    },
    Tampering {
        what: "a file is added",
        command: "echo 'export PATH=/opt/tool/bin:$PATH' > /etc/profile.d/zz-tool.sh",
        kind: "file",
        key: "/etc/profile.d/zz-tool.sh",
    },
    Tampering {
        what: "a file is removed",
        command: "rm /etc/issue.net",
        kind: "file",
        key: "/etc/issue.net",
    },
    Tampering {
        what: "a link is turned elsewhere",
        command: "ln -sfn /usr/share/zoneinfo/America/New_York /etc/localtime",
        kind: "file",
        key: "/etc/localtime",
    },
    Tampering {
        what: "a sysctl is set by hand",
        command: "echo 0 > /proc/sys/kernel/kptr_restrict",
        kind: "sysctl_running",
        key: "kernel.kptr_restrict",
    },
    Tampering {
        what: "a sysctl is set for the next boot",
        command: "echo 'kernel.dmesg_restrict = 0' > /etc/sysctl.d/99-zz-debug.conf",
        kind: "sysctl_persisted",
        key: "kernel.dmesg_restrict",
    },
    Tampering {
        what: "a unit is disabled",
        command: "systemctl disable --now systemd-timesyncd.service",
        kind: "unit",
        key: "systemd-timesyncd.service",
    },
    Tampering {
        what: "a package is removed",
        command: "dpkg --purge --force-depends sensible-utils",
        kind: "package",
        key: "sensible-utils:all",
    },
];

const COMMAND_LIMIT: Duration = Duration::from_secs(180);
/// Software emulation on two shared cores: only ever reached by a fault.
const DETECT_LIMIT: Duration = Duration::from_secs(900);
const REPAIR_LIMIT: Duration = Duration::from_secs(2_400);

/// What was seen.
pub(super) struct Tampered {
    pub tampered: usize,
    pub detected: usize,
    /// From the end of a command to its finding on the server, the longest, in seconds.
    pub detect_max_secs: f64,
    /// Steps that the node carried out.
    pub remediated: u64,
    /// What a remediation would still have to do, or leaves alone.
    pub findings_left: u64,
}

/// Changes things on the node, waits until each is a finding, and has them repaired.
pub(super) fn tamper_and_repair(run: &mut Run, node: &SshTarget) -> Result<Tampered> {
    let mut done: Vec<Done> = Vec::new();
    for tampering in &TAMPERINGS {
        step(tampering.what);
        let ended = node.run(run.appliance.namespace(), tampering.command, COMMAND_LIMIT)?;
        ensure!(
            ended.status.success(),
            "`{}` on the node: {}",
            tampering.command,
            ended.stderr.trim()
        );
        done.push(Done {
            tampering,
            since: Instant::now(),
            seen_after: None,
        });
        look(&run.drift()?, &mut done);
    }
    wait_until(DETECT_LIMIT, "every change to be a finding", || {
        run.check_alive()?;
        run.show_events()?;
        look(&run.drift()?, &mut done);
        Ok(done.iter().all(|done| done.seen_after.is_some()).then_some(()))
    })?;
    let diff = run
        .appliance
        .cli_text(&["drift", "diff", &group_of(&run.drift()?, &TAMPERINGS[0])?])?;
    ensure!(
        diff.contains("+PermitRootLogin yes"),
        "the diff of a changed text file: {diff}"
    );

    step("remediate");
    let (code, text) = run
        .appliance
        .cli_code(&["remediate", "--apply", "--json"], REPAIR_LIMIT)?;
    let outcome: Value = serde_json::from_str(&text).context("what remediate printed")?;
    run.show_events()?;
    let remediated = steps_done(&outcome["run"]);
    let left = outcome["left"]["findings"].as_u64().context("findings left")?
        + outcome["left"]["held_findings"].as_u64().context("findings held")?;
    ensure!(
        code == if left == 0 { 0 } else { 2 },
        "remediate ended with {code} and {left} findings left: {outcome}"
    );
    ensure!(
        left == 0,
        "{left} findings are left although a verb covers each: {outcome}"
    );
    step(&format!("{remediated} steps carried out, {left} findings left"));
    Ok(Tampered {
        tampered: done.len(),
        detected: done.iter().filter(|done| done.seen_after.is_some()).count(),
        detect_max_secs: done
            .iter()
            .filter_map(|done| done.seen_after)
            .max()
            .unwrap_or_default()
            .as_secs_f64(),
        remediated,
        findings_left: left,
    })
}

/// A change that was made, and when its finding was on the server.
struct Done {
    tampering: &'static Tampering,
    since: Instant,
    seen_after: Option<Duration>,
}

fn look(drift: &Value, done: &mut [Done]) {
    for done in done.iter_mut().filter(|done| done.seen_after.is_none()) {
        if finding(drift, done.tampering).is_some() {
            let after = done.since.elapsed();
            done.seen_after = Some(after);
            step(&format!(
                "found after {:.0} s: {}",
                after.as_secs_f64(),
                done.tampering.what
            ));
        }
    }
}

fn finding<'a>(drift: &'a Value, tampering: &Tampering) -> Option<&'a Value> {
    let mut findings = drift["findings"].as_array().into_iter().flatten();
    findings.find(|finding| finding["kind"] == tampering.kind && finding["key"] == tampering.key)
}

fn group_of(drift: &Value, tampering: &Tampering) -> Result<String> {
    let group = finding(drift, tampering).and_then(|finding| finding["group"].as_str());
    Ok(group.context("the finding's group")?.to_owned())
}

fn steps_done(run: &Value) -> u64 {
    let jobs = run["jobs"].as_array().into_iter().flatten();
    let results = jobs.flat_map(|job| job["outcome"]["steps"].as_array().into_iter().flatten());
    results
        .filter(|result| result["result"] == "done" || result["result"] == "nothing_to_do")
        .count() as u64
}

/// The rest of the JSON line.
pub(super) fn add_to(outcome: &mut Value, tampered: &Tampered) {
    outcome["tampered"] = json!(tampered.tampered);
    outcome["detected"] = json!(tampered.detected);
    outcome["detect_max_s"] = json!((tampered.detect_max_secs * 10.0).round() / 10.0);
    outcome["remediated"] = json!(tampered.remediated);
    outcome["findings_left"] = json!(tampered.findings_left);
}
