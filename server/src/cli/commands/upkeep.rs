//! `plumbline image gc` and `sbom`.

use serde_json::json;

use crate::cli::arguments::UpkeepCommand;
use crate::cli::output::{self, Output};
use crate::cli::{login, render, text};

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
        UpkeepCommand::Sbom { image, format } => {
            let asked = [("format", format.as_str().to_owned())];
            let path = ["images", image.as_str(), "sbom"];
            let bill = login::client(server)?.get_file_with(&path, &asked).await?;
            // As it lies in the store, so that its digest is the same wherever it is asked for.
            output::print(&text::json(&String::from_utf8_lossy(&bill)))
        }
    }
}
