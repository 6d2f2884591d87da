//! What a run says: a table for people, one line of JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Figures, Tree};
use crate::tftp::cases::{Aim, Wanted, median};
use crate::tftp::report::{aim_json, aims_table, rounded};

/// The run as a whole.
#[derive(Debug)]
pub struct Run {
    /// The manifest's figures.
    pub figures: Figures,
    /// Its files.
    pub files: usize,
    /// The tree's; none when it was left out.
    pub tree: Option<Tree>,
    /// Whether the sizes are those of the aims.
    pub is_full_size: bool,
    /// The machine's load (runnable processes, mean of a minute) before the run.
    pub load_before: Option<f64>,
    /// The machine's processors.
    pub processors: usize,
}

impl Run {
    /// Every aim, with what was found.
    fn aims(&self) -> Vec<Aim> {
        let secs = |values: &[f64]| median(values.iter().copied());
        let aim = |name, wanted, found| Aim { name, wanted, found };
        let (figures, tree) = (&self.figures, self.tree.as_ref());
        vec![
            aim("build, s", Wanted::Below(1.0), secs(&figures.build_secs)),
            aim("encode, s", Wanted::Below(1.0), secs(&figures.encode_secs)),
            aim("verify, s", Wanted::Below(1.0), secs(&figures.verify_secs)),
            aim("compare, s", Wanted::Below(1.0), secs(&figures.compare_secs)),
            aim(
                "compressed, MB",
                Wanted::Below(12.0),
                Some(figures.squeezed_bytes as f64 / 1e6),
            ),
            aim(
                "tree: requests",
                Wanted::Below(2_001.0),
                tree.map(|tree| tree.requests as f64),
            ),
            aim(
                "tree: the agent's memory, MiB",
                Wanted::Below(256.0),
                tree.map(|tree| tree.memory_peak_bytes as f64 / f64::from(1 << 20)),
            ),
        ]
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _infallible = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let figures = &self.figures;
        writeln!(
            text,
            "\nmanifest of {} files, {} rounds, medians; {} processors, load before {}",
            self.files,
            figures.build_secs.len(),
            self.processors,
            self.load_before
                .map_or("unknown".to_owned(), |load| format!("{load:.2}"))
        )?;
        writeln!(
            text,
            "text {:.1} MB, compressed {:.1} MB",
            figures.text_bytes as f64 / 1e6,
            figures.squeezed_bytes as f64 / 1e6
        )?;
        match &self.tree {
            Some(tree) => writeln!(
                text,
                "tree of {} files, {:.1} GB: {:.1} MB fetched in {} requests, {:.1} s ({:.1} s for manifest and index), \
                 {:.0} MiB of memory at most",
                tree.files,
                tree.bytes as f64 / 1e9,
                tree.bytes_fetched as f64 / 1e6,
                tree.requests,
                tree.secs,
                tree.manifest_secs,
                tree.memory_peak_bytes as f64 / f64::from(1 << 20)
            )?,
            None => writeln!(text, "the tree was left out")?,
        }
        if !self.is_full_size {
            writeln!(
                text,
                "\nA run in small: the aims are for the full sizes, and say little here."
            )?;
        }
        writeln!(text)?;
        text.push_str(&aims_table(&self.aims()));
        Ok(())
    }

    /// For programs: one object.
    pub fn json(&self) -> Value {
        let each = |values: &[f64]| -> Vec<f64> { values.iter().copied().map(rounded).collect() };
        let (figures, aims) = (&self.figures, self.aims());
        json!({
            "benchmark": "manifest",
            "files": self.files,
            "build_secs": each(&figures.build_secs),
            "encode_secs": each(&figures.encode_secs),
            "verify_secs": each(&figures.verify_secs),
            "compare_secs": each(&figures.compare_secs),
            "text_bytes": figures.text_bytes,
            "squeezed_bytes": figures.squeezed_bytes,
            "tree": self.tree.as_ref().map(|tree| json!({
                "files": tree.files, "bytes": tree.bytes, "requests": tree.requests,
                "bytes_fetched": tree.bytes_fetched, "manifest_secs": rounded(tree.manifest_secs),
                "secs": rounded(tree.secs), "memory_peak_bytes": tree.memory_peak_bytes,
            })),
            "is_full_size": self.is_full_size,
            "processors": self.processors,
            "load_before": self.load_before,
            "aims": aims.iter().map(aim_json).collect::<Vec<_>>(),
            "are_all_aims_met": aims.iter().all(|aim| aim.is_met() == Some(true)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_was_left_out_meets_and_misses_nothing() {
        let figures = Figures {
            build_secs: vec![0.5, 0.1, 3.0],
            encode_secs: vec![1.5],
            verify_secs: vec![0.5],
            compare_secs: vec![0.5],
            squeezed_bytes: 13_000_000,
            ..Figures::default()
        };
        let run = Run {
            figures,
            files: 10,
            tree: None,
            is_full_size: false,
            load_before: None,
            processors: 2,
        };
        let met: Vec<Option<bool>> = run.aims().iter().map(Aim::is_met).collect();
        let expected = [Some(true), Some(false), Some(true), Some(true), Some(false), None, None];
        assert_eq!(met, expected);
        assert_eq!(run.json()["are_all_aims_met"], false);
        assert!(run.table().contains("MISSED"));
    }
}
