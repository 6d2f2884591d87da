//! One blow at each stage of an ordinary installation, from the first DHCP offer to the first scan: the power of the
//! machine, or the life of the server. In the end the node is installed and clean, and nobody had to help.
//!
//! The stages are those that the boot events tell, since that is what a person would see last before the blow. A machine
//! that lost its power begins again, and each attempt counts in which its deployer had begun to install: a deployment has
//! three, so these blows are spread over two. A server that was away for seconds costs no attempt.

use super::run::{IMAGE, NODE_NAME, Run};
use super::{BootKind, Fault, step};
use crate::environment::LabEnvironment;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// From one blow to the next stage; firmware may have to try all its boot entries first.
const STAGE_LIMIT: Duration = Duration::from_secs(900);

/// What strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// The machine's power is cut, and comes back.
    PowerCycle,
    /// The server is killed (SIGKILL) and started again.
    ServerRestart,
}

/// A stage: the event that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Offered,
    Loader,
    Script,
    Kernel,
    Initramfs,
    Claimed,
    Partition,
    /// When a part of the files is written.
    Write,
    Finish,
    Installed,
    FirstBoot,
    AgentUp,
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::Offered => "dhcp offered",
            Self::Loader => "loader fetched",
            Self::Script => "script fetched",
            Self::Kernel => "kernel fetched",
            Self::Initramfs => "initramfs fetched",
            Self::Claimed => "deployer claimed",
            Self::Partition => "partitioning",
            Self::Write => "writing",
            Self::Finish => "finishing",
            Self::Installed => "installed",
            Self::FirstBoot => "first boot",
            Self::AgentUp => "agent up",
        }
    }

    /// Whether the deployer has begun to install by then, and not ended.
    const fn is_in_attempt(self) -> bool {
        matches!(self, Self::Partition | Self::Write | Self::Finish)
    }

    /// The same, or perhaps: right after its claim it begins.
    const fn may_be_in_attempt(self) -> bool {
        self.is_in_attempt() || matches!(self, Self::Claimed)
    }

    /// Whether it begins with this event.
    fn begins_with(self, kind: &str, detail: &str) -> bool {
        let is_local = detail.contains("boot the local disk");
        match self {
            Self::Offered => kind == "dhcp" && detail.contains("answered with offer"),
            Self::Loader => kind == "tftp" && detail.contains(" complete: "),
            Self::Script => kind == "script" && !is_local,
            Self::Kernel => kind == "kernel",
            Self::Initramfs => kind == "initramfs",
            Self::Claimed => kind == "claimed",
            Self::Partition => kind == "stage" && detail.starts_with("partition"),
            Self::Write => kind == "stage" && detail.starts_with("write"),
            Self::Finish => kind == "stage" && detail.starts_with("finish"),
            Self::Installed => kind == "installed",
            Self::FirstBoot => kind == "script" && is_local,
            Self::AgentUp => kind == "agent_up",
        }
    }
}

impl Blow {
    const fn fault(self) -> Fault {
        match self {
            Self::PowerCycle => Fault::PowerCycleStages,
            Self::ServerRestart => Fault::RestartServerStages,
        }
    }

    /// How many attempts at an installation these blows cost, for those that `counts` says it of.
    fn attempts_lost(self, stages: &[Stage], counts: fn(Stage) -> bool) -> u64 {
        match self {
            Self::PowerCycle => stages.iter().filter(|stage| counts(**stage)).count() as u64,
            Self::ServerRestart => 0,
        }
    }

    /// The stages of each installation, in their order.
    const fn plan(self) -> &'static [&'static [Stage]] {
        use Stage::*;
        match self {
            Self::PowerCycle => &[
                &[
                    Offered, Loader, Script, Kernel, Initramfs, Claimed, Write, Installed, FirstBoot, AgentUp,
                ],
                &[Partition, Finish],
            ],
            Self::ServerRestart => &[&[
                Offered, Loader, Script, Kernel, Initramfs, Claimed, Partition, Write, Finish, Installed, FirstBoot,
                AgentUp,
            ]],
        }
    }
}

/// Plays the ordinary loop with these blows.
pub(super) fn play(environment: &LabEnvironment, kind: BootKind, blow: Blow) -> Result<Value> {
    let mut run = Run::start(environment, "stages", kind)?;
    let started = Instant::now();
    run.list(NODE_NAME)?;
    let (mut struck, mut attempts) = (Vec::new(), Vec::new());
    for (number, stages) in blow.plan().iter().enumerate() {
        let begun_after = newest_event(&run)?;
        let mut mark = begun_after;
        if number == 0 {
            run.appliance.cli(&["node", "deploy", NODE_NAME, "--image", IMAGE])?;
            run.power_on()?;
        } else {
            step("installed again, by its agent");
            run.appliance
                .cli(&["node", "deploy", NODE_NAME, "--image", IMAGE, "--restart"])?;
        }
        for stage in stages.iter().filter(|stage| tells_of(kind, **stage)) {
            mark = strike_at(&mut run, blow, *stage, mark)?;
            struck.push(stage.name());
        }
        let attempt = wait_verified(&mut run)?;
        let lost = lost_since(&run, begun_after)?;
        let sure = blow.attempts_lost(stages, Stage::is_in_attempt);
        let most = blow.attempts_lost(stages, Stage::may_be_in_attempt);
        ensure!(
            attempt == lost + 1 && (sure..=most).contains(&lost),
            "installation {}: verified at attempt {attempt}, {lost} were lost; expected {sure} to {most} of them",
            number + 1
        );
        attempts.push(attempt);
        let drift = run.definite_drift()?;
        ensure!(drift["verdict"] == "clean", "{drift}");
        step(&format!("installed and clean at attempt {attempt}"));
    }
    let outcome = json!({
        "fault": blow.fault(), "ok": true, "firmware": kind, "struck": struck.len(), "stages": struck,
        "deployments": attempts.len(), "attempts": attempts, "state": run.record()?["state"],
        "verdict": run.drift()?["verdict"], "firmware_hangs": run.firmware_hangs,
        "minutes": (started.elapsed().as_secs_f64() / 6.0).round() / 10.0,
    });
    run.stop()?;
    Ok(outcome)
}

