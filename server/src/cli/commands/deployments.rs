//! `plumbline deployment …`

use crate::cli::arguments::DeploymentCommand;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn deployment(client: &Client, output: Output, command: &DeploymentCommand) -> anyhow::Result<()> {
    match command {
        DeploymentCommand::Show { id } => {
            output.show(&client.get(&["deployments", id]).await?, render::deployment_in_full)
        }
    }
}
