//! A scan for people at a console, and for programs.

use std::fmt::Write;

use drift::Attributes;

use crate::report::NodeState;

/// One JSON value.
pub(super) fn json(state: &NodeState) -> serde_json::Result<String> {
    let value = serde_json::json!({
        "baseline": state.baseline,
        "state": state.state,
        "scan": state.scan,
        "not_looked_at": state.not_looked_at,
        "differences": state.differences,
    });
    serde_json::to_string_pretty(&value).map(|text| text + "\n")
}

/// One line for each difference and for each place that could not be looked at, then a summary. All names are escaped
/// already: nothing of a node reaches a terminal raw.
pub(super) fn text(state: &NodeState) -> String {
    let mut text = String::new();
    for difference in &state.differences {
        let side =
            |attributes: &Option<Attributes>| attributes.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let _ = writeln!(
            text,
            "{} {}: expected {}, is {}",
            difference.kind.as_str(),
            difference.key,
            side(&difference.expected),
            side(&difference.actual)
        );
    }
    for place in &state.not_looked_at {
        let _ = writeln!(
            text,
            "{} {}: could not look ({})",
            place.kind,
            place.key,
            place.observation.name()
        );
    }
    let scan = &state.scan;
    let _ = writeln!(
        text,
        "{} paths in {:.1} s, {} MB read, against baseline {}: {} differences, {} places not looked at{}",
        scan.entries(),
        scan.duration_ms as f64 / 1000.0,
        scan.hashed_bytes / 1_000_000,
        state.baseline.short(),
        scan.difference_count,
        scan.not_looked_at_count,
        if scan.complete {
            ""
        } else {
            "; the scan is not complete"
        }
    );
    text
}
