//! What a hardened image carries for those who look at its nodes.

use serde::{Deserialize, Serialize};

use crate::evaluate::evaluate;
use crate::place::Place;
use crate::profile::Profile;
use crate::report::Report;
use crate::waiver::Waiver;

/// A profile with the waivers of an image, as JSON at [`manifest::HARDENING_PROFILE_PATH`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// The rules.
    pub profile: Profile,
    /// What of them is waived.
    pub waivers: Vec<Waiver>,
}

impl Carried {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// Looks at a running node. Rules about every file of the root are left out: the scan looks at each file anyway, and
    /// knows which of them is not as it was.
    #[must_use]
    pub fn evaluate(&self, node: &dyn Place, today: time::Date) -> Report {
        let mut profile = self.profile.clone();
        profile.rules.retain(|rule| !rule.needs_walk());
        evaluate(&profile, node, &self.waivers, today)
    }
}
