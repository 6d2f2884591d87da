//! `cargo xtask bench deploy`: writing an image on a node's own disk beside `zstd -d | tar -x`, and what goes from one
//! image to another.
//!
//! Idea: both write the same root into a new folder on the same disk of the same virtual machine, in turns, each with
//! cold caches and until the data are on the disk. The archive lies on that disk; the image comes over the wire and each
//! file of it is hashed.

use super::run::{IMAGE, Run};
use super::{BootKind, step};
use crate::derived::{self, Pair};
use crate::environment::LabEnvironment;
use crate::ssh::SshTarget;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

const COMMAND_LIMIT: Duration = Duration::from_secs(600);
/// Where on the node.
const PLACE: &str = "/var/tmp/bench";
const BOOT_URL: &str = "http://10.77.0.1:8081";
/// The part of the second image's bytes that differs from the first's.
const CHANGED_PERCENT: u64 = 2;
/// Aims: the time beside tar's; the bytes beside a fresh installation's.
const TIME_RATIO_MAX: f64 = 1.3;
const BYTES_RATIO_MAX: f64 = 0.05;

struct Node<'a> {
    run: &'a Run,
    ssh: SshTarget,
    key: String,
}

/// Installs a node and measures on it.
///
/// # Errors
/// When the rack cannot be put up, or something cannot be measured.
pub(super) fn measure(environment: &LabEnvironment, rounds: u32) -> Result<Value> {
    let mut run = Run::start(environment, "benchdeploy", BootKind::Uefi)?;
    let data_dir = run.appliance.data_dir();
    step("an image that differs in 2 % of its bytes is made");
    let pair = derived::provide(&data_dir, IMAGE, CHANGED_PERCENT)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    run.definite_drift()?;
    let node = Node {
        ssh: run.ssh_target()?,
        key: image_key(&data_dir)?,
        run: &run,
    };
    let measured = node.measure(&pair, rounds)?;
    run.stop()?;
    Ok(measured)
}

fn image_key(data_dir: &std::path::Path) -> Result<String> {
    let path = data_dir.join("keys/image.key");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(manifest::KeyPair::from_secret_text(&text)?.public().as_str().to_owned())
}

impl Node<'_> {
    fn measure(&self, pair: &Pair, rounds: u32) -> Result<Value> {
        step("the same root as an archive, on the node");
        self.on_node("systemctl stop plumbline-agent.service; systemctl stop '*.timer'; true")?;
        self.on_node(&format!("mkdir -p {PLACE}/first"))?;
        self.write(&pair.before.to_string(), "first", "")?;
        self.on_node(&format!(
            "cd {PLACE} && tar --numeric-owner -C first -cf - . | zstd -q -9 -f -o root.tar.zst && rm -rf first && sync"
        ))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            let image = |times: &mut Vec<f64>| -> Result<()> {
                times.push(self.timed(&self.command(&pair.before.to_string(), "out", ""))?);
                Ok(())
            };
            let archive = |times: &mut Vec<f64>| -> Result<()> {
                let command = format!("zstd -q -d -c {PLACE}/root.tar.zst | tar --numeric-owner -C {PLACE}/out -xpf -");
                times.push(self.timed(&command)?);
                Ok(())
            };
            // Who goes first changes from round to round.
            if round % 2 == 1 {
                image(&mut ours)?;
                archive(&mut theirs)?;
            } else {
                archive(&mut theirs)?;
                image(&mut ours)?;
            }
            step(&format!(
                "round {round}: image {:.1} s, tar {:.1} s",
                last(&ours),
                last(&theirs)
            ));
        }
        step("from one image to the other");
        self.on_node(&format!("mkdir -p {PLACE}/out"))?;
        let fresh = self.write(&pair.before.to_string(), "out", "")?;
        let over = self.write(&pair.now.to_string(), "out", "--over")?;
        let again = self.write(&pair.before.to_string(), "out", "--over")?;
        Ok(report(pair, &ours, &theirs, &[&fresh, &over, &again]))
    }

    fn command(&self, image: &str, folder: &str, more: &str) -> String {
        let key = &self.key;
        format!(
            "plumbline-agent write-image --from {BOOT_URL} --image {image} --key '{key}' {more} {PLACE}/{folder} \
             >{PLACE}/taken.json"
        )
    }

    /// Writes an image; what it took.
    fn write(&self, image: &str, folder: &str, more: &str) -> Result<Value> {
        let said = self.on_node(&format!(
            "{} && cat {PLACE}/taken.json",
            self.command(image, folder, more)
        ))?;
        serde_json::from_str(&said).with_context(|| format!("what writing took: {said}"))
    }

    /// Seconds of a command that fills the folder `out`, which is new, until its data are on the disk.
    fn timed(&self, command: &str) -> Result<f64> {
        let said = self.on_node(&format!(
            "set -e; mkdir {PLACE}/out; sync; echo 3 >/proc/sys/vm/drop_caches; a=$(date +%s%N); {command}; sync; \
             b=$(date +%s%N); rm -rf {PLACE}/out; sync; echo $(( (b - a) / 1000000 ))"
        ))?;
        let millis: f64 = said.trim().parse().with_context(|| format!("a time: {said}"))?;
        Ok(millis / 1_000.0)
    }

    fn on_node(&self, command: &str) -> Result<String> {
        let ended = self.ssh.run(self.run.appliance.namespace(), command, COMMAND_LIMIT)?;
        ensure!(
            ended.status.success(),
            "`{command}` on the node: {} {}",
            ended.stdout.trim(),
            ended.stderr.trim()
        );
        Ok(ended.stdout)
    }
}

