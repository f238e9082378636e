//! Network paths compared: the same service and load through a bridge, NAT, an overlay, BPF programs and others.
//!
//! A [`NetworkPath`] is a recipe of commands for a lab with a receiver and two senders: `sender0` is the client, `receiver` the
//! host whose network is compared, and `sender1` a container, a guest or the other host of an overlay. [`run`] compares the
//! capacity of each path with that of `host` by alternation, and then measures all at one rate.

pub(crate) mod cost;
mod path_lab;
mod recipe;
pub mod relay;
pub mod report;
mod run;
#[cfg(test)]
mod tests;

pub use path_lab::PathError;
pub use recipe::{NetworkPath, PATHS};
pub use run::{PathsEvent, run};
