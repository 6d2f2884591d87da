//! `plumbline drift …`

use anyhow::{Context as _, bail};
use jiff::{Span, Timestamp};
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cli::arguments::{DecisionArguments, DriftCommand};
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;
use crate::cli::views::{Group, Variant};

/// Digits of a group's hash that are taken for one; a shorter text is a node's name.
const GROUP_DIGITS_MIN: usize = 8;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn drift(client: &Client, output: Output, command: &DriftCommand) -> anyhow::Result<()> {
    match command {
        DriftCommand::List { all } => output.list(&client.get(&["drift"]).await?, |groups, context| {
            render::groups(groups, *all, context)
        }),
        DriftCommand::Show { what: None } => output.list(&client.get(&["drift"]).await?, |groups, context| {
            render::groups(groups, false, context)
        }),
        DriftCommand::Show { what: Some(what) } => match group_find(client, what).await? {
            Some(group) => {
                let answer = client.get(&["drift", &group.group]).await?;
                output.list(&answer, |variants: &[Variant], context| {
                    render::variants(&group, variants, context)
                })
            }
            None => output.show(&client.get(&["nodes", what, "drift"]).await?, render::node_drift),
        },
        DriftCommand::Diff { group, variant } => {
            let group = group_get(client, group).await?;
            let variant = variant_get(client, &group, variant.as_deref()).await?;
            let answer = client.get(&["drift", &group.group, &variant, "diff"]).await?;
            output.show(&answer, render::diff)
        }
        DriftCommand::History { what } => {
            let answer = match group_find(client, what).await? {
                Some(group) => client.get(&["drift", &group.group, "history"]).await?,
                None => client.get(&["nodes", what, "drift", "history"]).await?,
            };
            output.list(&answer, render::finding_events)
        }
        DriftCommand::Acknowledge { decision } => decide(client, output, "acknowledgement", decision, None).await,
        DriftCommand::Waive { decision, until, days } => {
            let until = match (until, days) {
                (Some(until), _) => *until,
                (None, days) => Timestamp::now()
                    .checked_add(Span::new().hours(24 * days.unwrap_or(1)))
                    .context("days")?,
            };
            decide(client, output, "waiver", decision, Some(until)).await
        }
        DriftCommand::Accept { decision } => decide(client, output, "acceptance", decision, None).await,
        DriftCommand::Reviews { all } => {
            let query = [("all", all.to_string())];
            output.list(&client.get_with(&["reviews"], &query).await?, render::reviews)
        }
        DriftCommand::Withdraw { review } => {
            client.send(Method::DELETE, &["reviews", review], None).await?;
            output.say("the decision is taken back")
        }
    }
}

async fn decide(
    client: &Client,
    output: Output,
    kind: &str,
    decision: &DecisionArguments,
    until: Option<Timestamp>,
) -> anyhow::Result<()> {
    let group = group_get(client, &decision.group).await?;
    let variant = match (&decision.variant, kind) {
        (None, "acceptance") => Some(only_variant(client, &group).await?),
        (None, _) => None,
        (Some(variant), _) => Some(variant_get(client, &group, Some(variant)).await?),
    };
    let (scope, scope_value) = match &decision.scope {
        scope if scope.node.is_some() => ("node", scope.node.as_ref()),
        scope if scope.node_group.is_some() => ("group", scope.node_group.as_ref()),
        _ => ("everywhere", None),
    };
    let body = json!({
        "kind": kind,
        "variant": variant,
        "scope": scope,
        "scope_value": scope_value,
        "reason": decision.reason,
        "expires_at": until.map(|until| until.to_string()),
    });
    let answer = client
        .send(Method::POST, &["drift", &group.group, "reviews"], Some(&body))
        .await?;
    output.show(&answer, |kept: &Value, _| {
        let id = kept["id"].as_str().unwrap_or_default();
        format!(
            "{kind} of {} {} kept; `plumbline drift withdraw {id}` takes it back\n",
            group.kind, group.key
        )
    })
}

async fn variants(client: &Client, group: &Group) -> anyhow::Result<Vec<Variant>> {
    Ok(Vec::<Variant>::deserialize(
        &client.get(&["drift", &group.group]).await?,
    )?)
}

/// An acceptance says what is expected from now on, so it must be clear what that is.
async fn only_variant(client: &Client, group: &Group) -> anyhow::Result<String> {
    let mut variants = variants(client, group).await?;
    match (variants.pop(), variants.len()) {
        (Some(variant), 0) => Ok(variant.variant),
        (None, _) => bail!("nothing differs any more"),
        (Some(_), others) => bail!(
            "there are {} variants: say which one with --variant (`plumbline drift show {}` shows them)",
            others + 1,
            group.group.chars().take(12).collect::<String>()
        ),
    }
}

async fn variant_get(client: &Client, group: &Group, start: Option<&str>) -> anyhow::Result<String> {
    let start = start.unwrap_or_default().to_ascii_lowercase();
    let found = variants(client, group).await?.into_iter();
    let mut found = found.filter(|variant| variant.variant.starts_with(&start));
    // Widest first.
    let first = found
        .next()
        .with_context(|| format!("no variant begins with {start:?}"))?;
    if !start.is_empty() && found.next().is_some() {
        bail!("{start}: several variants begin like this");
    }
    Ok(first.variant)
}

/// The one group whose hash begins like this.
///
/// # Errors
/// None or several do.
pub(super) async fn group_get(client: &Client, start: &str) -> anyhow::Result<Group> {
    group_find(client, start)
        .await?
        .with_context(|| format!("no finding's hash begins with {start:?} (`plumbline drift list --all` shows them)"))
}

async fn group_find(client: &Client, what: &str) -> anyhow::Result<Option<Group>> {
    let is_hash = what.len() >= GROUP_DIGITS_MIN && what.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hash {
        return Ok(None);
    }
    let start = what.to_ascii_lowercase();
    let groups = Vec::<Group>::deserialize(&client.get(&["drift"]).await?)?;
    let mut found = groups.into_iter().filter(|group| group.group.starts_with(&start));
    match (found.next(), found.count()) {
        (_, 1..) => bail!("{what}: several groups begin like this"),
        (group, 0) => Ok(group),
    }
}
