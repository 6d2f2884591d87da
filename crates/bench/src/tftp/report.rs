//! What a run says: a table for people, one line of JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cases::{Aim, Figures, Measured, Wanted, median};

/// The run as a whole.
#[derive(Debug)]
pub struct Run {
    /// All cases.
    pub measured: Vec<Measured>,
    /// All aims.
    pub aims: Vec<Aim>,
    /// Rounds of each case.
    pub rounds: usize,
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
            "\n{} rounds, medians; {} processors, load before {}",
            self.rounds,
            self.processors,
            self.load_before
                .map_or("unknown".to_owned(), |load| format!("{load:.2}"))
        )?;
        writeln!(
            text,
            "{:<8}{:>8}{:>10}  {:<11}{:>6}{:>10}{:>9}{:>9}{:>11}{:>8}{:>8}{:>8}",
            "case",
            "clients",
            "KiB",
            "server",
            "window",
            "complete",
            "MB/s",
            "wall s",
            "1st p99 ms",
            "MiB",
            "CPU s",
            "load s"
        )?;
        for measured in &self.measured {
            let case = &measured.case;
            for (contender, rounds) in &measured.rounds {
                let middle = |value: fn(&Figures) -> f64| median(rounds.iter().map(value)).unwrap_or(0.0);
                writeln!(
                    text,
                    "{:<8}{:>8}{:>10}  {:<11}{:>6}{:>10}{:>9.1}{:>9.2}{:>11.1}{:>8.1}{:>8.2}{:>8.2}",
                    case.name,
                    case.clients,
                    case.file_bytes / 1024,
                    contender.server.name(),
                    contender.window_blocks,
                    rounds.iter().map(|figures| figures.completed).min().unwrap_or(0),
                    middle(|figures| figures.throughput_mb_per_s),
                    middle(|figures| figures.wall_secs),
                    middle(|figures| figures.first_reply_p99_ms),
                    middle(|figures| figures.memory_mib),
                    middle(|figures| figures.server_processor_secs),
                    middle(|figures| figures.generator_processor_secs),
                )?;
            }
        }
        writeln!(
            text,
            "complete: the fewest of all rounds. MiB: the peak of the server's first process. CPU s: processor time of \
             the server (of tftpd-hpa only what its first process knows of). load s: processor time of the clients."
        )?;
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
            "benchmark": "tftp",
            "rounds": self.rounds,
            "is_full_size": self.is_full_size,
            "processors": self.processors,
            "load_before": self.load_before,
            "cases": cases,
            "aims": aims,
            "are_all_aims_met": self.aims.iter().all(|aim| aim.is_met() == Some(true)),
        })
    }
}

/// Aims, for people: one line each.
pub fn aims_table(aims: &[Aim]) -> String {
    let mut text = String::new();
    for aim in aims {
        let verdict = match aim.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured: a server is missing",
        };
        let (sign, bound) = match aim.wanted {
            Wanted::AtLeast(bound) => ("at least", bound),
            Wanted::Below(bound) => ("below", bound),
        };
        let found = aim.found.map_or("–".to_owned(), |found| format!("{found:.2}"));
        let _infallible = writeln!(text, "{:<58}{found:>8}   {sign} {bound}: {verdict}", aim.name);
    }
    text
}

fn case_json(measured: &Measured) -> Value {
    let case = &measured.case;
    let servers: Vec<Value> = measured
        .rounds
        .iter()
        .map(|(contender, rounds)| {
            let each = |value: fn(&Figures) -> f64| -> Vec<f64> { rounds.iter().map(value).map(rounded).collect() };
            let throughputs = each(|figures| figures.throughput_mb_per_s);
            json!({
                "server": contender.server.name(),
                "window_blocks": contender.window_blocks,
                "completed_min": rounds.iter().map(|figures| figures.completed).min(),
                "throughput_mb_per_s": median(throughputs.iter().copied()),
                "throughputs_mb_per_s": throughputs,
                "wall_secs": each(|figures| figures.wall_secs),
                "first_reply_p99_ms": each(|figures| figures.first_reply_p99_ms),
                "duration_p99_secs": each(|figures| figures.duration_p99_secs),
                "memory_mib": each(|figures| figures.memory_mib),
                "server_processor_secs": each(|figures| figures.server_processor_secs),
                "generator_processor_secs": each(|figures| figures.generator_processor_secs),
                "packets": rounds.iter().map(|figures| figures.packets).collect::<Vec<_>>(),
                "dropped": rounds.iter().map(|figures| figures.dropped).collect::<Vec<_>>(),
                "timeouts": rounds.iter().map(|figures| figures.timeouts).collect::<Vec<_>>(),
                "duplicates": rounds.iter().map(|figures| figures.duplicates).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "name": case.name,
        "clients": case.clients,
        "file_bytes": case.file_bytes,
        "loss": case.loss,
        "servers": servers,
    })
}

/// An aim, for programs.
pub fn aim_json(aim: &Aim) -> Value {
    let (key, bound) = match aim.wanted {
        Wanted::AtLeast(bound) => ("at_least", bound),
        Wanted::Below(bound) => ("below", bound),
    };
    json!({ "name": aim.name, key: bound, "found": aim.found.map(rounded), "is_met": aim.is_met() })
}

/// To three places.
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tftp::cases::{aims, cases};
    use crate::tftp::servers::Server;

    fn run() -> Run {
        let measured: Vec<Measured> = cases(10, 64)
            .into_iter()
            .map(|case| {
                let figures = Figures {
                    completed: case.clients,
                    throughput_mb_per_s: 100.0,
                    wall_secs: 1.5,
                    ..Figures::default()
                };
                // dnsmasq is not there.
                let rounds = case
                    .contenders
                    .iter()
                    .filter(|contender| contender.server != Server::Dnsmasq && contender.server != Server::Before)
                    .map(|contender| (*contender, vec![figures.clone(), figures.clone()]))
                    .collect();
                Measured { case, rounds }
            })
            .collect();
        Run {
            aims: aims(&measured),
            measured,
            rounds: 2,
            is_full_size: false,
            load_before: None,
            processors: 2,
        }
    }

    #[test]
    fn the_table_says_which_aims_are_met_missed_and_not_looked_at() {
        let table = run().table();
        let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert!(line("fleet: part of").ends_with("at least 1: met"), "{table}");
        assert!(
            line("fleet: throughput to tftpd").ends_with("at least 1.5: MISSED"),
            "{table}"
        );
        assert!(
            line("fleet: throughput to dnsmasq").ends_with("not measured: a server is missing"),
            "{table}"
        );
        assert!(table.contains("A run in small"));
    }

    #[test]
    fn the_line_for_programs_has_every_case_and_aim() {
        let json = run().json();
        assert_eq!(json["cases"].as_array().unwrap().len(), 4);
        assert_eq!(json["cases"][0]["servers"][1]["server"], "tftpd-hpa");
        assert_eq!(
            json["cases"][0]["servers"][1]["throughputs_mb_per_s"],
            json!([100.0, 100.0])
        );
        assert_eq!(json["aims"][1]["is_met"], Value::Null);
        assert_eq!(json["are_all_aims_met"], false);
        assert!(!json.to_string().contains('\n'));
    }
}
