//! The command line as it is typed.

mod keys;
mod nodes;
mod upkeep;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use keys::KeyCommand;
pub use nodes::{ChainArgument, InstallArguments, NodeCommand, PlaceOfNode};
pub use upkeep::{ChannelCommand, GroupTarget, SbomArgument, UpkeepCommand};

/// Racks bare nodes, installs golden images on them, and proves that they still are what the image says.
#[derive(Debug, Parser)]
#[command(name = "plumbline", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// The server's URL [default: the one signed in to, or http://127.0.0.1:8080]
    #[arg(long, global = true, env = "PLUMBLINE_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Print JSON, as the server gives it
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(ConfigArgument),
    /// Check the configuration and say what it amounts to
    CheckConfig(ConfigArgument),
    /// Bring the database up to date, without serving
    Migrate(ConfigArgument),
    /// Sign in; later commands use this login
    Login {
        /// Who
        #[arg(long, default_value = "admin")]
        user: String,
    },
    /// Sign out
    Logout,
    /// Nodes: list, approve, install, watch
    #[command(subcommand)]
    Node(NodeCommand),
    /// Answering machines that nobody listed
    #[command(subcommand)]
    Discovery(DiscoveryCommand),
    /// The rack plan as a CSV file: which machine is to stand where
    #[command(subcommand)]
    RackPlan(RackPlanCommand),
    /// List machines that asked and got no answer
    Sightings,
    /// List other DHCP servers of the network, as machines name them
    DhcpServers,
    /// Channels: names that move from one image version to another
    #[command(subcommand)]
    Channel(ChannelCommand),
    /// Images: build, publish, check
    #[command(subcommand)]
    Image(ImageCommand),
    /// Keys that sign images: list, rotate, retire, revoke
    #[command(subcommand)]
    Key(KeyCommand),
    /// Builds of images by the server: start, list, follow, cancel
    #[command(subcommand)]
    Build(BuildCommand),
    /// What differs from the images
    #[command(subcommand)]
    Drift(DriftCommand),
    /// Deployments: what came of one
    #[command(subcommand)]
    Deployment(DeploymentCommand),
    /// Repair drift: shows the plan; --apply carries it out
    ///
    /// Exit code: 0 nothing is left, 2 drift is left or nobody could look, 1 it could not run.
    Remediate(RemediateArguments),
    /// Remediations: list, show, stop; release wide-spread findings
    #[command(subcommand)]
    Remediation(RemediationCommand),
    /// List who decided what
    Audit,
    /// People who may sign in
    #[command(subcommand)]
    User(UserCommand),
    /// Print completions for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub struct ConfigArgument {
    /// Configuration file; without one, everything has its default
    #[arg(long, env = "PLUMBLINE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// On discovery.
#[derive(Debug, Subcommand)]
pub enum DiscoveryCommand {
    /// Answer unknown machines of a subnet or a relay's circuit for a while
    Arm {
        /// Subnet (10.77.0.0/24)
        #[arg(required_unless_present = "circuit", conflicts_with = "circuit")]
        subnet: Option<String>,
        /// Circuit as the relay writes it (option 82), or its beginning and *
        #[arg(long)]
        circuit: Option<String>,
        /// For how long
        #[arg(long, default_value_t = 60)]
        minutes: i64,
        /// How many machines at most
        #[arg(long, default_value_t = 64, value_name = "NODES")]
        nodes_max: i32,
    },
    /// List what is armed
    List,
    /// End all of it
    Disarm,
    /// Rules that name and place machines as they are found
    #[command(subcommand)]
    Rules(RulesCommand),
}

/// On deployments.
#[derive(Debug, Subcommand)]
pub enum DeploymentCommand {
    /// Show one deployment: what was fetched, kept, written and removed
    ///
    /// `plumbline node deployments NODE --json` has the ids.
    Show {
        /// Its id
        id: String,
    },
}

/// On discovery rules.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show the rules and what they have placed
    Show {
        /// A version that was in force [default: the one that is]
        #[arg(value_name = "VERSION")]
        number: Option<i64>,
        /// Print the YAML, as it was applied
        #[arg(long)]
        content: bool,
    },
    /// Check a file, without a server
    Check {
        /// The file
        file: PathBuf,
    },
    /// Put a file in force, as a new version
    Apply {
        /// The file
        file: PathBuf,
    },
}

