//! What a recipe asks of hardening: a profile, and what of it is waived.

use std::path::{Path, PathBuf};

use hardening::{Profile, ProfileError, Waiver, profile_read, waiver_problem};
use schemars::JsonSchema;
use serde::Deserialize;

use super::words::ImageName;
use super::{Problem, schema};

/// The folder of profiles, beside the folders of recipes.
const PROFILES_FOLDER: &str = "profiles";

/// Hardening as a recipe says it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HardeningFile {
    /// The profile: a file of this name in the folder `profiles` beside the recipe's own (`gpu-node`). Its rules are
    /// brought about and then looked at; one that fails ends the build. Taken from the recipe below unless said here.
    #[serde(default)]
    profile: Option<ImageName>,
    /// Rules that may fail, until a day, because somebody answers for it. They are not brought about.
    #[serde(default)]
    #[schemars(with = "Vec<schema::Waiver>")]
    waivers: Vec<Waiver>,
}

/// What the recipes laid so far ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct HardeningWanted {
    file: Option<PathBuf>,
    waivers: Vec<Waiver>,
}

/// A profile, and what of it is waived.
#[derive(Clone, Debug)]
pub struct Hardening {
    /// The rules.
    pub profile: Profile,
    /// Waivers of them, one for each rule at most.
    pub waivers: Vec<Waiver>,
}

impl HardeningWanted {
    /// Lays what one recipe says on top: its profile replaces, its waiver for a rule is the only one.
    pub(super) fn lay(&mut self, folder: &Path, file: HardeningFile) {
        if let Some(name) = file.profile {
            let images = folder.parent().unwrap_or(Path::new("."));
            self.file = Some(images.join(PROFILES_FOLDER).join(format!("{name}.yaml")));
        }
        for waiver in file.waivers {
            self.waivers.retain(|known| known.rule != waiver.rule);
            self.waivers.push(waiver);
        }
    }

    /// Reads the profile. `None` where no recipe names one.
    pub(super) fn load(self) -> Result<Result<Option<Hardening>, Problem>, ProfileError> {
        let Some(file) = self.file else {
            let problem = "waivers belong to a profile: expected profile, too".to_owned();
            let is_right = self.waivers.is_empty();
            return Ok(is_right.then_some(None).ok_or(("hardening", problem)));
        };
        let profile = profile_read(&file)?;
        let problem = self.waivers.iter().find_map(|waiver| waiver_problem(waiver, &profile));
        Ok(match problem {
            Some(problem) => Err(("hardening.waivers", problem)),
            None => Ok(Some(Hardening {
                profile,
                waivers: self.waivers,
            })),
        })
    }
}
