//! Load generation, rates, latency, cost and statistics.
//!
//! This library offers requests to a UDP service, matches every reply to its request, and says what it found with
//! its doubt: how much was lost, how late replies came counted from when the request was *meant* to leave, whether
//! the generator itself was the limit, and whether two configurations differ by more than noise.
//!
//! | module | it answers |
//! |---|---|
//! | [`header`] | what a request carries, and whether a reply is intact |
//! | [`generator`] | offer requests at a rate or in windows, and account for every one |
//! | [`capacity`] | which paced rate still holds, and what happens above it |
//! | [`stats`] | the interval of a ratio from few alternating samples |
//! | [`perf`] | cycles and instructions of the whole machine |
//! | [`wire`] | wire arithmetic: frames, bits, budgets, delays |
//!
//! It never prints. Result types implement [`serde::Serialize`] with base units in their keys.

#![deny(unsafe_code)]

pub mod capacity;
pub mod destination;
mod error;
pub mod generator;
pub mod header;
mod known;
mod latency;
mod outcome;
pub mod perf;
pub mod stats;
mod sys;
pub mod wire;

pub use error::Error;
pub use generator::{Description, Generator, Mode, Slot, SocketGenerator};
pub use known::Known;
pub use latency::Latency;
pub use outcome::{BoundReason, QueueMedians, SelfWatch, SendErrors, SlotOutcome};
