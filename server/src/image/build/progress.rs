//! What a build says while it runs.
//!
//! The build is blocking work on a thread of its own; what it says goes through a bounded channel to the task that
//! asked for it. When nobody takes the lines any more (the caller has gone), the next one stops the build.

use tokio::sync::mpsc;

use super::BuildError;

/// Lines that may wait for the listener; the build waits when they are full.
pub(super) const LINES_MAX: usize = 256;

/// Takes what a build says: at least one line every few seconds, so that nobody wonders whether it hangs.
pub trait Progress: Send + Sync {
    /// A step began, or went on. `stage` is one word (`packages`, `walk`), `detail` one line of text.
    fn report(&self, stage: &str, detail: &str);
}

/// Says nothing.
impl Progress for () {
    fn report(&self, _stage: &str, _detail: &str) {}
}

/// One line.
#[derive(Debug)]
pub(super) struct Line {
    pub stage: &'static str,
    pub detail: String,
}

/// The build's end of the channel.
#[derive(Clone, Debug)]
pub(super) struct Reporter(mpsc::Sender<Line>);

impl Reporter {
    pub fn channel() -> (Self, mpsc::Receiver<Line>) {
        let (sender, receiver) = mpsc::channel(LINES_MAX);
        (Self(sender), receiver)
    }

    /// Says a line.
    ///
    /// # Errors
    /// [`BuildError::Stopped`] when nobody listens.
    pub fn say(&self, stage: &'static str, detail: impl Into<String>) -> Result<(), BuildError> {
        let detail = detail.into();
        self.0
            .blocking_send(Line { stage, detail })
            .map_err(|_| BuildError::Stopped)
    }
}
