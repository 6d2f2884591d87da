//! `[images]`: recipes that people may have built by the server, and what a build may take.

use std::path::PathBuf;

use serde::Deserialize;

/// Recipes and builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagesConfig {
    /// The folder whose folders are recipes; none: the server builds nothing.
    pub recipes_dir: Option<PathBuf>,
    /// The agent, which deployers hold.
    pub agent_binary: PathBuf,
    /// The folder of the boot loaders, where it is not the boot plane's.
    pub loaders_dir: Option<PathBuf>,
    /// What a build may take.
    pub builds: BuildLimits,
}

/// What builds may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildLimits {
    /// Builds that may wait.
    pub queued_max: u32,
    /// Longest build, in seconds.
    pub secs_max: u32,
    /// Most memory, in bytes: of all processes of a build where cgroups can be made, else of each.
    pub memory_bytes_max: u64,
    /// Most processor time, in percent of one processor; none: all there is, below everything else.
    pub cpu_percent_max: Option<u32>,
    /// Free bytes that a build begins with, in the data folder's filesystem.
    pub free_bytes_min: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawImages {
    recipes_dir: Option<PathBuf>,
    agent_binary: PathBuf,
    loaders_dir: Option<PathBuf>,
    builds: RawBuilds,
}

impl Default for RawImages {
    fn default() -> Self {
        Self {
            recipes_dir: None,
            agent_binary: PathBuf::from("/usr/lib/plumbline/plumbline-agent"),
            loaders_dir: None,
            builds: RawBuilds::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawBuilds {
    queued_max: u32,
    secs_max: u32,
    memory_bytes_max: u64,
    cpu_percent_max: Option<u32>,
    free_bytes_min: u64,
}

impl Default for RawBuilds {
    fn default() -> Self {
        Self {
            queued_max: 16,
            secs_max: 7_200,
            memory_bytes_max: 4 << 30,
            cpu_percent_max: None,
            free_bytes_min: 8_000_000_000,
        }
    }
}

/// Checks the section. Gives the key and what is wrong with it.
pub(super) fn images(raw: RawImages) -> Result<ImagesConfig, (&'static str, String)> {
    let within = |key, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err((key, format!("{value}: expected {min} to {max}"))),
    };
    let builds = raw.builds;
    within("images.builds.queued_max", builds.queued_max.into(), 1, 1_000)?;
    within("images.builds.secs_max", builds.secs_max.into(), 60, 86_400)?;
    within(
        "images.builds.memory_bytes_max",
        builds.memory_bytes_max,
        512 << 20,
        1 << 50,
    )?;
    if let Some(percent) = builds.cpu_percent_max {
        within("images.builds.cpu_percent_max", percent.into(), 10, 100_000)?;
    }
    within("images.builds.free_bytes_min", builds.free_bytes_min, 0, 1 << 60)?;
    Ok(ImagesConfig {
        recipes_dir: raw.recipes_dir,
        agent_binary: raw.agent_binary,
        loaders_dir: raw.loaders_dir,
        builds: BuildLimits {
            queued_max: builds.queued_max,
            secs_max: builds.secs_max,
            memory_bytes_max: builds.memory_bytes_max,
            cpu_percent_max: builds.cpu_percent_max,
            free_bytes_min: builds.free_bytes_min,
        },
    })
}
