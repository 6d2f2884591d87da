//! What an import says while it works, and how it is stopped.

use std::ops::ControlFlow;

use crate::ImportError;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Blobs come from a registry; bytes are those of the blobs.
    Pull,
    /// Blobs are hashed; bytes are those of the blobs.
    Verify,
    /// Archives are unpacked; bytes are content by apparent size, and no total is known.
    Unpack,
    /// A folder is copied; bytes are content by apparent size, and no total is known.
    Copy,
    /// Times of folders are set and the folder gets its name.
    Finish,
}

/// Where an import stands. Comes at the start of each stage and after about 4 MiB or 256 entries more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes done in this stage.
    pub bytes_done: u64,
    /// Bytes of the whole stage, where they are known.
    pub bytes_total: Option<u64>,
    /// Entries read so far.
    pub entries: u64,
}

/// Hears of the progress; breaks to stop.
pub type Tell<'a> = dyn FnMut(Progress) -> ControlFlow<()> + Send + 'a;

const BYTES_STEP: u64 = 4 << 20;
const ENTRIES_STEP: u64 = 256;

/// Counts and tells. Each method gives [`ImportError::Stopped`] once the callback has said stop.
pub(crate) struct Meter<'a> {
    tell: &'a mut Tell<'a>,
    now: Progress,
    told: Progress,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(tell: &'a mut Tell<'a>) -> Self {
        let now = Progress {
            stage: Stage::Verify,
            bytes_done: 0,
            bytes_total: None,
            entries: 0,
        };
        Self { tell, now, told: now }
    }

    pub(crate) fn stage(&mut self, stage: Stage, bytes_total: Option<u64>) -> Result<(), ImportError> {
        self.now.stage = stage;
        self.now.bytes_done = 0;
        self.now.bytes_total = bytes_total;
        self.say()
    }

    pub(crate) fn bytes(&mut self, more: u64) -> Result<(), ImportError> {
        self.now.bytes_done = self.now.bytes_done.saturating_add(more);
        if self.now.bytes_done.saturating_sub(self.told.bytes_done) >= BYTES_STEP {
            self.say()?;
        }
        Ok(())
    }

    pub(crate) fn entry(&mut self) -> Result<(), ImportError> {
        self.now.entries += 1;
        if self.now.entries.saturating_sub(self.told.entries) >= ENTRIES_STEP {
            self.say()?;
        }
        Ok(())
    }

    fn say(&mut self) -> Result<(), ImportError> {
        self.told = self.now;
        match (self.tell)(self.now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ImportError::Stopped),
        }
    }
}
