//! `plumbline-bench`: measures the boot plane beside the servers that people know.
//!
//! Idea: another server is the yardstick, not a number of an earlier day: all are measured in turns, on the same
//! machine, within the same minutes, and what counts are the ratios.

mod http;
mod manifests;
mod namespace;
mod process;
mod serve;
mod tftp;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};

use tftp::cases;
use tftp::report::Run;
use tftp::rounds;
use tftp::servers::{Programs, Server};

/// Says to this program that it runs inside the namespace already.
const INSIDE: &str = "--inside";

#[derive(Parser)]
#[command(about = "Measures the boot plane beside other servers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// TFTP beside tftpd-hpa and dnsmasq, in a network namespace of its own.
    Tftp(TftpArguments),
    /// The boot listener's packs beside nginx, in a network namespace of its own.
    Http(HttpArguments),
    /// Manifests of many files, and a large tree written by the agent from a server.
    Manifest(ManifestArguments),
    /// Serve a data folder's packs with the project's boot listener until killed.
    ServeHttp {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
        /// The data folder, which has `images` in it.
        #[arg(long)]
        folder: PathBuf,
    },
    /// Serve a folder with the project's TFTP engine until killed.
    ServeTftp {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
        /// What to serve.
        #[arg(long)]
        folder: PathBuf,
    },
}