/// On the rack plan.
#[derive(Debug, Subcommand)]
pub enum RackPlanCommand {
    /// Write the plan as a file
    Export {
        /// Where to; -: standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Bring a file into the plan, all of it or nothing
    ///
    /// Its first line names its columns: rack, unit, serial, mac, bmc_address, name, group, switch_port. A cell may be
    /// empty, and a column may be missing. Lines of the plan that the file does not have stay.
    Import {
        /// The file; -: standard input
        file: PathBuf,
        /// Only say what it would do
        #[arg(long)]
        dry_run: bool,
    },
}

/// On images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List image versions
    List,
    /// Show one image version
    Show {
        /// NAME, NAME@VERSION, NAME/CHANNEL, or a digest's beginning
        image: String,
    },
    /// Check an image version from its signature to every byte
    Verify {
        /// NAME, NAME@VERSION, NAME/CHANNEL, or a digest's beginning
        image: String,
    },
    /// Show what is different between two image versions
    Diff {
        /// NAME, NAME@VERSION, NAME/CHANNEL, or a digest's beginning
        before: String,
        /// The one it is compared with
        now: String,
        /// Show what is different in the text of this file
        #[arg(long, value_name = "PATH")]
        text: Option<String>,
        /// Show all paths, not only the first 50
        #[arg(long)]
        all: bool,
    },
    /// Remove an image version that nothing uses
    Remove {
        /// NAME, NAME@VERSION, NAME/CHANNEL, or a digest's beginning
        image: String,
    },
    /// Bar an image version for good: nothing is installed or repaired from it any more
    Revoke {
        /// NAME, NAME@VERSION, a digest's beginning, or a whole digest that is not here
        image: String,
        /// Why, for whoever meets it later
        #[arg(long)]
        reason: String,
    },
    /// Put a signature that was made on another machine to its image, in the server's data folder
    Sign {
        /// The whole digest of its manifest
        digest: String,
        /// The .minisig file
        #[arg(long, value_name = "FILE")]
        signature: PathBuf,
        /// Where the data is.
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Build an image on this machine, as root, into the server's data folder
    Build {
        /// Folder of the recipe (images/debian-12-lab)
        dir: PathBuf,
        /// Where the data is.
        #[command(flatten)]
        place: PlaceArguments,
        /// Folder with the boot loaders [default: the configuration's]
        #[arg(long, value_name = "DIR")]
        loaders: Option<PathBuf>,
        /// Agent binary, which a deployer holds
        #[arg(long, value_name = "FILE")]
        agent: Option<PathBuf>,
        /// For programs: say everything as JSON, an object a line, and stop when standard input is closed
        #[arg(long, conflicts_with = "json")]
        json_progress: bool,
    },
    /// Check a recipe, and those it extends, without building anything
    Check {
        /// Folder of the recipe (images/debian-12-lab)
        dir: PathBuf,
    },
    /// Look up today's packages of a recipe, as root, and write its lock
    ///
    /// An image with a lock (image.lock beside image.yaml) is built from exactly these packages, and twice the same image
    /// to the byte.
    Update {
        /// Folder of the recipe (images/debian-12-lab)
        dir: PathBuf,
        /// Where the data is.
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Keeping images in order.
    #[command(flatten)]
    Upkeep(UpkeepCommand),
    /// Print the JSON Schema of recipes, for editors
    Schema,
    /// Publish an agent binary: nodes get it at their next installation
    PublishAgent {
        /// The agent binary
        binary: PathBuf,
        /// Where the data is.
        #[command(flatten)]
        place: PlaceArguments,
    },
}

/// On builds by the server.
#[derive(Debug, Subcommand)]
pub enum BuildCommand {
    /// List the recipes that the server may build, and what is wrong with them
    Recipes,
    /// Have the server build a recipe
    ///
    /// With --follow the exit code is 0 when the image is made, and 1 when the build failed or was cancelled.
    Start {
        /// Name of the recipe's folder
        recipe: String,
        /// Show its log until it is over
        #[arg(long)]
        follow: bool,
    },
    /// List builds, newest first
    List,
    /// Show what a build said
    Log {
        /// Its id, or the beginning of it [default: the newest]
        build: Option<String>,
        /// Go on until it is over; the exit code is then as of start --follow
        #[arg(long)]
        follow: bool,
    },
    /// End a build that waits or runs
    Cancel {
        /// Its id, or the beginning of it [default: the one that runs]
        build: Option<String>,
    },
}

/// Where a local command finds the server's data.
#[derive(Debug, Args)]
pub struct PlaceArguments {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Data folder, instead of the configuration's
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// On drift.
#[derive(Debug, Subcommand)]
pub enum DriftCommand {
    /// List what differs over all nodes: one line for the same thing on many
    List {
        /// What people have waived or accepted, too
        #[arg(long)]
        all: bool,
    },
    /// Show a node's drift, or one group over all nodes
    Show {
        /// A node (id, name or MAC), or the beginning of a group's hash
        #[arg(value_name = "NODE|GROUP")]
        what: Option<String>,
    },
    /// Show what changed in a text file
    Diff {
        /// Beginning of the group's hash
        group: String,
        /// Beginning of the variant's hash [default: the one on most nodes]
        variant: Option<String>,
    },
    /// Show what became of findings
    History {
        /// A node (id, name or MAC), or the beginning of a group's hash
        #[arg(value_name = "NODE|GROUP")]
        what: String,
    },
    /// Say that you have seen it; it stays drift
    Acknowledge {
        /// What it is about.
        #[command(flatten)]
        decision: DecisionArguments,
    },
    /// Allow it until an instant
    Waive {
        /// What it is about.
        #[command(flatten)]
        decision: DecisionArguments,
        /// Until when, in UTC (2026-12-24T18:00:00Z)
        #[arg(long, value_name = "INSTANT", required_unless_present = "days")]
        until: Option<jiff::Timestamp>,
        /// For how many days from now
        #[arg(long, conflicts_with = "until", value_parser = clap::value_parser!(i64).range(1..=366))]
        days: Option<i64>,
    },
    /// Expect it from now on, as it is now; another variant is drift again
    Accept {
        /// What it is about.
        #[command(flatten)]
        decision: DecisionArguments,
    },
    /// List what people have decided
    Reviews {
        /// What ran out or was taken back, too
        #[arg(long)]
        all: bool,
    },
    /// Take a decision back
    Withdraw {
        /// Its id
        review: String,
    },
}

/// What a decision is about.
#[derive(Debug, Args)]
pub struct DecisionArguments {
    /// Beginning of the group's hash
    pub group: String,
    /// Beginning of one variant's hash [default: all; for an acceptance the only one there is]
    #[arg(long)]
    pub variant: Option<String>,
    /// Why
    #[arg(long)]
    pub reason: String,
    /// Where it holds.
    #[command(flatten)]
    pub scope: ScopeArguments,
}

/// Where a decision holds.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ScopeArguments {
    /// On this node
    #[arg(long)]
    pub node: Option<String>,
    /// On this group of nodes
    #[arg(long)]
    pub node_group: Option<String>,
    /// On all nodes
    #[arg(long)]
    pub everywhere: bool,
}

/// What is repaired: everything, unless something is named.
#[derive(Debug, Args)]
pub struct RemediateArguments {
    /// Carry the plan out; without it nothing is changed
    #[arg(long)]
    pub apply: bool,
    /// Do not wait for the end (with --apply)
    #[arg(long, requires = "apply")]
    pub no_wait: bool,
    /// Only this node; may be given several times
    #[arg(long, value_name = "NODE")]
    pub node: Vec<String>,
    /// Only this group of nodes; may be given several times
    #[arg(long, value_name = "GROUP")]
    pub node_group: Vec<String>,
    /// Only this finding, by the beginning of its hash; may be given several times
    #[arg(long, value_name = "HASH")]
    pub finding: Vec<String>,
}

/// On remediations.
#[derive(Debug, Subcommand)]
pub enum RemediationCommand {
    /// List remediations
    List,
    /// Show one, node by node
    Show {
        /// Its id [default: the newest]
        run: Option<String>,
    },
    /// Begin no further node; what is under way comes to its end
    Stop {
        /// Its id [default: the one that runs]
        run: Option<String>,
    },
    /// Let a finding that stands on much of a group of nodes be repaired there: somebody has looked
    Release {
        /// Beginning of the finding's hash
        finding: String,
        /// The group of nodes
        #[arg(long)]
        node_group: String,
        /// What was seen when looking
        #[arg(long)]
        reason: String,
        /// For how many hours
        #[arg(long, default_value_t = 24)]
        hours: i64,
    },
    /// List what is released
    Releases,
}

/// On people.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add somebody; the password is asked for, or read from standard input
    Add {
        /// Sign-in name
        name: String,
        /// What they may do
        #[arg(long, default_value = "viewer")]
        role: RoleArgument,
        /// For a program: nobody signs in by this name, only its tokens work
        #[arg(long)]
        no_password: bool,
    },
    /// Print a token for a program that acts as this user (PLUMBLINE_TOKEN)
    Token {
        /// Sign-in name
        name: String,
        /// For how many days
        #[arg(long, default_value_t = 90)]
        days: i64,
    },
    /// Change a password; the user's logins and tokens end
    Password {
        /// Sign-in name
        name: String,
    },
}

/// What a person may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArgument {
    /// Reads and changes
    Admin,
    /// Reads
    Viewer,
}

impl RoleArgument {
    /// The API's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        super::Cli::command().debug_assert();
    }
}
