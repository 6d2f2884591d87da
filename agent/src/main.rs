//! Reads the command line and starts what it names.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use plumbline_agent::deploy::image;
use plumbline_agent::{ramdisk, service};
use tracing_subscriber::EnvFilter;

/// Plumbline's agent.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The agent's configuration.
    #[arg(long, global = true, default_value = "/etc/plumbline/agent.toml")]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the agent of an installed node.
    Run,
    /// Compare this node with its baseline once and print what differs.
    Scan {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write an image into a folder as the deployer does, and print what it took as JSON.
    WriteImage {
        /// Base URL of a boot listener (http://10.77.0.1:8081).
        #[arg(long)]
        from: String,
        /// Digest of the image.
        #[arg(long)]
        image: manifest::Digest,
        /// Public key that signs it.
        #[arg(long)]
        key: String,
        /// Use what is right in the folder, and remove everything else that is in it.
        #[arg(long)]
        over: bool,
        /// An existing folder.
        folder: PathBuf,
    },
    /// The worker of the deployer ramdisk; process 1 of the ramdisk starts it.
    #[command(hide = true)]
    Ramdisk,
}

fn main() -> anyhow::Result<()> {
    let is_init = std::env::args_os()
        .next()
        .is_some_and(|name| name.as_encoded_bytes().ends_with(b"init"));
    if is_init && std::process::id() == 1 {
        ramdisk::run();
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Run => service::run(&arguments.config).await,
            Command::Scan { json } => service::scan_once(&arguments.config, json).await,
            Command::WriteImage {
                from,
                image,
                key,
                over,
                folder,
            } => {
                let wanted = image::Wanted {
                    from,
                    image,
                    key,
                    folder,
                    over,
                };
                let taken = image::write(&wanted).await?;
                println!("{}", serde_json::to_string(&taken)?);
                Ok(())
            }
            Command::Ramdisk => ramdisk::work().await,
        }
    });
    // A thread that waits for the server is not waited for: what it did not finish is told as such after the start.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    result
}
