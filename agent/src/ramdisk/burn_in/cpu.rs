//! Processors: the same sums on every one of them, all at once, against results that are known.
//!
//! Integers, vectors (SHA-256) and floating point. Heat is a part of the test: a processor that is slowed down while it
//! is new has a cooler that does not sit well.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use manifest::Digest;
use protocol::latest::Figure;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::counters::Counters;
use super::watch::Watch;
use super::{Found, figure};

/// What [`round`] gives on a processor that is well.
const EXPECTED: u64 = 0x33AC_9CE2_4B20_4DF2;
/// Side of the matrices.
const SIDE: usize = 48;
/// Most processors.
const CPUS_MAX: usize = CpuSet::MAX_CPU;

/// One round of sums. The same everywhere: IEEE 754 and no contraction.
#[must_use]
fn round() -> u64 {
    let mut state: u64 = std::hint::black_box(0x2545_F491_4F6C_DD1D);
    let mut bytes = vec![0_u8; 64 << 10];
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let mut digest = Digest::of(&bytes);
    for _ in 0..8 {
        bytes[..32].copy_from_slice(digest.as_bytes());
        digest = Digest::of(&bytes);
    }
    let number = |at: usize| f64::from(bytes[at % bytes.len()]) / 256.0 + 0.5;
    let a: Vec<f64> = (0..SIDE * SIDE).map(|at| number(at * 7 + 64)).collect();
    let mut b: Vec<f64> = (0..SIDE * SIDE).map(|at| number(at * 11 + 4_096)).collect();
    for _ in 0..6 {
        let mut product = vec![0.0_f64; SIDE * SIDE];
        for row in 0..SIDE {
            for inner in 0..SIDE {
                let factor = a[row * SIDE + inner];
                for column in 0..SIDE {
                    product[row * SIDE + column] += factor * b[inner * SIDE + column];
                }
            }
        }
        // Brought back to the size of what went in.
        b = product.iter().map(|value| (value / 16.0).sqrt()).collect();
    }
    let floats = b.iter().fold(0_u64, |sum, value| sum.rotate_left(5) ^ value.to_bits());
    let hash = digest
        .as_bytes()
        .iter()
        .fold(0_u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    std::hint::black_box(floats ^ hash)
}

/// Numbers of processors, as the kernel lists them: `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            found.extend((first..=last).take(CPUS_MAX));
        }
    }
    found.truncate(CPUS_MAX);
    found
}

/// What one processor did.
#[derive(Clone, Copy, Debug)]
struct Worked {
    cpu: usize,
    is_pinned: bool,
    rounds: u64,
    wrong: u64,
}

/// Uses all of its time. Blocks.
pub fn run(root: &Path, watch: &Watch) -> Found {
    let online = std::fs::read_to_string(root.join("sys/devices/system/cpu/online")).unwrap_or_default();
    let cpus = parse_list(&online);
    if cpus.is_empty() {
        return Found::not_run("/sys/devices/system/cpu/online does not say which processors there are");
    }
    let counters = || {
        let interrupts = std::fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
        (Counters::throttling(root), Counters::machine_checks(&interrupts))
    };
    let (throttling, checks) = counters();
    let start = Instant::now();
    let worked = work(&cpus, watch);
    let secs = start.elapsed().as_secs_f64().max(0.001);
    let (throttling_after, checks_after) = counters();
    let mut grown = throttling_after.grown(&throttling);
    grown.extend(checks_after.grown(&checks));
    let heat = match throttling_after.is_empty() {
        true => "; the kernel does not tell here whether they were slowed down for heat",
        false => "",
    };
    judged(&cpus, &worked, secs, &grown, heat)
}

fn work(cpus: &[usize], watch: &Watch) -> Vec<Worked> {
    let worked = Mutex::new(Vec::new());
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for cpu in cpus {
            let (worked, total) = (&worked, &total);
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || {
                let one = work_on(*cpu, watch, total);
                if let Ok(mut worked) = worked.lock() {
                    worked.push(one);
                }
            });
            // One that cannot be started is missing in the results, and told there.
            drop(spawned);
        }
    });
    worked.into_inner().unwrap_or_default()
}

