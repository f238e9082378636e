//! Observes packets in a running kernel: their CPU cost for each process ([`cost`]), their losses
//! ([`drops`]), where requests wait ([`delay`]), hot functions and locks ([`flame`],
//! [`contention`]), and how much more traffic a service can process ([`headroom`]).
//!
//! Observation only. BPF programs at BTF tracepoints count in the kernel. They end when the value
//! that holds them is dropped, or with the process; nothing is pinned. This crate does not print.

mod call;
pub mod contention;
pub mod cost;
pub mod delay;
pub mod drops;
mod error;
pub mod flame;
mod gaps;
pub mod headroom;
mod host_facts;
pub mod parse;
pub mod symbols;
mod sys;
pub mod window;

pub use error::TraceError;
