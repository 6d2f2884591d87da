//! What is measured, and what it should come to: values and arithmetic alone.

use super::servers::Server;

/// The fleet's size in the aims.
pub const CLIENTS: usize = 1000;
/// The file's size in the aims, in KiB.
pub const FILE_KIB: usize = 1024;
/// Clients of the cases with some at once.
const CLIENTS_SOME: usize = 64;
/// A single stream reads this many files' length, to last long enough to be measured.
const SINGLE_FACTOR: usize = 16;
/// Packets lost each way in the case with loss.
const LOSS: f64 = 0.01;

/// A server, and the window it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// The server.
    pub server: Server,
    /// The window, in blocks.
    pub window_blocks: u16,
}

const fn contender(server: Server, window_blocks: u16) -> Contender {
    Contender { server, window_blocks }
}

const OWN: Contender = contender(Server::Plumbline, 1);
const OWN_16: Contender = contender(Server::Plumbline, 16);
const BEFORE: Contender = contender(Server::Before, 1);
const BEFORE_16: Contender = contender(Server::Before, 16);
const HPA: Contender = contender(Server::TftpdHpa, 1);
const DNSMASQ: Contender = contender(Server::Dnsmasq, 1);

/// One load, played against several.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// A name, for tables and keys.
    pub name: &'static str,
    /// Clients at once.
    pub clients: usize,
    /// The file's size, in bytes.
    pub file_bytes: usize,
    /// The part of packets lost, each way.
    pub loss: f64,
    /// Who is measured, in the order of the first round.
    pub contenders: &'static [Contender],
}

/// The cases for a fleet of `clients` and a file of `file_kib` KiB.
pub fn cases(clients: usize, file_kib: usize) -> Vec<Case> {
    let file_bytes = file_kib * 1024;
    let some = CLIENTS_SOME.min(clients);
    let case = |name, clients, file_bytes, loss, contenders| Case {
        name,
        clients,
        file_bytes,
        loss,
        contenders,
    };
    vec![
        case("fleet", clients, file_bytes, 0.0, &[OWN, BEFORE, HPA, DNSMASQ][..]),
        case(
            "single",
            1,
            file_bytes * SINGLE_FACTOR,
            0.0,
            &[OWN, BEFORE, HPA, OWN_16, BEFORE_16, DNSMASQ][..],
        ),
        case(
            "some",
            some,
            file_bytes,
            0.0,
            &[OWN, BEFORE, OWN_16, BEFORE_16, HPA, DNSMASQ][..],
        ),
        case(
            "loss",
            some,
            file_bytes,
            LOSS,
            &[OWN, BEFORE, HPA, OWN_16, BEFORE_16][..],
        ),
    ]
}

/// One contender's figures in one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Transfers that were complete and right.
    pub completed: usize,
    /// Content of complete transfers, in megabytes (10⁶ bytes) a second.
    pub throughput_mb_per_s: f64,
    /// From the first request to the last end, in seconds.
    pub wall_secs: f64,
    /// 99 of 100 clients had their first answer within this, in milliseconds.
    pub first_reply_p99_ms: f64,
    /// 99 of 100 transfers were complete within this, in seconds.
    pub duration_p99_secs: f64,
    /// The most memory the server's first process held, in MiB.
    pub memory_mib: f64,
    /// Processor time of the server, in seconds; of tftpd-hpa the part of its children that it has waited for.
    pub server_processor_secs: f64,
    /// Processor time of the load itself, in seconds.
    pub generator_processor_secs: f64,
    /// Packets that clients received.
    pub packets: u64,
    /// Packets lost on purpose, both ways.
    pub dropped: u64,
    /// Timeouts of clients.
    pub timeouts: u64,
    /// Blocks that clients had already.
    pub duplicates: u64,
}

/// All rounds of a case: for each contender that was measured, one entry a round.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Contenders and their rounds, in the case's order.
    pub rounds: Vec<(Contender, Vec<Figures>)>,
}

impl Measured {
    fn of(&self, contender: Contender) -> Option<&[Figures]> {
        let (_, rounds) = self.rounds.iter().find(|(measured, _)| *measured == contender)?;
        Some(rounds)
    }

    /// The median over the rounds of `ours` to `theirs`, each compared within its round.
    fn ratio(&self, ours: Contender, theirs: Contender, value: fn(&Figures) -> f64) -> Option<f64> {
        let pairs = self.of(ours)?.iter().zip(self.of(theirs)?);
        median(pairs.map(|(ours, theirs)| value(ours) / value(theirs)))
    }
}

/// The middle one; of an even number, the mean of the two in the middle. None of none.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((upper + values[values.len() / 2 - 1]) / 2.0)
}

/// The value that `percent` of a hundred values do not exceed (nearest rank); 0 of none.
pub fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted {
    /// This or more.
    AtLeast(f64),
    /// Less than this.
    Below(f64),
}

/// An aim, and what was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Aim {
    /// What it is about.
    pub name: &'static str,
    /// What the figure should be.
    pub wanted: Wanted,
    /// What it is; none when a server it needs was not there.
    pub found: Option<f64>,
}

impl Aim {
    /// Whether it is met; none when it could not be looked at.
    pub fn is_met(&self) -> Option<bool> {
        let found = self.found?;
        Some(match self.wanted {
            Wanted::AtLeast(bound) => found >= bound,
            Wanted::Below(bound) => found < bound,
        })
    }
}

