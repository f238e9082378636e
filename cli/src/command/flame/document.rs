//! The result of `linerate flame` as one document, which can be read again.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use linerate_host::Host;
use linerate_host::stage::machine::MachineState;
use linerate_trace::contention::LockContention;
use linerate_trace::flame::spots::{self, HotSpot};
use linerate_trace::flame::{CpuContext, ProfileView, StackProfile};
use serde::{Deserialize, Serialize};

use super::drawing::FlameView;
use super::look::FlameResult;
use super::{program, read_document};
use crate::command::tune::host_name;

/// The schema of `--json`.
pub(crate) const SCHEMA: &str = "linerate.flame/1";
/// The command that writes it.
pub(super) const MADE_BY: &str = "linerate flame --json FILE";

/// All that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FlameDocument {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    pub(crate) started_unix_seconds: u64,
    pub(crate) host: FlameHostSummary,
    #[serde(flatten)]
    pub(crate) shown: FlameView,
    /// Samples in the packet path, of what is shown.
    pub(crate) path_samples: u64,
    /// Of what is shown, the largest share of the packet path first.
    pub(crate) spots: Vec<HotSpot>,
    /// Functions by their own time, of what is shown, most first.
    pub(crate) functions: Vec<SelfSamples>,
    /// Null where it was not asked for, or not to be had: a warning says why.
    pub(crate) contention: Option<LockContention>,
    pub(crate) warnings: Vec<String>,
    /// All samples, whatever is shown. Null with `--locks`.
    pub(crate) profile: Option<StackProfile>,
}

/// Which host it is about.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FlameHostSummary {
    pub(crate) name: String,
    pub(crate) kernel: Option<String>,
    pub(crate) cpu_model: Option<String>,
}

/// Samples in a function itself, without those it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SelfSamples {
    pub(crate) function: String,
    pub(crate) module: Option<String>,
    pub(crate) samples: u64,
    /// Of the samples that are shown.
    pub(crate) share: f64,
}

impl FlameDocument {
    pub(super) fn new(host: &Host, looked: FlameResult, shown: FlameView) -> Self {
        let machine = MachineState::observe(host);
        let (version, argv) = program();
        let taken = looked.profile.as_ref().map_or(0.0, |profile| profile.seconds);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let whole = Self {
            schema: SCHEMA.to_owned(),
            version,
            argv,
            started_unix_seconds: now.saturating_sub(taken as u64),
            host: FlameHostSummary {
                name: host_name(host),
                kernel: machine.kernel.into_value(),
                cpu_model: machine.cpu_model.into_value(),
            },
            shown,
            path_samples: 0,
            spots: Vec::new(),
            functions: Vec::new(),
            contention: looked.contention,
            warnings: looked.warnings,
            profile: looked.profile,
        };
        whole.seen_as(shown, true)
    }

    /// A document that was saved.
    pub(super) fn read(file: &str) -> Result<Self> {
        let document: Self = read_document(file, SCHEMA, MADE_BY)?;
        document.check().with_context(|| file.to_owned())?;
        Ok(document)
    }

    /// Sees that stacks are of functions that are named.
    pub(crate) fn check(&self) -> Result<()> {
        let profile = self.profile.iter();
        let named = profile.flat_map(|profile| {
            let strange = |index: &&u32| profile.frames.get(**index as usize).is_none();
            profile.stacks.iter().flat_map(|stack| &stack.frames).find(strange)
        });
        if let Some(strange) = named.copied().next() {
            bail!("a stack has function {strange}, which it does not name");
        }
        Ok(())
    }

    /// The same, of which this is shown.
    pub(super) fn seen_as(mut self, shown: FlameView, locks: bool) -> Self {
        self.shown = shown;
        self.contention = self.contention.filter(|_| locks);
        if let Some(profile) = &self.profile {
            let part = shown.part_of(profile);
            self.path_samples = spots::samples_in_path(&part);
            self.spots = spots::find(&part);
            self.spots.sort_by(|a, b| b.share_of_path.total_cmp(&a.share_of_path));
            self.functions = own(&part, shown.view());
        }
        self
    }

    /// Samples that are shown: neither idle nor left out.
    pub(crate) fn samples(&self) -> u64 {
        let Some(profile) = &self.profile else { return 0 };
        shown_stacks(profile, self.shown.view()).map(|stack| stack.samples).sum()
    }

    /// Samples in interrupt context, as a share of all that are not idle; none where all are.
    pub(crate) fn interrupt_share(&self) -> Option<f64> {
        let profile = self.profile.as_ref()?;
        let contexts = CpuContext::ALL.into_iter().filter(|context| context.is_interrupt());
        let interrupt: u64 = contexts.map(|context| profile.samples_in(context, None)).sum();
        let busy = profile.busy();
        (busy > 0).then(|| interrupt as f64 / busy as f64)
    }
}

fn shown_stacks(
    profile: &StackProfile,
    view: ProfileView,
) -> impl Iterator<Item = &linerate_trace::flame::SampledStack> {
    profile.stacks.iter().filter(move |stack| view.has(stack.context, stack.cpu))
}

/// Functions by their own samples.
fn own(profile: &StackProfile, view: ProfileView) -> Vec<SelfSamples> {
    let mut samples: BTreeMap<u32, u64> = BTreeMap::new();
    for stack in shown_stacks(profile, view) {
        if let Some(leaf) = stack.frames.last() {
            *samples.entry(*leaf).or_default() += stack.samples;
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
    functions.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.function.cmp(&b.function)));
    functions
}
