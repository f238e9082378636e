//! What a running kernel does with packets, seen by tracing it: what they take from every process ([`cost`]), where each one
//! ends ([`drops`]), and what burns while it is processed ([`flame`], [`contention`]).
//!
//! All of it looks only. BPF programs are at BTF tracepoints, count in the kernel, and go with the value that holds them or
//! with the process, however it ends; nothing is pinned. Nothing here prints.

pub mod contention;
pub mod cost;
pub mod drops;
mod error;
pub mod flame;
mod gaps;
pub mod parse;
mod programs;
pub mod symbols;
mod sys;
pub mod window;

pub use error::TraceError;
