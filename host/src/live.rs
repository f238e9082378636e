//! The packet path of a host as it runs: rates of every queue, CPU, socket and thread, once a second.
//!
//! [`LiveHost`] reads a host again and again and makes a [`Snapshot`] of each two readings. What changes each second is read
//! each time; what is seldom changed, and what the rules find, when interfaces or sockets come and go and now and then.
//! [`SnapshotHistory`] keeps the last figures of each item, and a [`SnapshotRecording`] is pictures that were recorded. Nothing here draws.

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
