//! Unit file states.

use drift::FindingKind;
use protocol::latest::{RepairStep, StepOutcome};

use super::site::{Site, failed, refused};

impl Site<'_> {
    /// The verb.
    pub fn set_unit(&mut self, step: &RepairStep, unit: &str) -> StepOutcome {
        let Some(state) = self.expected.facts().units.get(unit).cloned() else {
            return refused("the baseline does not speak of it");
        };
        let difference = match self.check_fact(step, FindingKind::Unit, unit) {
            Ok(difference) => difference,
            Err(outcome) => return outcome,
        };
        let actual = difference.actual.as_ref().and_then(|actual| actual.get("state"));
        match self.parts.units.set_state(unit, actual, &state) {
            Ok(did) => {
                let was = actual.unwrap_or("not there");
                self.proved_fact(FindingKind::Unit, unit, format!("{did}: {state}, was {was}"))
            }
            Err(reason) => failed(reason),
        }
    }
}