/// Every aim of the project for TFTP, with what was found.
pub fn aims(measured: &[Measured]) -> Vec<Aim> {
    use Wanted::{AtLeast, Below};
    let case = |name: &str| measured.iter().find(|measured| measured.case.name == name);
    let ratio = |name: &str, ours, theirs| case(name)?.ratio(ours, theirs, |figures| figures.throughput_mb_per_s);
    let own = |name: &str, value: fn(&Figures) -> f64| Some(case(name)?.of(OWN)?.iter().map(value));
    let worst = |name: &str, value| own(name, value)?.reduce(f64::max);
    let completed = case("fleet").and_then(|fleet| {
        let fewest = fleet.of(OWN)?.iter().map(|figures| figures.completed).min()?;
        Some(fewest as f64 / fleet.case.clients as f64)
    });
    let aim = |name, wanted, found| Aim { name, wanted, found };
    vec![
        aim("fleet: part of the transfers complete", AtLeast(1.0), completed),
        aim(
            "fleet: throughput to dnsmasq's",
            AtLeast(0.9),
            ratio("fleet", OWN, DNSMASQ),
        ),
        aim(
            "fleet: throughput to tftpd-hpa's",
            AtLeast(1.5),
            ratio("fleet", OWN, HPA),
        ),
        aim(
            "fleet: first answer, 99th of 100, ms",
            Below(250.0),
            own("fleet", |figures| figures.first_reply_p99_ms).and_then(median),
        ),
        aim(
            "fleet: server's memory, MiB",
            Below(64.0),
            worst("fleet", |figures| figures.memory_mib),
        ),
        aim(
            "single stream: throughput to tftpd-hpa's",
            AtLeast(0.9),
            ratio("single", OWN, HPA),
        ),
        aim(
            "1 % loss, lock step: as fast as tftpd-hpa, times",
            AtLeast(3.0),
            ratio("loss", OWN, HPA),
        ),
        aim(
            "1 % loss, window 16 offered: as fast as tftpd-hpa, times",
            AtLeast(3.0),
            ratio("loss", OWN_16, HPA),
        ),
        aim(
            "single stream: window 16 to window 1",
            AtLeast(2.0),
            ratio("single", OWN_16, OWN),
        ),
        aim(
            "64 clients: window 16 to window 1",
            AtLeast(2.0),
            ratio("some", OWN_16, OWN),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, rounds: &[(Contender, &[f64])]) -> Measured {
        let case = cases(CLIENTS, FILE_KIB)
            .into_iter()
            .find(|case| case.name == name)
            .unwrap();
        let figures = |throughput: &f64| Figures {
            completed: case.clients,
            throughput_mb_per_s: *throughput,
            first_reply_p99_ms: *throughput,
            memory_mib: *throughput,
            ..Figures::default()
        };
        Measured {
            rounds: rounds
                .iter()
                .map(|(contender, rounds)| (*contender, rounds.iter().map(figures).collect()))
                .collect(),
            case,
        }
    }

    fn found(aims: &[Aim], name: &str) -> Option<f64> {
        aims.iter().find(|aim| aim.name.starts_with(name)).unwrap().found
    }

    #[test]
    fn servers_are_compared_within_each_round() {
        // The machine was half as fast in the second round: that is no difference between servers.
        let fleet = measured(
            "fleet",
            &[(OWN, &[100.0, 50.0, 100.0]), (DNSMASQ, &[100.0, 50.0, 200.0])],
        );
        let aims = aims(&[fleet]);
        assert_eq!(found(&aims, "fleet: throughput to dnsmasq"), Some(1.0));
        assert_eq!(found(&aims, "fleet: first answer"), Some(100.0));
        assert_eq!(aims[0].is_met(), Some(true));
    }

    #[test]
    fn an_aim_whose_server_was_not_there_is_neither_met_nor_missed() {
        let aims = aims(&[measured("fleet", &[(OWN, &[100.0])])]);
        let hpa = aims.iter().find(|aim| aim.name.contains("tftpd-hpa")).unwrap();
        assert_eq!((hpa.found, hpa.is_met()), (None, None));
    }

    #[test]
    fn one_transfer_that_failed_misses_the_first_aim() {
        let mut fleet = measured("fleet", &[(OWN, &[100.0, 100.0])]);
        fleet.rounds[0].1[1].completed -= 1;
        assert_eq!(aims(&[fleet])[0].is_met(), Some(false));
    }

    #[test]
    fn bounds_count_as_written() {
        let aim = |wanted, found| Aim {
            name: "",
            wanted,
            found: Some(found),
        };
        assert_eq!(aim(Wanted::AtLeast(0.9), 0.9).is_met(), Some(true));
        assert_eq!(aim(Wanted::AtLeast(0.9), 0.89).is_met(), Some(false));
        assert_eq!(aim(Wanted::Below(64.0), 64.0).is_met(), Some(false));
        // A division of nothing by nothing meets nothing.
        assert_eq!(aim(Wanted::AtLeast(0.9), f64::NAN).is_met(), Some(false));
    }

    #[test]
    fn middles_and_ranks() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
        assert_eq!(percentile((1..=1000).map(f64::from).collect(), 99), 990.0);
        assert_eq!(percentile(vec![5.0], 99), 5.0);
        assert_eq!(percentile(vec![], 99), 0.0);
    }

    #[test]
    fn a_smoke_run_is_smaller_in_every_case() {
        for case in cases(20, 100) {
            assert!(case.clients <= 20 && case.file_bytes <= 16 * 100 * 1024, "{case:?}");
        }
    }
}
