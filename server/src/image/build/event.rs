//! What a build says to the program that started it: a JSON object a line (`plumbline image build --json-progress`).

use serde::{Deserialize, Serialize};

use super::BuiltImage;
use super::progress::Count;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BuildEvent {
    /// Where the build is.
    Report {
        /// One word.
        stage: String,
        /// One line.
        detail: String,
    },
    /// How far that is.
    Count {
        /// One word.
        stage: String,
        /// So many are done.
        done: u64,
        /// Of so many, where that is known.
        total: Option<u64>,
        /// Of what: `packages`, `bytes`.
        unit: String,
    },
    /// A line for a log.
    Output {
        /// One word.
        stage: String,
        /// The line.
        line: String,
    },
    /// The end: the image is in the store.
    Built {
        /// Its digest, 64 hexadecimal digits.
        digest: String,
        /// Image name.
        name: String,
        /// Version.
        version: String,
    },
    /// The end: there is no image.
    Failed {
        /// Why, with all causes; may be several lines.
        error: String,
    },
}

impl BuildEvent {
    /// How far a stage is.
    #[must_use]
    pub fn count(stage: &str, count: Count) -> Self {
        Self::Count {
            stage: stage.to_owned(),
            done: count.done,
            total: count.total,
            unit: count.unit.to_owned(),
        }
    }

    /// The end of a build that went well.
    #[must_use]
    pub fn built(image: &BuiltImage) -> Self {
        Self::Built {
            digest: image.digest.to_string(),
            name: image.name.clone(),
            version: image.version.clone(),
        }
    }
}
