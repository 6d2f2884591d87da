//! What is measured, and what it should come to: values and arithmetic alone.

use super::servers::Server;
use crate::tftp::cases::{Aim, Wanted, median};

/// The fleet's size in the aims.
pub const CLIENTS: usize = 256;
/// Packs in the aims.
pub const PACKS: usize = 64;
/// A pack's size in the aims, in KiB.
pub const PACK_KIB: usize = 8192;
/// Packs that each client of the fleet reads.
pub const READS: usize = 4;
/// A single client reads this many times as many, to last long enough to be measured.
const SINGLE_FACTOR: usize = 64;

/// Who is measured, in the order of the first round.
pub const CONTENDERS: [Server; 3] = [Server::Plumbline, Server::Nginx, Server::Before];

/// One load, played against all.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// A name, for tables and keys.
    pub name: &'static str,
    /// Clients at once, each on a connection that it keeps.
    pub clients: usize,
    /// Packs that each reads, one after another.
    pub reads: usize,
}

/// The cases for a fleet of `clients` that read `reads` packs each.
pub fn cases(clients: usize, reads: usize) -> Vec<Case> {
    let case = |name, clients, reads| Case { name, clients, reads };
    vec![case("fleet", clients, reads), case("single", 1, reads * SINGLE_FACTOR)]
}

/// One server's figures in one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Answers that were complete and right.
    pub completed: usize,
    /// Content of complete answers, in megabytes (10⁶ bytes) a second.
    pub throughput_mb_per_s: f64,
    /// From the first request to the last end, in seconds.
    pub wall_secs: f64,
    /// 99 of 100 answers began within this, in milliseconds.
    pub first_byte_p99_ms: f64,
    /// 99 of 100 answers were complete within this, in seconds.
    pub duration_p99_secs: f64,
    /// When the first client had all its packs, as a part of the time until the last had: 1 is fair, 0 is not.
    pub fairness: f64,
    /// The most memory the server's processes held, in MiB.
    pub memory_mib: f64,
    /// Processor time of the server, in seconds.
    pub server_processor_secs: f64,
    /// Processor time of the load itself, in seconds.
    pub generator_processor_secs: f64,
}

/// All rounds of a case: for each server that was measured, one entry a round.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Servers and their rounds.
    pub rounds: Vec<(Server, Vec<Figures>)>,
}

impl Measured {
    /// A server's rounds.
    pub fn of(&self, server: Server) -> Option<&[Figures]> {
        let (_, rounds) = self.rounds.iter().find(|(measured, _)| *measured == server)?;
        Some(rounds)
    }

    /// Our throughput to `theirs`, round by round.
    pub fn ratios(&self, theirs: Server) -> Option<Vec<f64>> {
        let pairs = self.of(Server::Plumbline)?.iter().zip(self.of(theirs)?);
        let ratio = |(ours, theirs): (&Figures, &Figures)| ours.throughput_mb_per_s / theirs.throughput_mb_per_s;
        Some(pairs.map(ratio).collect())
    }
}

/// Every aim of the project for HTTP, with what was found.
pub fn aims(measured: &[Measured]) -> Vec<Aim> {
    let case = |name: &str| measured.iter().find(|measured| measured.case.name == name);
    let ratio = |name: &str| median(case(name)?.ratios(Server::Nginx)?.into_iter());
    let completed = case("fleet").and_then(|fleet| {
        let fewest = fleet
            .of(Server::Plumbline)?
            .iter()
            .map(|figures| figures.completed)
            .min()?;
        Some(fewest as f64 / (fleet.case.clients * fleet.case.reads) as f64)
    });
    let memory = case("fleet").and_then(|fleet| {
        let each = fleet.of(Server::Plumbline)?.iter().map(|figures| figures.memory_mib);
        each.reduce(f64::max)
    });
    let aim = |name, wanted, found| Aim { name, wanted, found };
    vec![
        aim("fleet: part of the answers complete", Wanted::AtLeast(1.0), completed),
        aim("fleet: throughput to nginx's", Wanted::AtLeast(0.9), ratio("fleet")),
        aim("fleet: server's memory, MiB", Wanted::Below(128.0), memory),
        aim("single: throughput to nginx's", Wanted::AtLeast(0.9), ratio("single")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rounds: &[(Server, &[f64])]) -> Measured {
        let case = cases(CLIENTS, READS).remove(0);
        let figures = |throughput: &f64| Figures {
            completed: case.clients * case.reads,
            throughput_mb_per_s: *throughput,
            ..Figures::default()
        };
        Measured {
            rounds: rounds
                .iter()
                .map(|(server, rounds)| (*server, rounds.iter().map(figures).collect()))
                .collect(),
            case,
        }
    }

    #[test]
    fn servers_are_compared_within_each_round() {
        let fleet = measured(&[
            (Server::Plumbline, &[100.0, 50.0, 100.0]),
            (Server::Nginx, &[100.0, 50.0, 200.0]),
        ]);
        let aims = aims(&[fleet]);
        assert_eq!((aims[1].found, aims[1].is_met()), (Some(1.0), Some(true)));
        assert_eq!(aims[3].is_met(), None, "what was not played is neither met nor missed");
    }

    #[test]
    fn one_answer_that_failed_misses_the_first_aim() {
        let mut fleet = measured(&[(Server::Plumbline, &[100.0, 100.0])]);
        fleet.rounds[0].1[1].completed -= 1;
        let aims = aims(&[fleet]);
        assert_eq!((aims[0].is_met(), aims[1].is_met()), (Some(false), None));
    }
}
