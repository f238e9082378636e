//! The record of changes and intended changes: an append-only file.
//!
//! `DIR/journal` has one [`JournalRecord`] per line, each written and synced before the announced
//! change. Only the process that locks `DIR/lock` may append; readers need no lock. A journal is
//! never rewritten: a tune of a hundred settings and its undo are about 150 KB of it.

mod error;
mod line;
mod read;
pub mod record;
mod store;
pub mod tune;
mod write;

pub use error::JournalError;
pub use line::JournalLine;
pub use read::{DamagedLine, JournalCorruption};
pub use record::JournalRecord;
pub use store::{Journal, LockHolder, STATE_DIR, StateStore};
pub use tune::RecordedTune;
pub use write::JournalWriter;

/// Gives bytes to the reader of a journal.
pub(crate) fn any_bytes(bytes: &[u8]) {
    drop(read::parse(bytes));
}
