//! Memory: patterns written to all that is free, and read back.
//!
//! What the kernel and this program occupy is not looked at, which the result says. Errors that ECC corrects are in no
//! pattern; memory controllers count them (EDAC), and a DIMM that has some while it is new is sent back.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::latest::Figure;

use super::counters::Counters;
use super::watch::Watch;
use super::{Found, figure};

/// Words of one block: 32 MiB, more than a core's share of any cache.
const BLOCK_WORDS: usize = 4 << 20;
const BLOCK_BYTES: u64 = BLOCK_WORDS as u64 * 8;
/// Left free: for the kernel, and for what this program does meanwhile.
const RESERVE_BYTES: u64 = 192 << 20;
/// One part of this many is left free too.
const RESERVE_PART: u64 = 16;
/// Most threads.
const THREADS_MAX: usize = 512;
/// Wrong words that are described.
const DESCRIBED_MAX: usize = 4;

/// What a word holds in a pass: every bit is both, next to each other and in time, and no word is like its neighbours.
fn pattern(pass: u64, index: u64) -> u64 {
    match pass % 6 {
        0 => 0x5555_5555_5555_5555,
        1 => 0xAAAA_AAAA_AAAA_AAAA,
        // Its own address, and the contrary: finds lines that address the same cells.
        2 => index,
        3 => !index,
        other => scrambled(index ^ (pass << 48) ^ other),
    }
}

/// SplitMix64: every input another output, bits all over.
fn scrambled(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn fill(block: &mut [u64], first: u64, pass: u64) {
    for (index, word) in (first..).zip(block.iter_mut()) {
        *word = pattern(pass, index);
    }
    std::hint::black_box(block);
}

/// Words that do not hold what was written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wrong {
    words: u64,
    described: Vec<String>,
}

impl Wrong {
    fn add(&mut self, other: Self) {
        self.words += other.words;
        self.described.extend(other.described);
        self.described.truncate(DESCRIBED_MAX);
    }
}

fn compare(block: &[u64], first: u64, pass: u64) -> Wrong {
    let mut wrong = Wrong::default();
    for (index, word) in (first..).zip(std::hint::black_box(block)) {
        let written = pattern(pass, index);
        if *word != written {
            wrong.words += 1;
            if wrong.described.len() < DESCRIBED_MAX {
                wrong.described.push(format!("{written:016x} was read as {word:016x}"));
            }
        }
    }
    wrong
}

/// Bytes that are looked at, of `available` ones (`MemAvailable`).
fn bytes_tested(available: u64) -> u64 {
    let reserve = RESERVE_BYTES.max(available / RESERVE_PART);
    available.saturating_sub(reserve) / BLOCK_BYTES * BLOCK_BYTES
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// Uses all of its time. Blocks.
pub fn run(root: &Path, watch: &Watch) -> Found {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let Some(available) = available(&meminfo) else {
        return Found::not_run("/proc/meminfo does not say how much memory is available");
    };
    let blocks = bytes_tested(available) / BLOCK_BYTES;
    if blocks == 0 {
        return Found::not_run(format!("only {} MB of memory are free", available / 1_000_000));
    }
    let before = Counters::memory(root);
    let (bytes, passes, wrong) = passes(blocks, watch);
    let after = Counters::memory(root);
    judged(bytes, passes, &wrong, &before, &after)
}

/// Bytes looked at, whole passes over all of them, and what was wrong.
fn passes(blocks: u64, watch: &Watch) -> (u64, u64, Wrong) {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(THREADS_MAX) as u64;
    let threads = threads.min(blocks);
    let done = AtomicU64::new(0);
    let results: Vec<(u64, u64, Wrong)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let own = blocks / threads + u64::from(thread < blocks % threads);
                let (done, first) = (&done, thread << 40);
                scope.spawn(move || thread_passes(own, first, watch, done))
            })
            .collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    let mut wrong = Wrong::default();
    let (mut bytes, mut passes) = (0, u64::MAX);
    for (own, own_passes, own_wrong) in results {
        bytes += own;
        passes = passes.min(own_passes);
        wrong.add(own_wrong);
    }
    (bytes, if bytes == 0 { 0 } else { passes }, wrong)
}

