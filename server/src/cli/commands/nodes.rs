//! `plumbline node …`

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use protocol::latest::DeployMode;
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::boot;
use crate::app::packets::FILE_HEADER_BYTES;
use crate::cli::arguments::{ChainArgument, InstallArguments, NodeCommand};
use crate::cli::client::{Client, is_refusal};
use crate::cli::output::{self, Output};
use crate::cli::views::{Event, Node};

use crate::cli::{password, render, text};

/// Longest wait for events in one request, in seconds.
const WAIT_SECS: u64 = 25;
/// Pause after a failed request for events, and the longest one.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(15);

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn node(client: &Client, output: Output, command: &NodeCommand) -> anyhow::Result<()> {
    match command {
        NodeCommand::List => output.list(&client.get(&["nodes"]).await?, render::nodes),
        NodeCommand::Show { node } => output.show(&client.get(&["nodes", node]).await?, render::node),
        NodeCommand::Add { name, mac } => {
            let body = json!({ "name": name, "mac": mac });
            let answer = client.send(Method::POST, &["nodes"], Some(&body)).await?;
            output.show(&answer, |node: &Node, _| {
                format!("{} is in the rack plan\n", text::cell(node.reference()))
            })
        }
        NodeCommand::Approve {
            node,
            name,
            place,
            install,
        } => {
            let body = json!({ "name": name, "image": install.image, "disk": disk(install), "group": place.group,
                               "rack": place.rack, "unit": place.unit,
                               "despite_burn_in": install.despite_burn_in });
            let answer = client
                .send(Method::POST, &["nodes", node, "approve"], Some(&body))
                .await?;
            output.show(&answer, render::deployment)
        }
        NodeCommand::Deploy {
            node,
            install,
            wipe,
            keep,
            restart,
        } => {
            let mode = if *wipe { DeployMode::Wipe } else { DeployMode::InPlace };
            let body = json!({ "image": install.image, "disk": disk(install), "restart": restart, "mode": mode,
                               "keep": keep, "despite_burn_in": install.despite_burn_in });
            let answer = client
                .send(Method::POST, &["nodes", node, "deployments"], Some(&body))
                .await?;
            output.show(&answer, render::deployment)
        }
        NodeCommand::Set {
            node,
            place,
            chain,
            address,
        } => {
            let chain = chain.map(ChainArgument::as_str);
            let body = json!({ "group": place.group, "rack": place.rack, "unit": place.unit, "chain": chain,
                               "address": address });
            let answer = client.send(Method::PATCH, &["nodes", node], Some(&body)).await?;
            output.show(&answer, render::node)
        }
        NodeCommand::Hold { node, reason } => {
            let body = json!({ "reason": reason });
            let answer = client.send(Method::PUT, &["nodes", node, "hold"], Some(&body)).await?;
            output.show(&answer, |node: &Node, _| {
                format!("{} is held back from remediation\n", text::cell(node.reference()))
            })
        }
        NodeCommand::Unhold { node } => {
            let answer = client.send(Method::DELETE, &["nodes", node, "hold"], None).await?;
            output.show(&answer, |node: &Node, _| {
                format!("{} may be repaired again\n", text::cell(node.reference()))
            })
        }
        NodeCommand::Rescue {
            node,
            reason,
            key,
            restart,
            no_wait,
        } => {
            let wanted = boot::Rescue {
                node,
                reason,
                key: key.as_deref(),
                restart: *restart,
                wait: !no_wait,
            };
            boot::rescue(client, output, &wanted).await
        }
        NodeCommand::Boot {
            node,
            commission,
            tests,
            inventory_only,
            hold,
            normal,
            reason,
        } => {
            let order = match (commission, hold) {
                (true, _) => {
                    let tests: Vec<Value> = tests.iter().map(|test| test.to_json()).collect();
                    let tests = (*inventory_only || !tests.is_empty()).then_some(tests);
                    Some(json!({ "kind": "commission", "reason": reason, "tests": tests }))
                }
                (_, true) => Some(json!({ "kind": "hold", "reason": reason })),
                _ => None,
            };
            boot::boot(client, output, node, order.as_ref(), *normal).await
        }
        NodeCommand::BurnIns { node } => {
            output.list(&client.get(&["nodes", node, "burn-ins"]).await?, render::burn_ins)
        }
        NodeCommand::Restart { node } => {
            let answer = client.send(Method::POST, &["nodes", node, "restart"], None).await?;
            output.show(&answer, render::boot)
        }
        NodeCommand::Rename { node, name } => {
            let body = json!({ "name": name });
            let answer = client.send(Method::PATCH, &["nodes", node], Some(&body)).await?;
            output.show(&answer, |node: &Node, _| {
                format!("the node is {} now\n", text::cell(node.reference()))
            })
        }
        NodeCommand::Remove { node, yes } => remove(client, output, node, *yes).await,
        NodeCommand::Release { node } => {
            let answer = client.send(Method::POST, &["nodes", node, "release"], None).await?;
            output.show(&answer, |node: &Node, _| {
                format!("{} is {} now\n", text::cell(node.reference()), text::cell(&node.state))
            })
        }
        NodeCommand::Events { node, follow: false } => {
            output.list(&client.get(&["nodes", node, "events"]).await?, render::events)
        }
        NodeCommand::Events { node, follow: true } => follow(client, output, node).await,
        NodeCommand::Why { node } => output.show(&client.get(&["nodes", node, "why"]).await?, render::why),
        NodeCommand::Packets { node, file } => packets(client, output, node, file.as_deref()).await,
        NodeCommand::Deployments { node } => {
            let answer = client.get(&["nodes", node, "deployments"]).await?;
            output.list(&answer, render::deployments)
        }
    }
}

