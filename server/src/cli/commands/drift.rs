//! `plumbline drift …`

use anyhow::bail;
use serde::Deserialize as _;

use crate::cli::arguments::DriftCommand;
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
        DriftCommand::List | DriftCommand::Show { what: None } => {
            output.list(&client.get(&["drift"]).await?, render::groups)
        }
        DriftCommand::Show { what: Some(what) } => match group_find(client, what).await? {
            Some(group) => {
                let answer = client.get(&["drift", &group.group]).await?;
                output.list(&answer, |variants: &[Variant], context| {
                    render::variants(&group, variants, context)
                })
            }
            None => output.show(&client.get(&["nodes", what, "drift"]).await?, render::node_drift),
        },
    }
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
