//! The command line of operators. Commands speak the HTTP API and so work from anywhere with a login; only building
//! images is work on the machine itself.
//!
//! What comes from a server or a node is escaped before it reaches a terminal. Errors are one line that says what to
//! do; the exit code is 1 for them and 2 for a command line that is none. `remediate` also ends with 2 when drift is left.

pub mod arguments;
pub mod client;
pub mod commands;
pub mod login;
pub mod output;
mod password;
pub mod render;
pub mod sizes;
pub mod table;
pub mod tests_argument;
pub mod text;
pub mod views;

use clap::CommandFactory as _;

use arguments::DiscoveryCommand;
pub use arguments::{Cli, Command};
use output::Output;

/// Runs a command that is not the server's own. Returns its exit code: 0, except for `remediate`.
///
/// # Errors
/// One line, with its causes.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let output = Output { json: cli.json };
    let server = cli.server.as_deref();
    let done = match &cli.command {
        Command::Remediate(arguments) => return commands::remediate(&login::client(server)?, output, arguments).await,
        Command::Remediation(command) => commands::remediation(&login::client(server)?, output, command).await,
        Command::Audit => commands::audit(&login::client(server)?, output).await,
        Command::Login { user } => commands::login(server, output, user).await,
        Command::Logout => commands::logout(output).await,
        Command::Node(command) => commands::node(&login::client(server)?, output, command).await,
        Command::Deployment(command) => commands::deployment(&login::client(server)?, output, command).await,
        Command::Discovery(DiscoveryCommand::Rules(command)) => commands::rules(server, output, command).await,
        Command::Discovery(command) => commands::discovery(&login::client(server)?, output, command).await,
        Command::RackPlan(command) => commands::rack_plan(&login::client(server)?, output, command).await,
        Command::DhcpServers => commands::dhcp_servers(&login::client(server)?, output).await,
        Command::Sightings => commands::sightings(&login::client(server)?, output).await,
        Command::Channel(command) => commands::channel(&login::client(server)?, output, command).await,
        Command::Image(command) => commands::image(server, output, command).await,
        Command::Key(command) => commands::key(&login::client(server)?, output, command).await,
        Command::Build(command) => commands::builds(&login::client(server)?, output, command).await,
        Command::Drift(command) => commands::drift(&login::client(server)?, output, command).await,
        Command::User(command) => commands::user(&login::client(server)?, output, command).await,
        Command::Completion { shell } => completion(*shell),
        Command::Serve(_) | Command::CheckConfig(_) | Command::Migrate(_) => {
            anyhow::bail!("this is run by the server's own entry")
        }
    };
    done.map(|()| 0)
}

fn completion(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plumbline", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// An error as the one line that is printed.
#[must_use]
pub fn error_line(error: &anyhow::Error) -> String {
    format!("error: {}", text::lines(&format!("{error:#}")))
}
