//! `plumbline-lab`: plays scenarios in a virtual rack. Started by `cargo xtask e2e` and `cargo xtask demo`.
//!
//! Progress goes to standard error; the last line of standard output is one JSON object with the outcome.

use clap::{Parser, Subcommand};
use lab::environment::LabEnvironment;

use lab::scenario::{BootKind, DemoOptions, E2eOptions, Fault, run_bench_deploy, run_demo, run_e2e};
use lab::simulated::{FleetOptions, run_fleet};
use serde_json::{Value, json};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(
    name = "plumbline-lab",
    about = "Virtual racks: nodes with real firmware on a wire of their own"
)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Play the end-to-end scenarios
    E2e {
        #[command(flatten)]
        environment: LabEnvironment,
        /// The firmware of the nodes
        #[arg(long, value_enum, default_value_t = BootKind::Uefi)]
        firmware: BootKind,
        /// What goes wrong while the ordinary loop is played
        #[arg(long, value_enum, conflicts_with = "scenario")]
        fault: Option<Fault>,
        /// Only the scenario of this name
        #[arg(long, value_name = "NAME")]
        scenario: Option<String>,
    },
    /// Play the demonstration and leave the dashboard running
    Demo {
        #[command(flatten)]
        environment: LabEnvironment,
        /// End after playing it through
        #[arg(long)]
        once: bool,
    },
    /// Measure writing an image on a node beside `zstd -d | tar -x`
    BenchDeploy {
        #[command(flatten)]
        environment: LabEnvironment,
        /// How often each is done
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
        rounds: u32,
        /// For the sake of all benchmarks: the line of JSON is printed in any case
        #[arg(long)]
        json: bool,
    },
    /// Run a simulated fleet until interrupted: real agents on folders
    Simulate(FleetOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match lab::interrupt::install().and_then(|()| play(arguments.action)) {
        Ok(outcome) => {
            println!("{outcome}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            println!("{}", json!({ "ok": false, "error": format!("{error:#}") }));
            ExitCode::FAILURE
        }
    }
}

fn play(action: Action) -> anyhow::Result<Value> {
    match action {
        Action::E2e {
            environment,
            firmware,
            fault,
            scenario,
        } => run_e2e(&E2eOptions {
            environment,
            firmware,
            fault,
            scenario,
        }),
        Action::BenchDeploy {
            environment, rounds, ..
        } => run_bench_deploy(&environment, rounds),
        Action::Simulate(options) => run_fleet(&options).map(|()| json!({})),
        Action::Demo { environment, once } => run_demo(&DemoOptions { environment, once }),
    }
}
