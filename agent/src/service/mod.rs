//! The agent as a service on a running node.
//!
//! One task decides and speaks; one thread reads files. While the server is away the newest state is kept and older
//! ones are forgotten: a state says everything, so a queue of them would only say it late. It is not kept on disk,
//! because an agent looks at its node right after it has started.

mod config;
mod contact;
mod look;
mod pace;
mod print;
mod process;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use drift::Expected;
use protocol::latest::{Baseline, paths};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use config::Config;
pub use look::Look;

use crate::api::{Api, Identity};
use crate::baseline::ManifestStore;
use crate::report::NodeState;
use crate::state::StateFolder;
use contact::Contact;

/// Runs until the process is told to stop.
///
/// # Errors
/// When the configuration or the identity cannot be used.
pub async fn run(config: &Path) -> anyhow::Result<()> {
    let config = Config::read(config)?;
    process::lower_priority();
    let state = StateFolder::open(&config.state_folder)
        .with_context(|| format!("state folder {}", config.state_folder.display()))?;
    let contact = Contact::new(&config, api(&config)?, state.clone())?;
    let mut service = Service {
        contact,
        state,
        config,
        next_scan: Instant::now(),
        incomplete_scans: 0,
        stop: Arc::default(),
    };
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = service.config.server,
        "started"
    );
    let result = tokio::select! {
        result = service.serve() => result,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    // The runtime waits for the thread that reads files; a node that shuts down must not.
    service.stop.store(true, Ordering::Relaxed);
    result
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
        base: "/".into(),
        state: StateFolder::open(&scratch)?,
        baseline: baseline.digest,
        expected: Arc::new(expected),
        earlier: None,
        stop: Arc::default(),
    };
    let result = look.run().await;
    let _ = std::fs::remove_dir_all(&scratch);
    let result = result?;
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
    let fetched = async {
        let api = api(config)?;
        let baseline: Baseline = api.get(paths::BASELINE).await?;
        let expected = store.fetch(&api, &baseline, &config.keys).await?;
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

/// The loop between the server and the scans.
struct Service {
    contact: Contact,
    state: StateFolder,
    config: Config,
    next_scan: Instant,
    /// Scans in a row that could not look everywhere.
    incomplete_scans: u32,
    stop: Arc<AtomicBool>,
}

impl Service {
    /// What could not be looked at is often only busy: a manager that starts up, a file that is written. So the next
    /// scan comes soon; one place that stays out of reach does not keep the node scanning.
    fn look_again_soon(&mut self, not_looked_at: u64) {
        self.incomplete_scans = if not_looked_at == 0 {
            0
        } else {
            self.incomplete_scans.saturating_add(1)
        };
        if let Some(pause) = pace::look_again_after(self.incomplete_scans) {
            self.next_scan = self.next_scan.min(Instant::now() + pause);
        }
    }

    async fn serve(&mut self) -> anyhow::Result<()> {
        let mut scan: Option<JoinHandle<anyhow::Result<NodeState>>> = None;
        let mut next_contact = Instant::now();
        loop {
            let is_scan_due = self.contact.is_scan_wanted() || Instant::now() >= self.next_scan;
            if scan.is_none() && is_scan_due && self.contact.is_ready() {
                scan = self.start_scan();
            }
            tokio::select! {
                () = tokio::time::sleep_until(next_contact) => {
                    next_contact = Instant::now() + self.contact.talk().await;
                }
                result = join(&mut scan), if scan.is_some() => {
                    scan = None;
                    // A scan that broke is a fault of this program: say so and go on with the next.
                    match result {
                        Ok(state) => {
                            self.look_again_soon(state.scan.not_looked_at_count);
                            self.contact.tell(state);
                            next_contact = next_contact.min(self.contact.earliest());
                        }
                        Err(error) => tracing::error!(error = format!("{error:#}"), "the scan broke"),
                    }
                }
                () = tokio::time::sleep_until(self.next_scan), if scan.is_none() && self.contact.is_ready() => {}
            }
        }
    }

    fn start_scan(&mut self) -> Option<JoinHandle<anyhow::Result<NodeState>>> {
        let (baseline, expected) = self.contact.baseline()?;
        self.next_scan = Instant::now() + pace::jittered(self.config.scan_interval, pace::chance());
        self.contact.scan_started();
        let look = Look {
            base: "/".into(),
            state: self.state.clone(),
            baseline,
            expected,
            earlier: self.contact.acknowledged().cloned(),
            stop: self.stop.clone(),
        };
        Some(tokio::spawn(look.run()))
    }
}

async fn join(scan: &mut Option<JoinHandle<anyhow::Result<NodeState>>>) -> anyhow::Result<NodeState> {
    match scan {
        Some(handle) => handle.await?,
        None => std::future::pending().await,
    }
}
