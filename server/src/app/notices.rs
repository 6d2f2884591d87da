//! Notice of changes for pages that are open: one connection to PostgreSQL, any number of listeners.

use std::time::Duration;

use store::{Notice, Store};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Notices a slow listener may lag behind before it is told to read everything again.
const BACKLOG_MAX: usize = 256;
/// Pause before the connection is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// Hands notices on.
#[derive(Clone, Debug)]
pub struct Notices {
    sender: broadcast::Sender<Option<Notice>>,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BACKLOG_MAX),
        }
    }
}

impl Notices {
    /// Begins to listen. `None` says that anything may have changed.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Option<Notice>> {
        self.sender.subscribe()
    }

    /// Runs until cancelled; a lost connection is made again.
    pub async fn run(self, store: Store, cancel: CancellationToken) {
        let listen = async {
            loop {
                if let Err(error) = self.hear(&store).await {
                    tracing::debug!(error = %crate::http::error::chain(&error), "notices are not heard; trying again");
                }
                let _nobody_listens = self.sender.send(None);
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = listen => {}
        }
    }

    async fn hear(&self, store: &Store) -> Result<(), store::StoreError> {
        let mut listener = store.notice_listen().await?;
        loop {
            let notice = listener.next().await?;
            let _nobody_listens = self.sender.send(notice);
        }
    }
}
