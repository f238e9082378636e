//! Load generation, rates, latency, cost and statistics.
//!
//! This library offers requests to a UDP service, matches every reply to its request, and reports
//! the results with their uncertainty: losses, latency from the *intended* send time of each
//! request, whether the generator itself was the limit, and whether two configurations differ by
//! more than noise.
//!
//! | module | it answers |
//! |---|---|
//! | [`header`] | the payload of a request, and whether a reply is intact |
//! | [`workload`] | requests and the recognition of replies: echo, DNS, NTP, RADIUS, raw |
//! | [`generator`] | load at a rate or in windows, with an account of every request |
//! | [`capacity`] | the highest paced rate that holds, and goodput above it |
//! | [`report`] | the results of runs, and their merge |
//! | [`stats`] | the interval of a ratio from few alternating samples |
//! | [`seconds`] | durations in JSON |
//! | [`perf`] | cycles and instructions of the whole machine |
//! | [`wire`] | wire arithmetic: frames, bits, budgets, delays |
//!
//! ```no_run
//! use std::time::Duration;
//! use linerate_load::generator::GeneratorOptions;
//! use linerate_load::{Generator, LoadSlot, capacity};
//!
//! # fn main() -> Result<(), linerate_load::GeneratorError> {
//! let targets = vec!["127.0.0.1:7".parse().expect("an address")];
//! let options = GeneratorOptions { flows: 64, threads: 2, ..GeneratorOptions::new(targets) };
//! let mut generator = options.start()?;
//!
//! let outcome = generator.run(&LoadSlot::rate(50_000.0, Duration::from_secs(1)))?;
//! assert_eq!(outcome.sent, outcome.answered + outcome.lost);
//!
//! let found = capacity::search(&mut *generator, &capacity::SearchOptions::default())?;
//! let tps = found.transactions_per_second; // a lower bound if found.generator_bound
//! # let _ = tps;
//! # Ok(())
//! # }
//! ```
//!
//! The library never prints. Result types implement [`serde::Serialize`] with base units in their
//! keys.

#![deny(unsafe_code)]

pub mod capacity;
mod error;
pub mod generator;
pub mod header;
mod latency;
mod outcome;
pub mod perf;
pub mod report;
pub mod seconds;
mod sys;
pub mod wire;
pub mod workload;

pub use error::GeneratorError;
pub use generator::{Generator, GeneratorDescription, LoadSlot, PacingMode};
pub use latency::{Latency, LatencyQuantiles};
pub use linerate_host::{Known, stats};
pub use outcome::{
    BoundReason, CodeCount, QueueMedians, SelfWatch, SendBursts, SendErrors, SendMethod, SlotInterval,
    SlotOutcome,
};
pub use workload::LoadWorkload;
