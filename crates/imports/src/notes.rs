//! Notes of one import, bounded.

use crate::imported::{Note, NoteKind};

pub(crate) struct Notes {
    pub(crate) kept: Vec<Note>,
    pub(crate) left_out: u64,
    max: usize,
}

impl Notes {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            kept: Vec::new(),
            left_out: 0,
            max,
        }
    }

    pub(crate) fn add(&mut self, kind: NoteKind, path: impl Into<String>, detail: impl Into<String>) {
        if self.kept.len() >= self.max {
            self.left_out += 1;
            return;
        }
        let (path, detail) = (path.into(), detail.into());
        self.kept.push(Note { kind, path, detail });
    }
}
