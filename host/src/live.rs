//! The packet path of a running host: rates of every queue, CPU, socket and thread, once per
//! second.
//!
//! [`LiveHost`] reads a host repeatedly and makes a [`Snapshot`] of each two readings. Counters are
//! read each time; configuration and findings only when interfaces or sockets change, and at
//! intervals. [`SnapshotHistory`] keeps recent values of each item, and a [`SnapshotRecording`]
//! contains recorded snapshots.

mod growth;
mod history;
mod making;
pub mod picture;
mod source;
mod tape;

pub use history::{HistoryItem, HistoryMetric, SnapshotHistory};
pub use picture::Snapshot;
pub use source::{LiveHost, SnapshotSource};
pub use tape::{SnapshotRecording, TapeError};
