//! The ladder: steps climbed one at a time, each measured against the one before.
//!
//! Puts `engine`, `host`, `lab` and `measure` together. Prints nothing: progress goes to an
//! observer, the result is a [`report::LadderReport`].

pub mod ascent;
pub mod bench;
pub mod climb;
pub mod configuration;
pub mod cpus;
pub mod host_bench;
pub mod host_climb;
pub mod lab_bench;
pub mod lab_climb;
pub mod published;
pub mod remote;
pub mod report;
pub mod step;
mod summary;
