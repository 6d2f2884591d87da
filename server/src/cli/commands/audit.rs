//! `plumbline audit`

use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;

/// Lists who decided what.
///
/// # Errors
/// One line.
pub async fn audit(client: &Client, output: Output) -> anyhow::Result<()> {
    output.list(&client.get(&["audit"]).await?, render::audit)
}
