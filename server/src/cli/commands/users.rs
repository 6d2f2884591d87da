//! `plumbline user …`

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::arguments::UserCommand;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::password::password_new;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn user(client: &Client, output: Output, command: &UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Add { name, role } => {
            let body = json!({ "name": name, "password": password_new(name)?, "role": role.as_str() });
            let answer = client.send(Method::POST, &["users"], Some(&body)).await?;
            if output.json {
                return output.json(&answer);
            }
            output.say(&format!("{name} may sign in as {}", role.as_str()))
        }
        UserCommand::Token { name, days } => {
            let body = json!({ "days": days });
            let answer = client
                .send(Method::POST, &["users", name, "tokens"], Some(&body))
                .await?;
            output.show(&answer, |made: &Value, _| {
                format!("{}\n", made["token"].as_str().unwrap_or_default())
            })
        }
        UserCommand::Password { name } => {
            let body = json!({ "password": password_new(name)? });
            client
                .send(Method::PATCH, &["users", name, "password"], Some(&body))
                .await?;
            output.say(&format!(
                "the password of {name} is changed; sessions of {name} have ended"
            ))
        }
    }
}
