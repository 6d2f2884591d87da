//! `plumbline discovery rules …`

use std::path::Path;

use reqwest::Method;
use serde_json::json;

use super::rack_plan::read_file;
use crate::app::rules;
use crate::cli::arguments::RulesCommand;
use crate::cli::output::{self, Output};
use crate::cli::{login, render, text};

/// Runs the command.
///
/// # Errors
/// One line; what is wrong with a file begins with its name, line and column.
pub async fn rules(server: Option<&str>, output: Output, command: &RulesCommand) -> anyhow::Result<()> {
    match command {
        RulesCommand::Show { number, content } => {
            let query: Vec<_> = number.iter().map(|number| ("version", number.to_string())).collect();
            let answer = login::client(server)?.get_with(&["discovery", "rules"], &query).await?;
            if *content && !output.json {
                let content = answer["content"].as_str().unwrap_or_default();
                return output::print(&text::lines(content));
            }
            output.show(&answer, render::rules)
        }
        RulesCommand::Check { file } => {
            let count = check(file)?.1;
            output.say(&format!("{}: {}", file.display(), text::count(count, "rule")))
        }
        RulesCommand::Apply { file } => {
            let (content, _) = check(file)?;
            let body = json!({ "content": content });
            let answer = login::client(server)?
                .send(Method::PUT, &["discovery", "rules"], Some(&body))
                .await?;
            output.show(&answer, render::rules)
        }
    }
}

/// Reads a file and checks it here, so that a mistake is told with the file's name.
fn check(file: &Path) -> anyhow::Result<(String, u64)> {
    let content = read_file(file)?;
    let set = rules::parse(file, &content)?;
    Ok((content, set.rules.len() as u64))
}
