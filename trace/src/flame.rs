//! Where CPU time goes: sampled stacks, folded, drawn and judged.
//!
//! A [`StackProfile`] is what `perf_event_open` samples on the CPUs asked for: the kernel's and the application's functions, and in
//! which [`CpuContext`] they ran. It can be saved, [folded](fold) to text, [drawn](draw), and [compared](difference).

pub mod difference;
pub mod draw;
pub mod fold;
pub mod profile;
mod sample;
#[cfg(test)]
mod specimen;
pub mod spots;

pub use difference::ProfileDifference;
pub use draw::DrawOptions;
pub use fold::ProfileView;
pub use profile::{
    CpuContext, CpuProfile, FrameKind, ProfileOptions, SampleEvent, SampledStack, SamplingCost, StackFrame,
    StackProfile,
};
