//! The agent as a service on a running node.
//!
//! One task decides and speaks; one thread at a time looks or repairs. While the server is away the newest state is kept
//! and older ones are forgotten: a state says everything, so a queue of them would only say it late. It is not kept on
//! disk, because an agent looks at its node right after it has started.
//!
//! The scan is the authority. Between two scans, hints (`watch`) and cheap facts are looked at and laid over what the
//! last scan found. A job (`repair`) ends a scan that is under way, and a new one that begins after it proves it.
//!
//! [`run`] serves the machine. [`run_on`] serves any [`NodeParts`]: a simulated fleet runs one for each of its folders,
//! as tasks of one runtime.

mod config;
mod contact;
#[cfg(test)]
mod fake_server;
mod look;
mod pace;
mod print;
mod process;
mod restart;
mod shown;
mod work;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use drift::Expected;
use protocol::latest::{Baseline, paths};
use tokio::signal::unix::{SignalKind, signal};

pub use config::Config;
pub use look::{Look, told};

use crate::api::{Api, Identity};
use crate::baseline::ManifestStore;
use crate::node::NodeParts;
use crate::state::StateFolder;
use contact::Contact;
use work::Service;

/// Runs until the process is told to stop.
///
/// # Errors
/// When the configuration or the identity cannot be used.
pub async fn run(config: &Path) -> anyhow::Result<()> {
    let config = Config::read(config)?;
    process::lower_priority();
    let parts = NodeParts::of_machine()?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        result = run_on(config, parts) => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Looks after one node until the future is dropped; a look that is under way then ends within one read.
///
/// For a node that is a folder: `run_on(config.below(base), NodeParts::of_folder(base))`. Files and identity must be
/// there as an installation leaves them (`etc/plumbline/ca.pem`, `var/lib/plumbline/identity`), as must what stands for
/// the kernel (`proc/cmdline`, `proc/sys/kernel/osrelease`, `proc/modules`, `proc/sys/…` for the sysctls of the
/// baseline). A restart of the simulated node is a new call with a new boot id, a restart of its agent one with the same
/// parts. Many of these may run in one process, on a runtime of either kind: nothing is shared but the threads for
/// blocking work.
///
/// # Errors
/// When the state folder or the identity cannot be used.
pub async fn run_on(config: Config, parts: NodeParts) -> anyhow::Result<()> {
    let state = StateFolder::open(&config.state_folder)
        .with_context(|| format!("state folder {}", config.state_folder.display()))?;
    let contact = Contact::new(&config, api(&config)?, state.clone(), parts.clone());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), server = config.server, "started");
    Service::new(contact, state, parts, config.scan_interval).serve().await
}

/// Scans once against the baseline at hand and prints what differs; `json` for programs. The kept baseline is taken
/// where the server does not answer. Nothing is reported.
///
/// # Errors
/// When the configuration cannot be read, or no baseline is to be had.
pub async fn scan_once(config: &Path, json: bool) -> anyhow::Result<()> {
    let config = Config::read(config)?;
    let state = StateFolder::open(&config.state_folder)
        .with_context(|| format!("state folder {}", config.state_folder.display()))?;
    let (baseline, expected) = baseline_at_hand(&config, &state).await?;
    // The running service keeps its digests in the state folder; two writers would spoil them.
    let scratch = config.state_folder.join(format!("scan-{}", std::process::id()));
    let look = Look {
        parts: NodeParts::of_machine()?,
        state: StateFolder::open(&scratch)?,
        baseline: baseline.digest,
        expected: Arc::new(expected),
        stop: Arc::default(),
    };
    let found = tokio::task::spawn_blocking(move || look.scan(None)).await;
    let _ = std::fs::remove_dir_all(&scratch);
    let result = told(found?, state.secret_key().as_ref(), None);
    let text = if json {
        print::json(&result)?
    } else {
        print::text(&result)
    };
    print!("{text}");
    Ok(())
}

async fn baseline_at_hand(config: &Config, state: &StateFolder) -> anyhow::Result<(Baseline, Expected)> {
    let store = ManifestStore::new(&state.manifests());
    let mut keys = config.keys.clone();
    if let Some((_, trust)) = state.trust() {
        contact::take_keys(&mut keys, &trust);
    }
    let fetched = async {
        let api = api(config)?;
        let baseline: Baseline = api.get(paths::BASELINE).await?;
        let expected = store.fetch(&api, &baseline, &keys).await?;
        anyhow::Ok((baseline, expected))
    };
    match fetched.await {
        Ok(found) => Ok(found),
        Err(error) => {
            let baseline = state
                .baseline()
                .with_context(|| format!("no baseline is kept, and the server: {error:#}"))?;
            eprintln!("The server did not give a baseline ({error:#}); taking the one kept here.");
            let expected = store.load(&baseline)?;
            Ok((baseline, expected))
        }
    }
}

fn api(config: &Config) -> anyhow::Result<Api> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let identity = Identity {
        certificate: read(&config.identity_folder.join("certificate.pem"))?,
        key: read(&config.identity_folder.join("key.pem"))?,
    };
    Ok(Api::new(
        &config.server,
        &read(&config.ca_certificate)?,
        Some(&identity),
    )?)
}
