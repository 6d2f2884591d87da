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
        UserCommand::Add {
            name,
            role,
            no_password,
        } => {
            // A password that nobody ever sees is none.
            let password = match no_password {
                true => hex::encode(rand::random::<[u8; 32]>()),
                false => password_new(name)?,
            };
            let body = json!({ "name": name, "password": password, "role": role.as_str() });
            let answer = client.send(Method::POST, &["users"], Some(&body)).await?;
            if output.json {
                return output.json(&answer);
            }
            let role = role.as_str();
            output.say(&match no_password {
                true => format!("{name} may act as {role} with a token: plumbline user token {name}"),
                false => format!("{name} may sign in as {role}"),
            })
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
