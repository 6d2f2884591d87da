//! `plumbline image gc`

use serde_json::json;

use crate::cli::arguments::UpkeepCommand;
use crate::cli::output::Output;
use crate::cli::{login, render};

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn upkeep(server: Option<&str>, output: Output, command: &UpkeepCommand) -> anyhow::Result<()> {
    match command {
        UpkeepCommand::Gc {
            dry_run,
            keep,
            grace_hours,
        } => {
            let body = json!({ "dry_run": dry_run, "keep": keep, "grace_hours": grace_hours });
            let client = login::client(server)?;
            let answer = client.post_long_with(&["image-collections"], &body).await?;
            output.show(&answer, render::collection)
        }
    }
}
