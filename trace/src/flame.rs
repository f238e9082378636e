//! Where CPU time goes: sampled stacks, folded, drawn and judged.
//!
//! A [`Profile`] is what `perf_event_open` samples on the CPUs asked for: the kernel's and the application's functions, and in
//! which [`Context`] they ran. It can be saved, [folded](fold) to text, [drawn](draw), and [compared](difference).

pub mod difference;
pub mod draw;
pub mod fold;
pub mod profile;
mod sample;
#[cfg(test)]
mod specimen;
pub mod spots;

pub use difference::Difference;
pub use draw::Picture;
pub use fold::View;
pub use profile::{Asked, Context, CpuProfile, Event, Frame, FrameKind, Profile, SamplingCost, Stack};
