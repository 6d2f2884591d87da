//! `plumbline channel …`, and the part of `plumbline image …` that keeps a store in order and carries it elsewhere.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::PlaceArguments;

/// On channels.
#[derive(Debug, Subcommand)]
pub enum ChannelCommand {
    /// List channels, what each names, and how many nodes are behind
    List,
    /// Show one channel and the nodes that follow it, those that are behind first
    Show {
        /// NAME/CHANNEL (debian-12-gpu/stable)
        channel: String,
    },
    /// Move a channel to an image version; nodes stay as they are until somebody deploys
    Set {
        /// NAME/CHANNEL (debian-12-gpu/stable); made when there is none
        channel: String,
        /// NAME@VERSION, a digest's beginning, NAME (its newest version), or another channel
        image: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Move a channel back to what it named before; nodes stay as they are
    Back {
        /// NAME/CHANNEL
        channel: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Show who moved a channel from where to where, when and why
    History {
        /// NAME/CHANNEL
        channel: String,
    },
    /// Forget a channel; its history stays
    Remove {
        /// NAME/CHANNEL
        channel: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Say what a group of nodes is to have, or list what was said
    ///
    /// Its nodes count as followers of that channel, and a deployment that names no image takes it. No node is changed.
    Group {
        /// Node group; without it, all are listed
        #[arg(requires = "target")]
        group: Option<String>,
        /// What it is to have.
        #[command(flatten)]
        target: GroupTarget,
    },
}

/// What a group is to have.
#[derive(Debug, Args)]
#[group(id = "target", multiple = false)]
pub struct GroupTarget {
    /// NAME/CHANNEL, or another image reference
    #[arg(long, requires = "group")]
    pub image: Option<String>,
    /// Nothing
    #[arg(long, requires = "group")]
    pub none: bool,
}

/// Keeping images in order.
#[derive(Debug, Subcommand)]
pub enum UpkeepCommand {
    /// Remove image versions that nothing needs, and the packs that only they used
    ///
    /// Kept are: what a node, an open deployment, the running remediation or a channel needs (also what the channel named
    /// before), the newest versions of each name, and everything young.
    Gc {
        /// Only say what would be done, and why
        #[arg(long)]
        dry_run: bool,
        /// How many versions of each name are kept in any case
        #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        keep: u32,
        /// For how many hours everything is kept that is new, and packs that were repacked
        #[arg(long, default_value_t = 24, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(0..=8_760))]
        grace_hours: u32,
    },
    /// Write images of this machine's store to one file, signed, for a site without a network
    ///
    /// An export that was broken off leaves FILE.part; the same command goes on with it.
    Export {
        /// NAME (its newest version), NAME@VERSION, or a digest's beginning
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        /// The file; it must not be there
        file: PathBuf,
        /// Where the data is.
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Take the images of such a file into this machine's store, all of them or none
    ///
    /// Everything is checked before anything is listed. Packs that are there already are not written again.
    Import {
        /// The file
        file: PathBuf,
        /// Where the data is.
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Print the bill of materials of an image version
    Sbom {
        /// NAME, NAME@VERSION, NAME/CHANNEL, or a digest's beginning
        image: String,
        /// In which form
        #[arg(long, default_value = "cyclonedx")]
        format: SbomArgument,
    },
}

/// Which form of a bill of materials.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SbomArgument {
    /// CycloneDX 1.6 JSON
    Cyclonedx,
    /// SPDX 2.3 JSON
    Spdx,
}

impl SbomArgument {
    /// The API's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cyclonedx => "cyclonedx",
            Self::Spdx => "spdx",
        }
    }
}