fn disk(install: &InstallArguments) -> Value {
    json!({
        "serial": install.disk_serial,
        "wwn": install.disk_wwn,
        "model": install.disk_model,
        "size_min_bytes": install.disk_size_min,
        "size_max_bytes": install.disk_size_max,
    })
}

async fn remove(client: &Client, output: Output, node: &str, yes: bool) -> anyhow::Result<()> {
    let found = Node::deserialize(&client.get(&["nodes", node]).await?)?;
    let label = text::cell(found.reference());
    let question = format!("Forget {label} and everything recorded of it (what is on its disk stays)?");
    if !yes && !password::confirm(&question)? {
        return output.say("nothing was changed");
    }
    // By id: between the question and the answer the name may have gone to another node.
    client.send(Method::DELETE, &["nodes", &found.id], None).await?;
    output.say(&format!("{label} is forgotten"))
}

/// Writes the last DHCP messages to a file, or to standard output.
async fn packets(client: &Client, output: Output, node: &str, file: Option<&Path>) -> anyhow::Result<()> {
    let pcap = client.get_file(&["nodes", node, "packets"]).await?;
    if pcap.len() <= FILE_HEADER_BYTES {
        return output.say(
            "no DHCP message of this node is kept: none has come, or the site's own server answers (dhcp = \"off\")",
        );
    }
    if file == Some(Path::new("-")) {
        return std::io::stdout().write_all(&pcap).context("writing to standard output");
    }
    let path = match file {
        Some(path) => path.to_owned(),
        None => PathBuf::from(format!("{}.pcap", node.replace(['/', ':'], "-"))),
    };
    std::fs::write(&path, &pcap).with_context(|| format!("writing {}", path.display()))?;
    output.say(&format!("{} bytes in {}", pcap.len(), path.display()))
}

/// Prints events as they come, until interrupted. A server that is away for a while is waited for; one that refuses
/// ends it.
async fn follow(client: &Client, output: Output, node: &str) -> anyhow::Result<()> {
    let found = Node::deserialize(&client.get(&["nodes", node]).await?)?;
    let (mut after, mut wait_secs) = (0, 0);
    let mut pause = RETRY_PAUSE;
    loop {
        let query = [("after", after.to_string()), ("wait_secs", wait_secs.to_string())];
        match client.get_with(&["nodes", &found.id, "events"], &query).await {
            Ok(answer) => {
                after = print_events(output, &answer)?.unwrap_or(after);
                wait_secs = WAIT_SECS;
                pause = RETRY_PAUSE;
            }
            Err(error) if is_refusal(&error) => return Err(error),
            Err(error) => {
                eprintln!("{}; trying again", text::cell(&format!("{error:#}")));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
        }
    }
}

/// Prints events, a line each, and gives the id of the last one.
fn print_events(output: Output, answer: &Value) -> anyhow::Result<Option<i64>> {
    let events = Vec::<Event>::deserialize(answer).context("the server's answer is not understood")?;
    let context = output::context();
    if output.json {
        for event in answer.as_array().into_iter().flatten() {
            output::print(&(text::json(&event.to_string()) + "\n"))?;
        }
    } else {
        let lines: String = events.iter().map(|event| render::event_line(event, &context)).collect();
        output::print(&lines)?;
    }
    Ok(events.last().map(|event| event.id))
}
