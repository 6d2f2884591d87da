//! A run of named steps: stops at the first failure and ends with a table of what took how long.

use anyhow::Result;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

/// The steps so far.
#[derive(Debug, Default)]
pub struct Report {
    steps: Vec<(String, Outcome)>,
    error: Option<anyhow::Error>,
}

impl Report {
    /// Runs one step, unless an earlier one has failed.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        if self.error.is_some() {
            self.steps.push((name.to_owned(), Outcome::NotRun));
            return;
        }
        let started = Instant::now();
        let result = work();
        let took = started.elapsed();
        let outcome = if result.is_ok() {
            Outcome::Passed(took)
        } else {
            Outcome::Failed(took)
        };
        self.steps.push((name.to_owned(), outcome));
        self.error = result.err();
    }

    /// Prints the table and returns the failure, if there was one.
    ///
    /// # Errors
    /// The error of the step that failed.
    pub fn finish(self) -> Result<()> {
        eprint!("\n{}", self.table());
        self.error.map_or(Ok(()), Err)
    }

    fn table(&self) -> String {
        let width = self
            .steps
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or_default();
        let row = |(name, outcome): &(String, Outcome)| match outcome {
            Outcome::Passed(took) => format!("{name:<width$}  {:>7.1} s\n", took.as_secs_f64()),
            Outcome::Failed(took) => format!("{name:<width$}  {:>7.1} s  FAILED\n", took.as_secs_f64()),
            Outcome::NotRun => format!("{name:<width$}        –    not run\n"),
        };
        self.steps.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn nothing_runs_after_a_failure_and_the_table_says_so() {
        let mut report = Report::default();
        report.step("lints", || Ok(()));
        report.step("tests", || bail!("three failed"));
        report.step("end to end", || panic!("must not run"));
        let table = report.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("lints ") && lines[0].ends_with(" s"), "{table}");
        assert!(lines[1].ends_with("FAILED") && lines[2].ends_with("not run"), "{table}");
        assert_eq!(report.finish().unwrap_err().to_string(), "three failed");
    }
}
