//! CPU profiles: stacks are sampled, folded, drawn and judged.
//!
//! A [`StackProfile`] contains samples of `perf_event_open` on the requested CPUs: functions of
//! kernel and applications, and their [`CpuContext`]. It can be saved, [folded](fold) to text,
//! [drawn](draw), and [compared](difference).

pub mod comparison;
pub mod difference;
pub mod draw;
#[cfg(test)]
mod fixture;
pub mod fold;
pub mod profile;
pub mod result;
pub(crate) mod sample;
pub mod spots;

pub use difference::ProfileDifference;
pub use draw::DrawOptions;
pub use profile::{
    CpuContext, CpuProfile, FrameKind, ProfileOptions, SampleEvent, SampledStack, SamplingCost, StackFrame,
    StackProfile,
};
pub use result::FlameSelection;
