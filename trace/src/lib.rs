//! Observes packets in a running kernel: their CPU cost for each process ([`cost`]), their losses
//! ([`drops`]), where requests wait ([`delay`]), hot functions and locks ([`flame`], [`contention`]), and
//! how much more a service can take ([`headroom`]).
//!
//! Observation only. BPF programs at BTF tracepoints count in the kernel, and end with the value
//! that holds them or with the process; nothing is pinned. Nothing here prints.

mod call;
pub mod contention;
pub mod cost;
pub mod delay;
pub mod drops;
mod error;
pub mod flame;
mod gaps;
pub mod headroom;
pub mod parse;
mod programs;
pub mod symbols;
mod sys;
pub mod window;

pub use error::TraceError;
