//! Plays every case against every server, in rounds; servers take turns as in the benchmark of TFTP.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::cases::{CONTENDERS, Case, Figures, Measured};
use super::generator::{Load, Outcome, Pack, play};
use super::servers::{self, ADDRESS, PACKS, Programs, Server};
use crate::tftp::cases::percentile;

/// The longest a single load may take.
const LOAD_DURATION_MAX: Duration = Duration::from_secs(300);

/// What is served: `count` packs of `bytes` each, written below the data folder `folder` and so in the page cache.
///
/// # Errors
/// When they cannot be written.
pub fn write_packs(folder: &Path, count: usize, bytes: usize) -> Result<Vec<Pack>> {
    let packs = folder.join(PACKS);
    fs::create_dir_all(&packs).with_context(|| format!("cannot make {}", packs.display()))?;
    let mut state: u64 = 1;
    let mut write = || {
        let mut content = Vec::with_capacity(bytes + 8);
        while content.len() < bytes {
            // Knuth's MMIX generator; the high bits are the good ones.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            content.extend_from_slice(&state.rotate_left(32).to_le_bytes());
        }
        content.truncate(bytes);
        let digest: [u8; 32] = Sha256::digest(&content).into();
        let name = hex::encode(digest);
        fs::write(packs.join(&name), &content).context("cannot write a pack")?;
        Ok(Pack {
            name,
            digest,
            size: bytes as u64,
        })
    };
    (0..count).map(|_| write()).collect()
}

/// Measures `cases`, `rounds` times each, over the packs of the data folder `folder`.
///
/// # Errors
/// When a server does not start, or the load cannot be made. Answers that fail are figures.
pub fn measure(
    cases: &[Case],
    rounds: usize,
    programs: &Programs,
    folder: &Path,
    packs: &Arc<[Pack]>,
) -> Result<Vec<Measured>> {
    let mut measured = Vec::with_capacity(cases.len());
    for case in cases {
        let contenders = CONTENDERS.into_iter().filter(|server| programs.has(*server));
        let mut found: Vec<(Server, Vec<Figures>)> = contenders.map(|server| (server, Vec::new())).collect();
        for round in 0..rounds {
            for turn in 0..found.len() {
                let index = (turn + round) % found.len();
                let server = found[index].0;
                let load = Load {
                    server: ADDRESS,
                    packs: Arc::clone(packs),
                    clients: case.clients,
                    reads: case.reads,
                    duration_max: LOAD_DURATION_MAX,
                };
                let figures = measure_once(&load, server, programs, folder)
                    .with_context(|| format!("case {}, {}", case.name, server.name()))?;
                eprintln!(
                    "  {:<7} round {} of {rounds}: {:<9}  {:7.1} MB/s in {:6.2} s",
                    case.name,
                    round + 1,
                    server.name(),
                    figures.throughput_mb_per_s,
                    figures.wall_secs
                );
                found[index].1.push(figures);
            }
        }
        measured.push(Measured {
            case: case.clone(),
            rounds: found,
        });
    }
    Ok(measured)
}

fn measure_once(load: &Load, server: Server, programs: &Programs, folder: &Path) -> Result<Figures> {
    let probe = load.packs.first().context("no packs to serve")?;
    let running = servers::start(programs, server, folder, &probe.name)?;
    let processor_before = running.family_processor_secs()?;
    let outcome = play(load)?;
    let memory_bytes = running.family_memory_peak_bytes()?;
    let server_processor_secs = running.family_processor_secs()? - processor_before;
    running.stop()?;
    for (reason, count) in outcome.failures.iter().take(5) {
        eprintln!("  {}: {count} clients failed: {reason}", server.name());
    }
    Ok(Figures {
        memory_mib: memory_bytes as f64 / f64::from(1 << 20),
        server_processor_secs,
        ..figures(&outcome)
    })
}

/// What the load itself tells.
fn figures(outcome: &Outcome) -> Figures {
    let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect();
    let ends = || outcome.ends.iter().map(Duration::as_secs_f64);
    let wall_secs = outcome.wall.as_secs_f64();
    Figures {
        completed: outcome.completed,
        throughput_mb_per_s: outcome.bytes as f64 / wall_secs / 1e6,
        wall_secs,
        first_byte_p99_ms: percentile(seconds(&outcome.first_bytes), 99) * 1000.0,
        duration_p99_secs: percentile(seconds(&outcome.durations), 99),
        fairness: ends().reduce(f64::min).unwrap_or(0.0) / ends().reduce(f64::max).unwrap_or(1.0),
        generator_processor_secs: outcome.processor.as_secs_f64(),
        ..Figures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_becomes_figures_in_the_units_of_the_table() {
        let outcome = Outcome {
            completed: 2,
            bytes: 1_000_000,
            wall: Duration::from_secs(2),
            first_bytes: vec![Duration::from_millis(3)],
            durations: vec![Duration::from_secs(1)],
            ends: vec![Duration::from_secs(1), Duration::from_secs(2)],
            ..Outcome::default()
        };
        let figures = figures(&outcome);
        assert_eq!((figures.throughput_mb_per_s, figures.fairness), (0.5, 0.5));
        assert_eq!((figures.first_byte_p99_ms, figures.duration_p99_secs), (3.0, 1.0));
    }
}
