//! Plays every case against every server, in rounds.
//!
//! Idea: a machine's speed changes by the minute. So servers take turns within each case and each round, the order moves
//! on by one from round to round, and servers are compared within a round.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::cases::{Case, Contender, Figures, Measured, percentile};
use super::client::Ask;
use super::generator::{Load, Outcome, play};
use super::servers::{self, ADDRESS, Programs, Server};

/// Fills an Ethernet frame.
const BLOCK_BYTES: u16 = 1468;
/// What a server's start is waited for with.
const PROBE: &str = "probe.txt";
/// The clients' patience: that of common firmware, and enough tries for the slowest server.
const RETRANSMIT: Duration = Duration::from_secs(1);
const TIMEOUTS_MAX: u32 = 10;
/// The longest a single load may take.
const LOAD_DURATION_MAX: Duration = Duration::from_secs(180);

/// Measures `cases`, `rounds` times each; `folder` is what is served, and is filled here.
///
/// # Errors
/// When a server does not start, or the load cannot be made. Transfers that fail are figures.
pub fn measure(cases: &[Case], rounds: usize, seed: u64, programs: &Programs, folder: &Path) -> Result<Vec<Measured>> {
    fs::write(folder.join(PROBE), "here\n").context("cannot write the probe's file")?;
    let mut measured = Vec::with_capacity(cases.len());
    for case in cases {
        let name = format!("{}.bin", case.name);
        let content: Arc<[u8]> = content(case.file_bytes).into();
        fs::write(folder.join(&name), &content).context("cannot write the file to serve")?;
        let contenders: Vec<Contender> = case
            .contenders
            .iter()
            .copied()
            .filter(|contender| programs.has(contender.server))
            .collect();
        let mut found: Vec<(Contender, Vec<Figures>)> =
            contenders.iter().map(|contender| (*contender, Vec::new())).collect();
        for round in 0..rounds {
            for turn in 0..found.len() {
                let index = (turn + round) % found.len();
                let contender = found[index].0;
                let load = Load {
                    server: ADDRESS,
                    ask: Arc::new(Ask {
                        name: name.clone(),
                        content: Arc::clone(&content),
                        block_bytes: BLOCK_BYTES,
                        window_blocks: contender.window_blocks,
                    }),
                    clients: case.clients,
                    loss: case.loss,
                    seed: seed.wrapping_add(round as u64),
                    retransmit: RETRANSMIT,
                    timeouts_max: TIMEOUTS_MAX,
                    duration_max: LOAD_DURATION_MAX,
                };
                let figures = measure_once(&load, contender.server, programs, folder)
                    .with_context(|| format!("case {}, {}", case.name, contender.server.name()))?;
                eprintln!(
                    "  {:<7} round {} of {rounds}: {:<9} window {:<2}  {:7.1} MB/s in {:6.2} s",
                    case.name,
                    round + 1,
                    contender.server.name(),
                    contender.window_blocks,
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
    let running = servers::start(programs, server, folder, PROBE)?;
    let outcome = play(load)?;
    let memory_bytes = running.memory_peak_bytes()?;
    let server_processor_secs = running.processor_secs()?;
    running.stop()?;
    for (reason, count) in outcome.failures.iter().take(5) {
        eprintln!("  {}: {count} transfers failed: {reason}", server.name());
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
    Figures {
        completed: outcome.completed,
        throughput_mb_per_s: outcome.throughput_mb_per_s(),
        wall_secs: outcome.wall.as_secs_f64(),
        first_reply_p99_ms: percentile(seconds(&outcome.first_replies), 99) * 1000.0,
        duration_p99_secs: percentile(seconds(&outcome.durations), 99),
        generator_processor_secs: outcome.processor.as_secs_f64(),
        packets: outcome.packets,
        dropped: outcome.dropped,
        timeouts: outcome.timeouts,
        duplicates: outcome.duplicates,
        ..Figures::default()
    }
}

/// Bytes that repeat nowhere near, so that a block in the place of another is seen.
fn content(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        // Knuth's MMIX generator; the high bits are the good ones.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        content.extend_from_slice(&(state >> 32).to_le_bytes()[..4]);
    }
    content.truncate(bytes);
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blocks_are_the_same() {
        let content = content(1 << 20);
        let blocks: std::collections::HashSet<&[u8]> = content.chunks(usize::from(BLOCK_BYTES)).collect();
        assert_eq!(blocks.len(), content.len().div_ceil(usize::from(BLOCK_BYTES)));
    }

    #[test]
    fn times_and_sizes_are_in_the_units_of_the_table() {
        let outcome = Outcome {
            completed: 1,
            bytes: 1_000_000,
            wall: Duration::from_secs(2),
            first_replies: vec![Duration::from_millis(3)],
            durations: vec![Duration::from_secs(1)],
            ..Outcome::default()
        };
        let figures = figures(&outcome);
        assert_eq!((figures.throughput_mb_per_s, figures.wall_secs), (0.5, 2.0));
        assert_eq!((figures.first_reply_p99_ms, figures.duration_p99_secs), (3.0, 1.0));
    }
}