/// Loaders by HTTP are counted and in no node's events; a BIOS machine's NIC is its own loader here.
fn tells_of(kind: BootKind, stage: Stage) -> bool {
    stage != Stage::Loader || matches!(kind, BootKind::Uefi | BootKind::SecureBoot)
}

/// Waits for a stage to begin after the event `mark`, and strikes. Returns the event after which the next one counts.
fn strike_at(run: &mut Run, blow: Blow, stage: Stage, mark: i64) -> Result<i64> {
    let begun = wait_until(STAGE_LIMIT, &format!("the stage: {}", stage.name()), || {
        run.check_alive()?;
        let begun = events(run)?.into_iter().find(|event| {
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            id(event) > mark && stage.begins_with(text("kind"), text("detail"))
        });
        if begun.is_none() {
            run.show_events()?;
            let node = run.record()?;
            let state = node["state"].as_str().unwrap_or_default();
            if state == "failed" || state == "quarantined" {
                bail!("the node is {state}: {}", node["state_reason"]);
            }
        }
        Ok(begun)
    })?;
    if stage == Stage::Write {
        run.wait_written(1, 3)?;
    }
    match blow {
        Blow::PowerCycle => {
            run.cut_power()?;
            run.show_events()?;
            step(&format!("power cut: {}", stage.name()));
            // What was under way when the power went is no stage of what comes.
            let newest = newest_event(run)?;
            run.power_on()?;
            Ok(newest)
        }
        Blow::ServerRestart => {
            let away = Instant::now();
            run.appliance.kill_and_restart()?;
            step(&format!(
                "server killed: {}; back after {:.1} s",
                stage.name(),
                away.elapsed().as_secs_f64()
            ));
            Ok(id(&begun))
        }
    }
}

/// Waits for the first full scan of the newest installation; returns how many attempts it took.
fn wait_verified(run: &mut Run) -> Result<u64> {
    run.wait_deployed()?;
    let deployments = run.appliance.cli(&["node", "deployments", NODE_NAME])?;
    let newest = &deployments[0];
    ensure!(newest["state"] == "verified", "the newest deployment: {newest}");
    newest["attempt"].as_u64().context("its attempt")
}

/// How many attempts were lost after this event.
fn lost_since(run: &Run, mark: i64) -> Result<u64> {
    let events = events(run)?;
    let lost = |event: &&Value| id(event) > mark && event["kind"] == "attempt_lost";
    Ok(events.iter().filter(lost).count() as u64)
}

fn events(run: &Run) -> Result<Vec<Value>> {
    let events = run.appliance.cli(&["node", "events", NODE_NAME])?;
    Ok(events.as_array().context("events")?.clone())
}

fn id(event: &Value) -> i64 {
    event["id"].as_i64().unwrap_or(0)
}

fn newest_event(run: &Run) -> Result<i64> {
    Ok(events(run)?.iter().map(id).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the server allows a deployment.
    const ATTEMPTS_MAX: u64 = 3;

    #[test]
    fn each_stage_begins_with_its_own_event() {
        let events = [
            (
                Stage::Offered,
                "dhcp",
                "discover answered with offer, address 10.77.0.100, loader",
            ),
            (
                Stage::Loader,
                "tftp",
                "snponly.efi complete: 284672 bytes in 92 ms to 10.77.0.100",
            ),
            (
                Stage::Script,
                "script",
                "to 10.77.0.100: node1: deploying image 12ab, attempt 1 of 3",
            ),
            (Stage::Kernel, "kernel", "the loader fetches vmlinuz"),
            (Stage::Write, "stage", "write: writing files"),
            (
                Stage::FirstBoot,
                "script",
                "to 10.77.0.100: boot the local disk: nothing to do",
            ),
            (Stage::AgentUp, "agent_up", "boot 1"),
        ];
        for (stage, _, _) in events {
            for (other, kind, detail) in events {
                assert_eq!(stage.begins_with(kind, detail), stage == other, "{stage:?}: {detail}");
            }
        }
    }

    /// More blows between an installation's begin and end than a deployment has attempts would end in a failed node.
    #[test]
    fn no_installation_is_struck_more_often_than_it_may_try() {
        for blow in [Blow::PowerCycle, Blow::ServerRestart] {
            for stages in blow.plan() {
                let most = blow.attempts_lost(stages, Stage::may_be_in_attempt);
                assert!(most < ATTEMPTS_MAX, "{stages:?}");
            }
        }
    }
}