fn last(times: &[f64]) -> f64 {
    times.last().copied().unwrap_or(0.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// One object for programs; the table goes to standard error.
fn report(pair: &Pair, ours: &[f64], theirs: &[f64], written: &[&Value; 3]) -> Value {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| rounded(ours / theirs))
        .collect();
    let time_ratio = median(ratios.iter().copied());
    let fetched = |value: &Value| value["bytes_fetched"].as_f64().unwrap_or(f64::NAN);
    let [fresh, over, again] = written;
    let bytes_ratio = (fetched(over) / fetched(fresh)).max(fetched(again) / fetched(fresh));
    let aims = [
        ("image beside zstd -d | tar -x: time", time_ratio, TIME_RATIO_MAX),
        (
            "2 % of the bytes different: fetched, to a fresh one",
            bytes_ratio,
            BYTES_RATIO_MAX,
        ),
    ];
    let mut text = format!(
        "\n{} rounds; image of {} MB, {} bytes of {} in {} files differ\n",
        ours.len(),
        pair.content_bytes / 1_000_000,
        pair.changed_bytes,
        pair.content_bytes,
        pair.changed_files
    );
    let _infallible = writeln!(text, "image  s: {ours:.1?}, median {:.1}", median(ours.iter().copied()));
    let _infallible = writeln!(
        text,
        "tar    s: {theirs:.1?}, median {:.1}",
        median(theirs.iter().copied())
    );
    for (name, value) in [("fresh", fresh), ("A to B", over), ("B to A", again)] {
        let _infallible = writeln!(
            text,
            "{name:<7}: {} bytes fetched in {} requests, {} files kept, {} s, {} bytes of memory at most",
            value["bytes_fetched"], value["requests"], value["files_kept"], value["secs"], value["memory_peak_bytes"]
        );
    }
    for (name, found, bound) in aims {
        let verdict = if found <= bound { "met" } else { "MISSED" };
        let _infallible = writeln!(text, "{name:<58}{found:>8.3}   at most {bound}: {verdict}");
    }
    eprint!("{text}");
    let aims: Vec<Value> = aims
        .iter()
        .map(|(name, found, bound)| {
            json!({ "name": name, "at_most": bound, "found": rounded(*found), "is_met": found <= bound })
        })
        .collect();
    json!({
        "benchmark": "deploy", "rounds": ours.len(), "image_secs": ours, "tar_secs": theirs, "ratios": ratios,
        "content_bytes": pair.content_bytes, "changed_bytes": pair.changed_bytes, "changed_files": pair.changed_files,
        "fresh": fresh, "a_to_b": over, "b_to_a": again,
        "are_all_aims_met": aims.iter().all(|aim| aim["is_met"] == true), "aims": aims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: u64) -> Value {
        json!({ "bytes_fetched": bytes })
    }

    #[test]
    fn times_are_compared_within_each_round_and_the_worse_way_counts() {
        let digest = manifest::Digest::of(b"");
        let pair = Pair {
            before: digest,
            now: digest,
            content_bytes: 100,
            changed_bytes: 2,
            changed_files: 1,
        };
        let written = [taken(1_000), taken(40), taken(60)];
        let [fresh, over, again] = &written;
        let found = report(&pair, &[10.0, 20.0, 13.0], &[10.0, 10.0, 10.0], &[fresh, over, again]);
        assert_eq!(found["ratios"], json!([1.0, 2.0, 1.3]));
        assert_eq!(
            (&found["aims"][0]["found"], &found["aims"][0]["is_met"]),
            (&json!(1.3), &json!(true))
        );
        assert_eq!(
            (&found["aims"][1]["found"], &found["aims"][1]["is_met"]),
            (&json!(0.06), &json!(false))
        );
        assert_eq!(found["are_all_aims_met"], json!(false));
    }
}
