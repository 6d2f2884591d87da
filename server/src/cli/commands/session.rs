//! `plumbline login`, `plumbline logout`

use anyhow::Context as _;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::cli::client::{Client, is_refusal};
use crate::cli::login::{self, Login, login_path};
use crate::cli::output::Output;
use crate::cli::password::password_ask;
use crate::cli::text::cell;

#[derive(Deserialize)]
struct SignedIn {
    token: String,
    name: String,
    role: String,
    expires_at: jiff::Timestamp,
}

/// Signs in and keeps the token for later commands.
///
/// # Errors
/// One line.
pub async fn login(server: Option<&str>, output: Output, user: &str) -> anyhow::Result<()> {
    let path = login_path()?;
    // A damaged file is what a new login mends.
    let saved = Login::load(&path).ok().flatten();
    let (server, _) = login::choose(server, None, saved.as_ref())?;
    let client = Client::new(&server, None)?;
    if client.is_plain() {
        eprintln!("warning: {server} is plain HTTP: the password can be read on the way");
    }
    let password = password_ask(&format!("Password of {} at {server}: ", cell(user)))?;
    let body = json!({ "name": user, "password": password });
    let answer = client.send(Method::POST, &["session"], Some(&body)).await?;
    let signed_in = SignedIn::deserialize(&answer).context("the server's answer is not understood")?;
    let login = Login {
        server: server.clone(),
        name: signed_in.name.clone(),
        token: signed_in.token,
        expires_at: signed_in.expires_at.to_string(),
    };
    login.save(&path)?;
    let (name, role, expires_at) = (&signed_in.name, &signed_in.role, signed_in.expires_at);
    if output.json {
        // Without the token: logs keep what is printed.
        return output
            .json(&json!({ "server": server, "name": name, "role": role, "expires_at": expires_at.to_string() }));
    }
    let context = crate::cli::output::context();
    let ends = context.age(expires_at);
    output.say(&format!(
        "signed in to {server} as {name} ({role}); the session ends {ends}"
    ))
}

/// Ends the session and forgets the login. The login is forgotten even when the server cannot be told.
///
/// # Errors
/// The server did not hear of it, or the file cannot be removed.
pub async fn logout(output: Output) -> anyhow::Result<()> {
    let path = login_path()?;
    let Some(saved) = Login::load(&path).ok().flatten() else {
        let _ = std::fs::remove_file(&path);
        return output.say("nobody was signed in");
    };
    std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    let client = Client::new(&saved.server, Some(saved.token))?;
    let told = client.send(Method::DELETE, &["session"], None).await;
    if let Err(error) = told
        && !is_refusal(&error)
    {
        return Err(error.context("the login is forgotten here, but the session goes on until it expires"));
    }
    output.say(&format!("signed out of {}", saved.server))
}
