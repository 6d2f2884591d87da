//! What a build says while it runs.
//!
//! The build is blocking work on a thread of its own; what it says goes through a bounded channel to the task that
//! asked for it. When nobody takes the lines any more (the caller has gone), the next one stops the build.

use tokio::sync::mpsc;

use super::BuildError;

/// Lines that may wait for the listener; the build waits when they are full.
pub(super) const LINES_MAX: usize = 256;

/// How far a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// So many are done.
    pub done: u64,
    /// Of so many, where that is known.
    pub total: Option<u64>,
    /// Of what: `packages`, `bytes`.
    pub unit: &'static str,
}

/// Takes what a build says: at least one line every few seconds, so that nobody wonders whether it hangs.
pub trait Progress: Send + Sync {
    /// A step began, or went on. `stage` is one word (`packages`, `walk`), `detail` one line of text.
    fn report(&self, stage: &str, detail: &str);

    /// How far the stage is.
    fn count(&self, _stage: &str, _count: Count) {}

    /// A line for a log: of the build, or of a program that it runs. All of them come, hundreds a second at times.
    fn output(&self, _stage: &str, _line: &str) {}
}

/// Says nothing.
impl Progress for () {
    fn report(&self, _stage: &str, _detail: &str) {}
}

/// One thing that is said.
#[derive(Debug)]
pub(super) enum Said {
    /// Where the build is.
    Report { stage: &'static str, detail: String },
    /// How far that is.
    Count { stage: &'static str, count: Count },
    /// For a log.
    Output { stage: &'static str, line: String },
}

impl Said {
    /// Tells somebody.
    pub fn tell(&self, progress: &dyn Progress) {
        match self {
            Self::Report { stage, detail } => progress.report(stage, detail),
            Self::Count { stage, count } => progress.count(stage, *count),
            Self::Output { stage, line } => progress.output(stage, line),
        }
    }
}

/// The build's end of the channel.
#[derive(Clone, Debug)]
pub(super) struct Reporter(mpsc::Sender<Said>);

impl Reporter {
    pub fn channel() -> (Self, mpsc::Receiver<Said>) {
        let (sender, receiver) = mpsc::channel(LINES_MAX);
        (Self(sender), receiver)
    }

    /// Says a line, for the screen and the log.
    ///
    /// # Errors
    /// [`BuildError::Stopped`] when nobody listens.
    pub fn say(&self, stage: &'static str, detail: impl Into<String>) -> Result<(), BuildError> {
        let detail = detail.into();
        self.output(stage, detail.clone())?;
        self.show(stage, detail)
    }

    /// Says a line for the screen alone: a repetition, or a sign of life.
    ///
    /// # Errors
    /// As [`Reporter::say`].
    pub fn show(&self, stage: &'static str, detail: impl Into<String>) -> Result<(), BuildError> {
        let detail = detail.into();
        self.send(Said::Report { stage, detail })
    }

    /// Says how far the stage is.
    ///
    /// # Errors
    /// As [`Reporter::say`].
    pub fn count(&self, stage: &'static str, count: Count) -> Result<(), BuildError> {
        self.send(Said::Count { stage, count })
    }

    /// Says a line for the log alone.
    ///
    /// # Errors
    /// As [`Reporter::say`].
    pub fn output(&self, stage: &'static str, line: impl Into<String>) -> Result<(), BuildError> {
        let line = line.into();
        self.send(Said::Output { stage, line })
    }

    fn send(&self, said: Said) -> Result<(), BuildError> {
        self.0.blocking_send(said).map_err(|_| BuildError::Stopped)
    }
}
