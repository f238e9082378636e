//! The document of a profile: its samples, and the hot spots of the part that is shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spots::{self, HotSpot};
use super::{CpuContext, SampledStack, StackProfile};
use crate::contention::LockContention;

/// Which part of a profile is shown, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlameSelection {
    /// Interrupt context alone.
    pub irq_only: bool,
    /// A graph per CPU.
    pub per_cpu: bool,
}

/// A profile, lock contention, or both.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlameResult {
    #[serde(flatten)]
    pub shown: FlameSelection,
    /// Samples in the packet path, of the selected part.
    pub path_samples: u64,
    /// Of the selected part, the largest share of the packet path first.
    pub spots: Vec<HotSpot>,
    /// Functions of the selected part by their own samples, most first.
    pub functions: Vec<SelfSamples>,
    /// `None` if it was not measured.
    pub contention: Option<LockContention>,
    /// All samples, independent of the selection. `None` with `--locks`.
    pub profile: Option<StackProfile>,
}

/// Samples in a function itself, without its callees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfSamples {
    pub function: String,
    /// `None` for the kernel itself.
    pub module: Option<String>,
    pub samples: u64,
    /// Of the selected samples.
    pub share: f64,
}

impl FlameSelection {
    fn has(self, context: CpuContext) -> bool {
        if self.irq_only { context.is_interrupt() } else { context != CpuContext::Idle }
    }

    pub(super) fn stacks(self, profile: &StackProfile) -> impl Iterator<Item = &SampledStack> {
        profile.stacks.iter().filter(move |stack| self.has(stack.context))
    }
}

impl FlameResult {
    #[must_use]
    pub fn new(
        shown: FlameSelection,
        profile: Option<StackProfile>,
        contention: Option<LockContention>,
    ) -> Self {
        let (spots, functions) = (Vec::new(), Vec::new());
        Self { shown, path_samples: 0, spots, functions, contention, profile }.select(shown)
    }

    /// The same result with another part of it selected.
    #[must_use]
    pub fn select(mut self, shown: FlameSelection) -> Self {
        self.shown = shown;
        if let Some(profile) = &self.profile {
            let mut part = profile.clone();
            part.stacks.retain(|stack| shown.has(stack.context));
            self.path_samples = spots::samples_in_path(&part);
            self.spots = spots::find(&part);
            self.spots.sort_by(|a, b| b.share_of_path.total_cmp(&a.share_of_path));
            self.functions = self_samples(&part);
        }
        self
    }

    /// Selected samples that are not idle.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.profile.iter().flat_map(|profile| self.shown.stacks(profile)).map(|stack| stack.samples).sum()
    }

    /// Samples in interrupt context as a share of all that are not idle; `None` if all are idle.
    #[must_use]
    pub fn interrupt_share(&self) -> Option<f64> {
        let profile = self.profile.as_ref()?;
        let contexts = CpuContext::ALL.into_iter().filter(|context| context.is_interrupt());
        let interrupt: u64 = contexts.map(|context| profile.samples_in(context, None)).sum();
        let busy = profile.busy();
        (busy > 0).then(|| interrupt as f64 / busy as f64)
    }
}

fn self_samples(profile: &StackProfile) -> Vec<SelfSamples> {
    let mut samples: BTreeMap<u32, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        if let Some(innermost) = stack.frames.last() {
            *samples.entry(*innermost).or_default() += stack.samples;
        }
    }
    let total: u64 = samples.values().sum();
    let mut functions: Vec<SelfSamples> = samples
        .into_iter()
        .filter_map(|(frame, samples)| {
            let frame = profile.frames.get(frame as usize)?;
            let share = samples as f64 / total.max(1) as f64;
            Some(SelfSamples { function: frame.name.clone(), module: frame.module.clone(), samples, share })
        })
        .collect();
    // Equal counts are ordered by name, so that the result is reproducible.
    functions.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.function.cmp(&b.function)));
    functions
}
