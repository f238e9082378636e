//! Whether a tune is still in effect. The journal is read only after it was written.

use std::os::unix::fs::MetadataExt;

use crate::journal::{JournalError, StateStore};

/// Inode, length and modification time of the journal.
type Stamp = (u64, u64, i64, i64);

#[derive(Debug)]
pub(super) struct JournaledTune<'s> {
    pub(super) store: &'s StateStore,
    pub(super) tune: u64,
    seen: Option<Stamp>,
}

impl<'s> JournaledTune<'s> {
    pub(super) fn of(store: &'s StateStore, tune: u64) -> Self {
        Self { store, tune, seen: None }
    }

    /// Whether no undo of the tune was begun.
    pub(super) fn is_in_effect(&mut self) -> Result<bool, JournalError> {
        let stamp = self.stamp();
        if stamp.is_some() && stamp == self.seen {
            return Ok(true);
        }
        let is_in_effect = self.store.read()?.tune(self.tune).is_some_and(|tune| tune.undo.is_none());
        self.seen = stamp.filter(|_| is_in_effect);
        Ok(is_in_effect)
    }

    fn stamp(&self) -> Option<Stamp> {
        let metadata = std::fs::metadata(self.store.journal_path()).ok()?;
        Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }
}
