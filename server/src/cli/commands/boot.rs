//! `plumbline node rescue`, `plumbline node boot`: what a node boots, once.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};
use ssh_key::private::Ed25519Keypair;
use ssh_key::{LineEnding, PrivateKey};

use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;
use crate::cli::views::{Boot, Node};

/// A server's self-test, its firmware and the deployer take minutes.
const WAIT_LIMIT: Duration = Duration::from_secs(30 * 60);
const WAIT_PAUSE: Duration = Duration::from_secs(3);

/// What `plumbline node rescue` is asked for.
pub struct Rescue<'a> {
    pub node: &'a str,
    pub reason: &'a str,
    pub key: Option<&'a Path>,
    pub restart: bool,
    pub wait: bool,
}

/// Orders the rescue system and waits until one can sign in.
///
/// # Errors
/// One line.
pub async fn rescue(client: &Client, output: Output, wanted: &Rescue<'_>) -> anyhow::Result<()> {
    let found = Node::deserialize(&client.get(&["nodes", wanted.node]).await?)?;
    let (public, private) = match wanted.key {
        Some(path) => (read_public(path)?, None),
        None => {
            let (public, path) = make_key(found.reference())?;
            (public, Some(path))
        }
    };
    let body = json!({ "kind": "rescue", "reason": wanted.reason, "authorized_key": public });
    let ordered = client
        .send(Method::PUT, &["nodes", &found.id, "boot"], Some(&body))
        .await;
    let mut answer = match (ordered, &private) {
        (Ok(answer), _) => answer,
        (Err(error), Some(path)) => {
            // A key for nothing.
            let _harmless = std::fs::remove_file(path);
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    if wanted.restart {
        answer = client
            .send(Method::POST, &["nodes", &found.id, "restart"], None)
            .await?;
    }
    if wanted.wait {
        if !wanted.restart {
            eprintln!(
                "A machine that waits in the deployer takes it up at once; any other at its next start: restart it by its BMC \
                 or power button, or use --restart."
            );
        }
        eprintln!("Waiting until the rescue system is up; Ctrl-C ends the waiting, not the order.");
        answer = wait(client, &found.id).await?;
    }
    let key = private.unwrap_or_default();
    output.show(&answer, |boot: &Boot, context| {
        let mut text = render::boot(boot, context);
        if let Some((address, host_key)) = boot.ssh() {
            let identity = match key.as_os_str().is_empty() {
                true => String::new(),
                false => format!(" -i {}", key.display()),
            };
            text.push_str(&format!(
                "\n  echo '{address} {host_key}' > rescue-known-hosts\n  \
                 ssh{identity} -o UserKnownHostsFile=rescue-known-hosts root@{address}\n"
            ));
        } else if !key.as_os_str().is_empty() {
            text.push_str(&format!("\nThe key to sign in with is {}.\n", key.display()));
        }
        text
    })
}

async fn wait(client: &Client, node: &str) -> anyhow::Result<serde_json::Value> {
    let started = Instant::now();
    loop {
        let answer = client.get(&["nodes", node, "boot"]).await?;
        let boot = Boot::deserialize(&answer)?;
        match &boot.order {
            None => bail!("the order was lifted meanwhile"),
            Some(_) if boot.ssh().is_some() => return Ok(answer),
            Some(_) if started.elapsed() > WAIT_LIMIT => {
                bail!(
                    "not up after {} minutes; `plumbline node why` says how far it came, and the order stays",
                    WAIT_LIMIT.as_secs() / 60
                )
            }
            Some(_) => tokio::time::sleep(WAIT_PAUSE).await,
        }
    }
}

fn read_public(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    if text.contains("PRIVATE KEY") {
        bail!("{} holds a private key: give the public one, {0}.pub", path.display());
    }
    Ok(text)
}

/// Makes a key pair; the private half stays here, in a file that only its owner reads.
fn make_key(node: &str) -> anyhow::Result<(String, PathBuf)> {
    let name: String = node
        .chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '-'
            }
        })
        .collect();
    let path = PathBuf::from(format!("{name}-rescue-key"));
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&rand::random()));
    let text = key.to_openssh(LineEnding::LF).context("writing a key")?;
    let _absent = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("writing {}", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("writing {}", path.display()))?;
    Ok((key.public_key().to_openssh().context("writing a key")?, path))
}

/// Shows what a node boots next, orders it, or lifts the order.
///
/// # Errors
/// One line.
pub async fn boot(
    client: &Client,
    output: Output,
    node: &str,
    order: Option<&Value>,
    normal: bool,
) -> anyhow::Result<()> {
    let path = ["nodes", node, "boot"];
    let answer = match (order, normal) {
        (Some(order), _) => client.send(Method::PUT, &path, Some(order)).await?,
        (None, true) => client.send(Method::DELETE, &path, None).await?,
        (None, false) => client.get(&path).await?,
    };
    output.show(&answer, render::boot)
}
