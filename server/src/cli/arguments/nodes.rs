//! `plumbline node …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::sizes::size_parse;
use crate::cli::tests_argument::TestArgument;

/// On nodes.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List all nodes
    List,
    /// Show one node
    Show {
        /// Id, name or MAC
        node: String,
    },
    /// Add a node of the rack plan
    Add {
        /// Name, also the hostname
        name: String,
        /// MAC of the interface it boots from
        mac: String,
    },
    /// Name a node that waits for approval, and install it
    Approve {
        /// Id, name or MAC
        node: String,
        /// Name, also the hostname
        #[arg(long)]
        name: String,
        /// Where it belongs.
        #[command(flatten)]
        place: PlaceOfNode,
        /// What, and where.
        #[command(flatten)]
        install: InstallArguments,
    },
    /// Say where a node belongs, and how it boots
    Set {
        /// Id, name or MAC
        node: String,
        /// Where it belongs.
        #[command(flatten)]
        place: PlaceOfNode,
        /// Which boot loader it gets
        #[arg(long)]
        chain: Option<ChainArgument>,
        /// The IPv4 address its boot interface gets in DHCP mode full; empty: one from the pool
        #[arg(long)]
        address: Option<String>,
    },
    /// Hold a node back from remediation
    Hold {
        /// Id, name or MAC
        node: String,
        /// For whoever wonders
        #[arg(long)]
        reason: String,
    },
    /// Let a node that was held be repaired again
    Unhold {
        /// Id, name or MAC
        node: String,
    },
    /// Install an image on a node; nothing else stays on its disk
    ///
    /// Over an installation of the same node, files that are right already stay, and only what differs is fetched.
    Deploy {
        /// Id, name or MAC
        node: String,
        /// What, and where.
        #[command(flatten)]
        install: InstallArguments,
        /// Wipe the disk, also when it could be installed over
        #[arg(long)]
        wipe: bool,
        /// Keep this path with all below it, where the image allows something of the node's own; may be repeated
        #[arg(long, value_name = "PATH", conflicts_with = "wipe")]
        keep: Vec<String>,
        /// Have the agent of a running node restart it into the deployer now; without it, the node's next start does it
        #[arg(long)]
        restart: bool,
    },
    /// Boot a node into the rescue system, once: a shell on its consoles, and SSH
    Rescue {
        /// Id, name or MAC
        node: String,
        /// For whoever wonders
        #[arg(long)]
        reason: String,
        /// The public key of whoever signs in; without it a key is made for this once and written to NODE-rescue-key
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Have the agent of a running node restart it now
        #[arg(long)]
        restart: bool,
        /// Return at once, without waiting until the rescue system is up
        #[arg(long)]
        no_wait: bool,
    },
    /// Show what a node boots next, or say it
    Boot {
        /// Id, name or MAC
        node: String,
        /// The deployer in memory only, once: inventory again, and a burn-in; disks hold afterwards what they held before
        #[arg(long, requires = "reason", group = "order")]
        commission: bool,
        /// Tests of the burn-in, such as `memory=12h,disk`: links, network, memory, cpu, disk; without it, those of the
        /// server's configuration
        #[arg(long, value_delimiter = ',', value_parser = TestArgument::parse, requires = "commission")]
        tests: Vec<TestArgument>,
        /// No burn-in
        #[arg(long, requires = "commission", conflicts_with = "tests")]
        inventory_only: bool,
        /// Nothing, until the order is lifted: the machine stops in its loader
        #[arg(long, requires = "reason", group = "order")]
        hold: bool,
        /// What its state says: lifts an order, and ends a rescue system
        #[arg(long, group = "order", conflicts_with = "reason")]
        normal: bool,
        /// For whoever wonders
        #[arg(long)]
        reason: Option<String>,
    },
    /// Show a node's burn-ins: what was tested, and what was found
    BurnIns {
        /// Id, name or MAC
        node: String,
    },
    /// Have the agent of a running node restart it into the network
    Restart {
        /// Id, name or MAC
        node: String,
    },
    /// Rename a node
    Rename {
        /// Id, name or MAC
        node: String,
        /// New name
        name: String,
    },
    /// Forget a node and everything recorded of it
    Remove {
        /// Id, name or MAC
        node: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Let a quarantined node go on
    Release {
        /// Id, name or MAC
        node: String,
    },
    /// Say why a node does not boot: how far it came, what was due next, and what to try
    Why {
        /// Id, name or MAC
        node: String,
    },
    /// Show what a node was seen to do
    Events {
        /// Id, name or MAC
        node: String,
        /// Go on until interrupted
        #[arg(long, short)]
        follow: bool,
    },
    /// Write a node's last DHCP messages to a pcap file
    Packets {
        /// Id, name or MAC
        node: String,
        /// The file; without it NODE.pcap, and `-` for standard output
        file: Option<PathBuf>,
    },
    /// List a node's deployments
    Deployments {
        /// Id, name or MAC
        node: String,
    },
}

/// Where a node belongs.
#[derive(Debug, Args)]
pub struct PlaceOfNode {
    /// Node group: what limits of remediation and scopes of decisions are about
    #[arg(long)]
    pub group: Option<String>,
    /// Rack; an empty one: none
    #[arg(long)]
    pub rack: Option<String>,
    /// Height unit in the rack; 0: unknown
    #[arg(long)]
    pub unit: Option<i32>,
}

/// What is installed, and where.
#[derive(Debug, Args)]
pub struct InstallArguments {
    /// Image: NAME/CHANNEL, NAME (its newest version), NAME@VERSION, or a digest's beginning [default: the channel it was
    /// installed by, else what its discovery rule or its group says]
    #[arg(long)]
    pub image: Option<String>,
    /// Disk with exactly this serial number
    #[arg(long, value_name = "SERIAL")]
    pub disk_serial: Option<String>,
    /// Disk with exactly this world-wide name
    #[arg(long, value_name = "WWN")]
    pub disk_wwn: Option<String>,
    /// Disk whose model contains this
    #[arg(long, value_name = "TEXT")]
    pub disk_model: Option<String>,
    /// Disk of at least this size (400GB, 1TiB)
    #[arg(long, value_name = "SIZE", value_parser = size_parse)]
    pub disk_size_min: Option<u64>,
    /// Disk of at most this size (2TB)
    #[arg(long, value_name = "SIZE", value_parser = size_parse)]
    pub disk_size_max: Option<u64>,
    /// Why it is installed although it did not pass its burn-in
    #[arg(long, value_name = "REASON")]
    pub despite_burn_in: Option<String>,
}

/// Which boot loader takes a machine from its firmware to its script.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ChainArgument {
    /// What its node group or the site says; at last GRUB where Secure Boot was seen on, else iPXE
    Auto,
    /// iPXE, which Secure Boot refuses
    Ipxe,
    /// shim and GRUB, signed for Secure Boot
    Grub,
    /// As grub, and only by UEFI HTTP boot
    Http,
}

impl ChainArgument {
    /// The API's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ipxe => "ipxe",
            Self::Grub => "grub",
            Self::Http => "http",
        }
    }
}
