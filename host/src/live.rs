//! The packet path of a running host: rates of every queue, CPU, socket and thread, once per
//! second.
//!
//! [`LiveHost`] reads a host repeatedly and builds a [`Snapshot`] from every two consecutive
//! readings. It reads counters each time, but configuration and findings only when interfaces or
//! sockets change, and at intervals. [`SnapshotHistory`] keeps recent values of each item, and a
//! [`SnapshotRecording`] contains recorded snapshots.

mod build;
mod growth;
mod history;
mod recording;
pub mod snapshot;
mod source;

pub use history::{HistoryItem, HistoryMetric, SnapshotHistory};
pub use recording::SnapshotRecording;
pub use snapshot::Snapshot;
pub use source::{LiveHost, SnapshotSource};
