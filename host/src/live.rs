//! The packet path of a host as it runs: rates of every queue, CPU, socket and thread, once a second.
//!
//! [`Live`] reads a host again and again and makes a [`Picture`] of each two readings. What changes each second is read
//! each time; what is seldom changed, and what the rules find, when interfaces or sockets come and go and now and then.
//! [`History`] keeps the last figures of each item, and a [`Tape`] is pictures that were recorded. Nothing here draws.

mod growth;
mod history;
mod making;
pub mod picture;
mod source;
mod tape;

pub use history::{History, Item, Metric};
pub use picture::Picture;
pub use source::{Live, Source};
pub use tape::{Tape, TapeError};
