//! `plumbline discovery …`, `plumbline sightings`, `plumbline dhcp-servers`

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::arguments::DiscoveryCommand;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;
use crate::cli::text::cell;
use crate::cli::views::Window;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn discovery(client: &Client, output: Output, command: &DiscoveryCommand) -> anyhow::Result<()> {
    match command {
        DiscoveryCommand::Arm {
            subnet,
            circuit,
            minutes,
            nodes_max,
        } => {
            let body =
                json!({ "subnet": subnet, "relay_circuit": circuit, "minutes": minutes, "nodes_max": nodes_max });
            let answer = client.send(Method::POST, &["discovery"], Some(&body)).await?;
            output.show(&answer, |window: &Window, context| {
                format!(
                    "unknown machines of {} are answered, at most {}; it ends {}\n",
                    cell(window.place()),
                    window.nodes_max,
                    context.age(window.expires_at)
                )
            })
        }
        DiscoveryCommand::Rules(_) => anyhow::bail!("this is run by an entry of its own"),
        DiscoveryCommand::List => output.list(&client.get(&["discovery"]).await?, render::windows),
        DiscoveryCommand::Disarm => {
            let answer = client.send(Method::DELETE, &["discovery"], None).await?;
            output.show(&answer, |ended: &Value, _| match ended["windows"].as_u64() {
                Some(0) | None => "discovery was not armed\n".to_owned(),
                Some(_) => "discovery is not armed any more\n".to_owned(),
            })
        }
    }
}

/// Machines that got no answer.
///
/// # Errors
/// One line.
pub async fn sightings(client: &Client, output: Output) -> anyhow::Result<()> {
    output.list(&client.get(&["sightings"]).await?, render::sightings)
}

/// Lists other DHCP servers.
///
/// # Errors
/// One line.
pub async fn dhcp_servers(client: &Client, output: Output) -> anyhow::Result<()> {
    output.list(&client.get(&["dhcp-servers"]).await?, render::dhcp_servers)
}