#[derive(Args)]
struct TftpArguments {
    /// Clients of the largest case.
    #[arg(long, default_value_t = cases::CLIENTS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    clients: usize,
    /// Size of the file, in KiB; a single stream reads one 16 times as large.
    #[arg(long, default_value_t = cases::FILE_KIB, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    file_kib: usize,
    /// How often each case is played.
    #[arg(long, default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
    /// Which packets are lost, where some are.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these cases: fleet, single, some, loss.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Another build of this program, to measure a change beside what was there before.
    #[arg(long)]
    before: Option<PathBuf>,
    /// tftpd-hpa's in.tftpd.
    #[arg(long, env = "PLUMBLINE_BENCH_TFTPD", default_value = "/usr/sbin/in.tftpd")]
    tftpd: PathBuf,
    /// dnsmasq.
    #[arg(long, env = "PLUMBLINE_BENCH_DNSMASQ", default_value = "/usr/sbin/dnsmasq")]
    dnsmasq: PathBuf,
    /// Print one line of JSON on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Args)]
struct ManifestArguments {
    /// Files of the manifest.
    #[arg(long, default_value_t = manifests::FILES, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(100..=1_000_000))]
    files: usize,
    /// How often each step is done.
    #[arg(long, default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
    /// Files of the tree.
    #[arg(long, default_value_t = manifests::TREE_FILES, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(100..=1_000_000))]
    tree_files: usize,
    /// Bytes of the tree, in MB; a quarter more is needed on the disk meanwhile. 0: no tree.
    #[arg(long, default_value_t = manifests::TREE_MB)]
    tree_mb: u64,
    /// Where the tree is made; what is made there is removed.
    #[arg(long, default_value = "/var/tmp")]
    folder: PathBuf,
    /// The agent.
    #[arg(long, env = "PLUMBLINE_BENCH_AGENT")]
    agent: Option<PathBuf>,
    /// Print one line of JSON on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct HttpArguments {
    /// Clients of the fleet.
    #[arg(long, default_value_t = http::cases::CLIENTS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=5_000))]
    clients: usize,
    /// Packs to read.
    #[arg(long, default_value_t = http::cases::PACKS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    packs: usize,
    /// Size of a pack, in KiB.
    #[arg(long, default_value_t = http::cases::PACK_KIB, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65_536))]
    pack_kib: usize,
    /// Packs that each client of the fleet reads; a single one reads 64 times as many.
    #[arg(long, default_value_t = http::cases::READS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    reads: usize,
    /// How often each case is played.
    #[arg(long, default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
    /// Only these cases: fleet, single.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Another build of this program, to measure a change beside what was there before.
    #[arg(long)]
    before: Option<PathBuf>,
    /// nginx.
    #[arg(long, env = "PLUMBLINE_BENCH_NGINX", default_value = "/usr/sbin/nginx")]
    nginx: PathBuf,
    /// Print one line of JSON on standard output, and the table on standard error.
    #[arg(long)]
    json: bool,
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Http(arguments) if arguments.inside => http(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Http(_) => namespace::run_inside(INSIDE),
        Command::ServeHttp { listen, folder } => http::serve::serve(listen, &folder).map(|()| ExitCode::SUCCESS),
        Command::Manifest(arguments) => manifest(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Tftp(arguments) if arguments.inside => tftp(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Tftp(_) => namespace::run_inside(INSIDE),
        Command::ServeTftp { listen, folder } => serve::serve(listen, &folder).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn tftp(arguments: &TftpArguments) -> Result<()> {
    namespace::prepare()?;
    let programs = Programs {
        own: std::env::current_exe().context("cannot find this program")?,
        before: arguments.before.clone(),
        tftpd: Some(arguments.tftpd.clone()),
        dnsmasq: Some(arguments.dnsmasq.clone()),
    };
    for server in [Server::TftpdHpa, Server::Dnsmasq] {
        if !programs.has(server) {
            eprintln!(
                "note: {} is not here and not measured; `cargo xtask setup` brings it",
                server.name()
            );
        }
    }
    let mut cases = cases::cases(arguments.clients, arguments.file_kib);
    if !arguments.cases.is_empty() {
        cases.retain(|case| arguments.cases.iter().any(|name| name == case.name));
        ensure!(
            !cases.is_empty(),
            "there are no such cases; there are fleet, single, some and loss"
        );
    }
    let folder = tempfile::tempdir().context("cannot make a folder for the file to serve")?;
    let load_before = load_mean();
    let measured = rounds::measure(&cases, arguments.rounds, arguments.seed, &programs, folder.path())?;
    let run = Run {
        aims: cases::aims(&measured),
        measured,
        rounds: arguments.rounds,
        is_full_size: arguments.clients == cases::CLIENTS && arguments.file_kib == cases::FILE_KIB,
        load_before,
        processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    };
    if arguments.json {
        eprint!("{}", run.table());
        println!("{}", run.json());
    } else {
        print!("{}", run.table());
    }
    Ok(())
}

fn http(arguments: &HttpArguments) -> Result<()> {
    namespace::prepare()?;
    let programs = http::servers::Programs {
        own: std::env::current_exe().context("cannot find this program")?,
        before: arguments.before.clone(),
        nginx: arguments.nginx.clone(),
    };
    if !programs.has(http::servers::Server::Nginx) {
        eprintln!("note: nginx is not here and not measured; `cargo xtask setup` brings it");
    }
    let mut cases = http::cases::cases(arguments.clients, arguments.reads);
    if !arguments.cases.is_empty() {
        cases.retain(|case| arguments.cases.iter().any(|name| name == case.name));
        ensure!(!cases.is_empty(), "there are no such cases; there are fleet and single");
    }
    let folder = tempfile::tempdir().context("cannot make a folder for the packs")?;
    let load_before = load_mean();
    let pack_bytes = arguments.pack_kib * 1024;
    let packs = http::rounds::write_packs(folder.path(), arguments.packs, pack_bytes)?.into();
    let measured = http::rounds::measure(&cases, arguments.rounds, &programs, folder.path(), &packs)?;
    let run = http::report::Run {
        aims: http::cases::aims(&measured),
        measured,
        rounds: arguments.rounds,
        packs: arguments.packs,
        pack_bytes,
        is_full_size: arguments.clients == http::cases::CLIENTS
            && arguments.packs == http::cases::PACKS
            && arguments.pack_kib == http::cases::PACK_KIB,
        load_before,
        processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    };
    if arguments.json {
        eprint!("{}", run.table());
        println!("{}", run.json());
    } else {
        print!("{}", run.table());
    }
    Ok(())
}

fn manifest(arguments: &ManifestArguments) -> Result<()> {
    let load_before = load_mean();
    let figures = manifests::measure(arguments.files, arguments.rounds)?;
    let tree = match arguments.tree_mb {
        0 => None,
        megabytes => {
            let agent = arguments.agent.as_ref().context("--agent: the agent's program")?;
            let folder = tempfile::tempdir_in(&arguments.folder).context("cannot make a folder for the tree")?;
            let own = std::env::current_exe().context("cannot find this program")?;
            let bytes = megabytes.saturating_mul(1_000_000);
            let tree = manifests::write(agent, &own, folder.path(), arguments.tree_files, bytes)?;
            folder.close().context("cannot remove the tree")?;
            Some(tree)
        }
    };
    let run = manifests::Run {
        figures,
        files: arguments.files,
        is_full_size: arguments.files == manifests::FILES
            && arguments.tree_files == manifests::TREE_FILES
            && arguments.tree_mb == manifests::TREE_MB,
        tree,
        load_before,
        processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    };
    if arguments.json {
        eprint!("{}", run.table());
        println!("{}", run.json());
    } else {
        print!("{}", run.table());
    }
    Ok(())
}

/// Runnable processes, the mean of the last minute.
fn load_mean() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