fn work_on(cpu: usize, watch: &Watch, total: &AtomicU64) -> Worked {
    let mut set = CpuSet::new();
    set.set(cpu);
    let mut one = Worked {
        cpu,
        is_pinned: sched_setaffinity(None, &set).is_ok(),
        rounds: 0,
        wrong: 0,
    };
    while one.is_pinned && !watch.is_over() {
        one.wrong += u64::from(round() != EXPECTED);
        one.rounds += 1;
        let rounds = total.fetch_add(1, Ordering::Relaxed) + 1;
        if rounds.is_multiple_of(256) {
            watch.say(format!("{rounds} rounds of known results"));
        }
    }
    one
}

fn judged(cpus: &[usize], worked: &[Worked], secs: f64, grown: &[(String, u64)], heat: &str) -> Found {
    let mut problems: Vec<String> = worked
        .iter()
        .filter(|one| one.wrong > 0)
        .map(|one| format!("cpu{} gave {} wrong results of {}", one.cpu, one.wrong, one.rounds))
        .collect();
    problems.extend(grown.iter().map(|(name, by)| format!("{by} × {name}")));
    let idle: Vec<String> = cpus
        .iter()
        .filter(|cpu| !worked.iter().any(|one| one.cpu == **cpu && one.rounds > 0))
        .map(|cpu| format!("cpu{cpu}"))
        .collect();
    if problems.is_empty() && !idle.is_empty() {
        return Found::not_run(format!("no result came from {}", idle.join(", ")));
    }
    let mut rates: Vec<f64> = worked.iter().map(|one| one.rounds as f64 / secs).collect();
    rates.sort_by(f64::total_cmp);
    let rounds: u64 = worked.iter().map(|one| one.rounds).sum();
    let mut figures: Vec<Figure> = Vec::new();
    if let (Some(slowest), Some(median)) = (rates.first(), rates.get(rates.len() / 2)) {
        figures.push(figure("slowest processor", *slowest, "rounds/s"));
        figures.push(figure("median processor", *median, "rounds/s"));
    }
    let detail = format!("{rounds} rounds on {} processors{heat}", worked.len());
    Found::of(&problems, detail, figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::latest::TestOutcome;
    use std::time::Duration;

    #[test]
    fn a_round_gives_the_known_result() {
        assert_eq!(round(), EXPECTED);
    }

    #[test]
    fn processors_are_listed_as_the_kernel_does() {
        assert_eq!(parse_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_list("0\n"), [0]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn every_processor_gives_results() {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let cpus = parse_list(&online);
        let worked = work(&cpus, &Watch::new(Instant::now() + Duration::from_millis(700)));
        assert_eq!(worked.len(), cpus.len());
        assert!(worked.iter().all(|one| one.wrong == 0 && one.is_pinned), "{worked:?}");
    }

    #[test]
    fn a_wrong_result_names_its_processor_and_an_idle_one_is_no_pass() {
        let one = |cpu, rounds, wrong| Worked {
            cpu,
            is_pinned: true,
            rounds,
            wrong,
        };
        let found = judged(&[0, 1], &[one(0, 10, 0), one(1, 10, 2)], 1.0, &[], "");
        assert_eq!(found.outcome, TestOutcome::Failed);
        assert!(found.detail.starts_with("cpu1 gave 2 wrong results of 10"), "{found:?}");
        let idle = judged(&[0, 1], &[one(0, 10, 0), one(1, 0, 0)], 1.0, &[], "");
        assert_eq!(
            (idle.outcome, idle.detail.as_str()),
            (TestOutcome::NotRun, "no result came from cpu1")
        );
        let hot = judged(
            &[0],
            &[one(0, 10, 0)],
            1.0,
            &[("throttling of cpu0 (core)".to_owned(), 3)],
            "",
        );
        assert_eq!(hot.outcome, TestOutcome::Failed);
    }
}
