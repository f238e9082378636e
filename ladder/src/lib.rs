//! The ladder: rungs climbed one at a time, each measured against the one before.
//!
//! Puts `engine`, `host`, `lab` and `measure` together. Prints nothing: progress goes to an
//! observer, the result is a [`report::Report`].

pub mod bench;
pub mod climb;
pub mod configuration;
pub mod lab_bench;
pub mod lab_climb;
pub mod published;
pub mod report;
pub mod rung;
mod summary;
