//! Ctrl-C and SIGTERM as a flag that every wait looks at.
//!
//! A signal's default action would end the runner without running any `Drop`: machines and namespaces would stay.
//! With the flag, the wait in progress returns an error and the rack is taken down in order.

use anyhow::{Context as _, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use tokio::signal::unix::{SignalKind, signal};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether somebody has asked this program to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Starts to listen for SIGINT and SIGTERM. A second one ends the program at once, for a tear-down that hangs.
///
/// # Errors
/// When no signal handler can be installed.
pub fn install() -> Result<()> {
    let (ready_sender, ready_receiver) = mpsc::channel();
    thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(move || listen(&ready_sender))?;
    ready_receiver
        .recv()
        .context("the signal thread ended before it was ready")?
}

fn listen(ready: &mpsc::Sender<Result<()>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error.into()))),
    };
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            (Err(error), _) | (_, Err(error)) => return drop(ready.send(Err(error.into()))),
        };
        drop(ready.send(Ok(())));
        for count in 1_u8..=2 {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            REQUESTED.store(true, Ordering::Relaxed);
            if count == 1 {
                tracing::info!("stopping; once more to stop at once");
            } else {
                std::process::exit(130);
            }
        }
    });
}
