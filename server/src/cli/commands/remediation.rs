//! `plumbline remediate`, `plumbline remediation …`

use std::time::Duration;

use anyhow::Context as _;
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::drift::group_get;
use crate::cli::arguments::{RemediateArguments, RemediationCommand};
use crate::cli::client::{Client, is_refusal};
use crate::cli::output::Output;
use crate::cli::views::{Plan, Run};
use crate::cli::{render, text};

/// Exit codes of `remediate`; 1 is every error.
const NOTHING_LEFT: u8 = 0;
const DRIFT_LEFT: u8 = 2;
/// Pause between two looks at a run, and how many failures in a row end the waiting.
const PAUSE: Duration = Duration::from_secs(2);
const FAILURES_MAX: u32 = 60;

/// Shows the plan, or carries it out and waits for its end.
///
/// # Errors
/// One line: it could not run.
pub async fn remediate(client: &Client, output: Output, arguments: &RemediateArguments) -> anyhow::Result<u8> {
    let mut findings = Vec::new();
    for start in &arguments.finding {
        findings.push(group_get(client, start).await?.group);
    }
    let query = [
        ("nodes", arguments.node.join(",")),
        ("node_groups", arguments.node_group.join(",")),
        ("findings", findings.join(",")),
    ];
    if !arguments.apply {
        let answer = client.get_with(&["remediation", "plan"], &query).await?;
        output.show(&answer, render::plan)?;
        return Ok(exit_code(&Plan::deserialize(&answer)?));
    }
    let body = json!({ "nodes": arguments.node, "node_groups": arguments.node_group, "findings": findings });
    let begun = client.send(Method::POST, &["remediation", "runs"], Some(&body)).await?;
    let run = Run::deserialize(&begun).context("the server's answer is not understood")?;
    if arguments.no_wait {
        output.show(&begun, render::run)?;
        // A run that had nothing to do is over at once, and says nothing of what it left alone.
        let answer = client.get_with(&["remediation", "plan"], &query).await?;
        return Ok(exit_code(&Plan::deserialize(&answer)?));
    }
    let ended = wait(client, output, run).await?;
    // What is left is looked up again: a run that went well says nothing about what it left alone.
    let answer = client.get_with(&["remediation", "plan"], &query).await?;
    let left = Plan::deserialize(&answer)?;
    if output.json {
        output.json(&json!({ "run": ended, "left": answer }))?;
    } else {
        output.show(&ended, render::run)?;
        output.show(&answer, render::left)?;
    }
    Ok(exit_code(&left))
}

/// A node that nobody could look at may hide anything.
fn exit_code(plan: &Plan) -> u8 {
    match plan.findings == 0 && plan.held_findings == 0 && plan.unknown.is_empty() {
        true => NOTHING_LEFT,
        false => DRIFT_LEFT,
    }
}

async fn wait(client: &Client, output: Output, mut run: Run) -> anyhow::Result<Value> {
    let (mut said, mut failures) = (String::new(), 0);
    loop {
        match client.get(&["remediation", "runs", &run.id]).await {
            Ok(answer) => {
                failures = 0;
                run = Run::deserialize(&answer).context("the server's answer is not understood")?;
                if !output.json && run.reason != said {
                    eprintln!("{}", text::cell(&run.reason));
                    said.clone_from(&run.reason);
                }
                if run.state != "running" {
                    return Ok(answer);
                }
            }
            // A server that is restarted carries the run on.
            Err(error) if is_refusal(&error) || failures >= FAILURES_MAX => return Err(error),
            Err(_) => failures += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn remediation(client: &Client, output: Output, command: &RemediationCommand) -> anyhow::Result<()> {
    match command {
        RemediationCommand::List => output.list(&client.get(&["remediation", "runs"]).await?, render::runs),
        RemediationCommand::Show { run } => {
            let id = id_or_newest(client, run.as_deref(), |_| true).await?;
            output.show(&client.get(&["remediation", "runs", &id]).await?, render::run)
        }
        RemediationCommand::Stop { run } => {
            let id = id_or_newest(client, run.as_deref(), |run| run.state == "running").await?;
            let answer = client
                .send(Method::POST, &["remediation", "runs", &id, "stop"], None)
                .await?;
            output.show(&answer, render::run)
        }
        RemediationCommand::Release {
            finding,
            node_group,
            reason,
            hours,
        } => {
            let group = group_get(client, finding).await?;
            let body = json!({ "group": group.group, "node_group": node_group, "reason": reason, "hours": hours });
            client
                .send(Method::POST, &["remediation", "releases"], Some(&body))
                .await?;
            output.say(&format!(
                "{} {} may be repaired on the nodes of {node_group} for {hours} h",
                group.kind, group.key
            ))
        }
        RemediationCommand::Releases => output.list(&client.get(&["remediation", "releases"]).await?, render::releases),
    }
}

async fn id_or_newest(client: &Client, id: Option<&str>, fits: impl Fn(&Run) -> bool) -> anyhow::Result<String> {
    if let Some(id) = id {
        return Ok(id.to_owned());
    }
    let runs = Vec::<Run>::deserialize(&client.get(&["remediation", "runs"]).await?)?;
    let found = runs.into_iter().find(fits);
    Ok(found.context("there is no such remediation")?.id)
}