fn thread_passes(blocks: u64, first: u64, watch: &Watch, done: &AtomicU64) -> (u64, u64, Wrong) {
    let mut memory: Vec<Vec<u64>> = Vec::new();
    for _ in 0..blocks {
        let mut block = Vec::new();
        // Where the kernel does not give it, less is looked at, and the result says how much.
        if block.try_reserve_exact(BLOCK_WORDS).is_err() {
            break;
        }
        block.resize(BLOCK_WORDS, 0);
        memory.push(block);
    }
    let bytes = memory.len() as u64 * BLOCK_BYTES;
    let mut wrong = Wrong::default();
    let mut pass = 0;
    if memory.is_empty() {
        return (0, 0, wrong);
    }
    loop {
        for (block, at) in memory.iter_mut().zip((first..).step_by(BLOCK_WORDS)) {
            if watch.is_over() {
                return (bytes, pass, wrong);
            }
            fill(block, at, pass);
        }
        for (block, at) in memory.iter().zip((first..).step_by(BLOCK_WORDS)) {
            if watch.is_over() {
                return (bytes, pass, wrong);
            }
            wrong.add(compare(block, at, pass));
            let total = done.fetch_add(BLOCK_BYTES, Ordering::Relaxed) + BLOCK_BYTES;
            watch.say(format!("pass {}, {} MB written and read", pass + 1, total / 1_000_000));
        }
        pass += 1;
    }
}

fn judged(bytes: u64, passes: u64, wrong: &Wrong, before: &Counters, after: &Counters) -> Found {
    let megabytes = bytes / 1_000_000;
    let figures: Vec<Figure> = vec![
        figure("tested", megabytes as f64, "MB"),
        figure("whole passes", passes as f64, "passes"),
    ];
    let mut problems = Vec::new();
    if wrong.words > 0 {
        problems.push(format!(
            "{} words were read otherwise than written ({})",
            wrong.words,
            wrong.described.join(", ")
        ));
    }
    problems.extend(after.grown(before).into_iter().map(|(name, by)| format!("{by} {name}")));
    let controllers = match after.is_empty() {
        true => "; no memory controller tells of errors here",
        false => "",
    };
    let detail = format!("{megabytes} MB written and read in {passes} whole passes{controllers}");
    // Not once over all of it: nothing can be said of what was not reached.
    if passes == 0 && problems.is_empty() {
        return Found {
            figures,
            ..Found::not_run(format!(
                "the limit is too short: {megabytes} MB were not written and read once"
            ))
        };
    }
    Found::of(&problems, detail, figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::latest::TestOutcome;
    use std::time::{Duration, Instant};

    #[test]
    fn a_bit_that_does_not_hold_is_found_in_every_pass_that_writes_it() {
        let mut block = vec![0; 4_096];
        let mut found = 0;
        for pass in 0..6 {
            fill(&mut block, 1 << 40, pass);
            assert_eq!(compare(&block, 1 << 40, pass), Wrong::default());
            // A cell that is stuck at one.
            block[77] |= 1 << 13;
            let wrong = compare(&block, 1 << 40, pass);
            found += wrong.words;
            assert_eq!(wrong.words as usize, wrong.described.len());
        }
        assert!((2..=4).contains(&found), "one in about half of the patterns: {found}");
    }

    #[test]
    fn no_two_words_near_each_other_hold_the_same_in_an_address_pass() {
        let mut block = vec![0; 4_096];
        for pass in [2, 3, 4, 5] {
            fill(&mut block, 9, pass);
            let different: std::collections::HashSet<&u64> = block.iter().collect();
            assert_eq!(different.len(), block.len(), "pass {pass}");
        }
    }

    #[test]
    fn some_memory_is_left_to_the_kernel() {
        assert_eq!(bytes_tested(100 << 20), 0);
        assert_eq!(bytes_tested(1 << 30), (1 << 30) - (192 << 20));
        assert_eq!(bytes_tested(2 << 40), (2 << 40) - (128 << 30));
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:  2 kB\n"), Some(2_048));
    }

    #[test]
    fn time_that_is_too_short_is_not_a_pass() {
        let (bytes, passes, wrong) = passes(2, &Watch::new(Instant::now()));
        let none = Counters::default();
        let found = judged(bytes, passes, &wrong, &none, &none);
        assert_eq!(found.outcome, TestOutcome::NotRun, "{found:?}");
        let watch = Watch::new(Instant::now() + Duration::from_secs(120));
        let (bytes, passes, wrong) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !watch.said().starts_with("pass 2") && !watch.is_over() {
                    std::thread::yield_now();
                }
                watch.cancel();
            });
            super::passes(1, &watch)
        });
        let found = judged(bytes, passes, &wrong, &none, &none);
        assert_eq!(found.outcome, TestOutcome::Passed, "{found:?}");
        assert!(found.detail.contains("no memory controller tells"), "{found:?}");
    }

    #[test]
    fn a_wrong_word_fails_even_before_the_first_pass_is_over() {
        let wrong = Wrong {
            words: 1,
            described: vec!["00 was read as 01".to_owned()],
        };
        let none = Counters::default();
        let found = judged(1 << 25, 0, &wrong, &none, &none);
        assert_eq!(found.outcome, TestOutcome::Failed);
        assert!(found.detail.starts_with("1 words were read"), "{found:?}");
    }
}
