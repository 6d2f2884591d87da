//! What a run says: a table for people, one line of JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cases::{Figures, Measured};
use super::servers::Server;
use crate::tftp::cases::{Aim, median};
use crate::tftp::report::{aim_json, aims_table, rounded};

/// The run as a whole.
#[derive(Debug)]
pub struct Run {
    /// All cases.
    pub measured: Vec<Measured>,
    /// All aims.
    pub aims: Vec<Aim>,
    /// Rounds of each case.
    pub rounds: usize,
    /// Packs that are served.
    pub packs: usize,
    /// Their size, in bytes.
    pub pack_bytes: usize,
    /// Whether the sizes are those of the aims.
    pub is_full_size: bool,
    /// The machine's load (runnable processes, mean of a minute) before the run.
    pub load_before: Option<f64>,
    /// The machine's processors.
    pub processors: usize,
}

impl Run {
    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _infallible = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n{} rounds, medians; {} packs of {} KiB; {} processors, load before {}",
            self.rounds,
            self.packs,
            self.pack_bytes / 1024,
            self.processors,
            self.load_before
                .map_or("unknown".to_owned(), |load| format!("{load:.2}"))
        )?;
        writeln!(
            text,
            "{:<8}{:>8}{:>7}  {:<11}{:>10}{:>9}{:>9}{:>11}{:>10}{:>6}{:>8}{:>8}{:>8}",
            "case",
            "clients",
            "reads",
            "server",
            "complete",
            "MB/s",
            "wall s",
            "1st p99 ms",
            "p99 s",
            "fair",
            "MiB",
            "CPU s",
            "load s"
        )?;
        for measured in &self.measured {
            for (server, rounds) in &measured.rounds {
                let middle = |value: fn(&Figures) -> f64| median(rounds.iter().map(value)).unwrap_or(0.0);
                writeln!(
                    text,
                    "{:<8}{:>8}{:>7}  {:<11}{:>10}{:>9.1}{:>9.2}{:>11.1}{:>10.2}{:>6.2}{:>8.1}{:>8.2}{:>8.2}",
                    measured.case.name,
                    measured.case.clients,
                    measured.case.reads,
                    server.name(),
                    rounds.iter().map(|figures| figures.completed).min().unwrap_or(0),
                    middle(|figures| figures.throughput_mb_per_s),
                    middle(|figures| figures.wall_secs),
                    middle(|figures| figures.first_byte_p99_ms),
                    middle(|figures| figures.duration_p99_secs),
                    middle(|figures| figures.fairness),
                    middle(|figures| figures.memory_mib),
                    middle(|figures| figures.server_processor_secs),
                    middle(|figures| figures.generator_processor_secs),
                )?;
            }
        }
        writeln!(
            text,
            "complete: the fewest of all rounds. fair: the first client's end as a part of the last's. MiB: the peak of the \
             server's processes. CPU s: the server's processor time. load s: the clients'."
        )?;
        for measured in &self.measured {
            for server in [Server::Nginx, Server::Before] {
                if let Some(ratios) = measured.ratios(server) {
                    let ratios: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
                    writeln!(
                        text,
                        "{}: throughput to that of {}, by round: {}",
                        measured.case.name,
                        server.name(),
                        ratios.join(" ")
                    )?;
                }
            }
        }
        if !self.is_full_size {
            writeln!(
                text,
                "\nA run in small: the aims are for the full sizes, and say little here."
            )?;
        }
        writeln!(text)?;
        text.push_str(&aims_table(&self.aims));
        Ok(())
    }

    /// For programs: one object.
    pub fn json(&self) -> Value {
        let cases: Vec<Value> = self.measured.iter().map(case_json).collect();
        let aims: Vec<Value> = self.aims.iter().map(aim_json).collect();
        json!({
            "benchmark": "http",
            "rounds": self.rounds,
            "packs": self.packs,
            "pack_bytes": self.pack_bytes,
            "is_full_size": self.is_full_size,
            "processors": self.processors,
            "load_before": self.load_before,
            "cases": cases,
            "aims": aims,
            "are_all_aims_met": self.aims.iter().all(|aim| aim.is_met() == Some(true)),
        })
    }
}

fn case_json(measured: &Measured) -> Value {
    let servers: Vec<Value> = measured
        .rounds
        .iter()
        .map(|(server, rounds)| {
            let each = |value: fn(&Figures) -> f64| -> Vec<f64> { rounds.iter().map(value).map(rounded).collect() };
            let throughputs = each(|figures| figures.throughput_mb_per_s);
            json!({
                "server": server.name(),
                "completed_min": rounds.iter().map(|figures| figures.completed).min(),
                "throughput_mb_per_s": median(throughputs.iter().copied()),
                "throughputs_mb_per_s": throughputs,
                "wall_secs": each(|figures| figures.wall_secs),
                "first_byte_p99_ms": each(|figures| figures.first_byte_p99_ms),
                "duration_p99_secs": each(|figures| figures.duration_p99_secs),
                "fairness": each(|figures| figures.fairness),
                "memory_mib": each(|figures| figures.memory_mib),
                "server_processor_secs": each(|figures| figures.server_processor_secs),
                "generator_processor_secs": each(|figures| figures.generator_processor_secs),
            })
        })
        .collect();
    let ratios = |server| -> Option<Vec<f64>> { Some(measured.ratios(server)?.into_iter().map(rounded).collect()) };
    json!({
        "name": measured.case.name,
        "clients": measured.case.clients,
        "reads": measured.case.reads,
        "servers": servers,
        "ratios_to_nginx": ratios(Server::Nginx),
        "ratios_to_before": ratios(Server::Before),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::cases::{aims, cases};

    fn run() -> Run {
        let figures = |throughput_mb_per_s| Figures {
            completed: 40,
            throughput_mb_per_s,
            ..Figures::default()
        };
        // nginx is not there.
        let measured: Vec<Measured> = cases(10, 4)
            .into_iter()
            .map(|case| Measured {
                case,
                rounds: vec![
                    (Server::Plumbline, vec![figures(100.0), figures(120.0)]),
                    (Server::Before, vec![figures(50.0), figures(60.0)]),
                ],
            })
            .collect();
        Run {
            aims: aims(&measured),
            measured,
            rounds: 2,
            packs: 4,
            pack_bytes: 65_536,
            is_full_size: false,
            load_before: None,
            processors: 2,
        }
    }

    #[test]
    fn the_table_says_which_aims_are_met_and_not_looked_at() {
        let table = run().table();
        let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert!(line("fleet: part of").ends_with("at least 1: met"), "{table}");
        assert!(
            line("fleet: throughput to nginx").ends_with("not measured: a server is missing"),
            "{table}"
        );
        assert!(
            line("fleet: throughput to that of before").ends_with("2.00 2.00"),
            "{table}"
        );
    }

    #[test]
    fn the_line_for_programs_has_every_case_and_ratio() {
        let json = run().json();
        assert_eq!(json["cases"][0]["servers"][0]["throughput_mb_per_s"], 110.0);
        assert_eq!(json["cases"][0]["ratios_to_before"], json!([2.0, 2.0]));
        assert_eq!(json["cases"][1]["ratios_to_nginx"], Value::Null);
        assert_eq!(json["are_all_aims_met"], false);
        assert!(!json.to_string().contains('\n'));
    }
}
