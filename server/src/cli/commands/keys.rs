//! `plumbline key …`

use anyhow::Context as _;
use reqwest::Method;
use serde_json::json;

use crate::cli::arguments::KeyCommand;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;

/// Largest public key file that is sent, in bytes.
const PUBLIC_BYTES_MAX: u64 = 16 << 10;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn key(client: &Client, output: Output, command: &KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::List => output.list(&client.get(&["keys"]).await?, render::keys),
        KeyCommand::Add { file } => {
            let named = || file.display().to_string();
            let size = std::fs::metadata(file).with_context(named)?.len();
            anyhow::ensure!(
                size <= PUBLIC_BYTES_MAX,
                "{}: {size} bytes, expected a public key of a few hundred",
                named()
            );
            let body = json!({ "public_key": std::fs::read_to_string(file).with_context(named)? });
            output.show(&client.send(Method::POST, &["keys"], Some(&body)).await?, render::key)
        }
        KeyCommand::Rotate { resign } => {
            let body = json!({ "resign": resign });
            let answer = client.post_long_with(&["keys", "rotate"], &body).await?;
            output.show(&answer, render::key_rotated)
        }
        KeyCommand::Retire { key } => {
            let answer = client.send(Method::POST, &["keys", key, "retire"], None).await?;
            output.show(&answer, render::key)
        }
        KeyCommand::Revoke { key, reason } => {
            let body = json!({ "reason": reason });
            let answer = client.send(Method::POST, &["keys", key, "revoke"], Some(&body)).await?;
            output.show(&answer, render::key_revoked)
        }
    }
}
