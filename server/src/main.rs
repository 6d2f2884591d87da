//! `plumbline`: the server, and the operator's commands.

use std::process::ExitCode;

use clap::Parser as _;
use plumbline::cli::{self, Cli, Command};
use plumbline::config::{Config, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{}", cli::error_line(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<u8> {
    match &cli.command {
        Command::Serve(argument) => {
            let config = Config::load(argument.config.as_deref())?;
            log(config.log_format, "info");
            plumbline::serve(config).await?;
        }
        Command::CheckConfig(argument) => cli::commands::check_config(argument.config.as_deref())?,
        Command::Migrate(argument) => {
            log(LogFormat::Text, "warn");
            cli::commands::migrate(argument.config.as_deref()).await?;
        }
        _ => {
            log(LogFormat::Text, "warn");
            return cli::run(cli).await;
        }
    }
    Ok(0)
}

/// Starts the log on standard error; `PLUMBLINE_LOG` says what it holds (`debug`, `plumbline=trace,info`).
fn log(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env("PLUMBLINE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}
