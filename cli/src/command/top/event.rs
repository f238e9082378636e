//! Events that the threads of a session send.

use anyhow::Error;
use linerate_host::live::Snapshot;
use ratatui::crossterm::event::KeyEvent;

pub(super) enum SessionEvent {
    Snapshot(Box<Snapshot>),
    Key(KeyEvent),
    /// The size of the screen has changed.
    Resized,
    /// A signal requests the end.
    Stop,
    // The terminal or the host can no longer be read, or recording failed.
    Failed(Error),
    Done(JobResult),
}

/// How a job ended.
pub(super) enum JobResult {
    /// A title, and a document as lines.
    Text(&'static str, Vec<String>),
    /// The file of a flame graph.
    Flame(String),
    Failed(String),
}
