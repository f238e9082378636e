//! Hot spots of the packet path in a profile: stage, finding, remedy.
//!
//! The table is data: `spots/spots.toml`.

mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use linerate_host::StageName;
use serde::{Deserialize, Serialize};

use super::{CpuContext, FrameKind, SampledStack, StackProfile};
use table::JudgedFunction;
pub(crate) use table::TABLE;

/// A known place where packet processing spends time, with its share of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotSpot {
    /// Such as `socket-lock`.
    pub id: String,
    pub stage: StageName,
    /// Part of a sentence: `CPUs wait for the lock of one socket's queue`.
    pub what: String,
    /// The `doctor` rule about its cause, such as `socket.shared-by-threads`.
    pub finding: Option<String>,
    /// One or two sentences.
    pub remedy: String,
    pub when_not: String,
    /// Kernel version and file, or the author of the measurement.
    pub source: String,
    /// Share of the samples in the packet path: stacks in which a packet is received, sent or
    /// waited for. From 0 to 1; the shares of all spots together are at most 1.
    pub share_of_path: f64,
    /// Share of all busy samples.
    pub share_of_busy: f64,
    /// Each sample counts for the innermost spot only.
    pub samples: u64,
    /// Most samples first.
    pub functions: Vec<SpotFunction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotFunction {
    pub name: String,
    pub samples: u64,
}

#[derive(Debug, Default)]
struct FoundSpot<'p> {
    samples: u64,
    in_path: u64,
    functions: BTreeMap<&'p str, u64>,
}

/// A spot by id, without samples.
pub fn known(id: &str) -> Option<&'static HotSpot> {
    TABLE.hot_spots().find(|spot| spot.id == id)
}

/// Samples in the packet path: stacks in which a packet is received, sent or waited for.
pub fn samples_in_path(profile: &StackProfile) -> u64 {
    let functions = judge_functions(profile);
    let in_path = |stack: &&SampledStack| table::is_packet_path(&innermost_first(&functions, stack));
    busy(profile).filter(in_path).map(|stack| stack.samples).sum()
}

/// The spots in a profile, largest share of busy samples first, without those that have no sample.
pub fn find(profile: &StackProfile) -> Vec<HotSpot> {
    let functions = judge_functions(profile);
    let mut found_spots: BTreeMap<usize, FoundSpot<'_>> = BTreeMap::new();
    let (mut busy_samples, mut path_samples) = (0, 0);
    for stack in busy(profile) {
        let frames = innermost_first(&functions, stack);
        let in_path = table::is_packet_path(&frames);
        busy_samples += stack.samples;
        path_samples += if in_path { stack.samples } else { 0 };
        let Some((spot, depth)) = TABLE.spot_of(&frames, in_path) else { continue };
        let found = found_spots.entry(spot).or_default();
        found.samples += stack.samples;
        found.in_path += if in_path { stack.samples } else { 0 };
        *found.functions.entry(frames[depth].name).or_default() += stack.samples;
    }
    let mut spots: Vec<HotSpot> = found_spots
        .into_iter()
        .map(|(spot, found)| TABLE.spot(spot, &found, busy_samples, path_samples))
        .collect();
    spots.sort_by_key(|spot| std::cmp::Reverse(spot.samples));
    spots
}

fn busy(profile: &StackProfile) -> impl Iterator<Item = &SampledStack> {
    profile.stacks.iter().filter(|stack| stack.context != CpuContext::Idle)
}

// Judges each function once, because many stacks share functions.
fn judge_functions(profile: &StackProfile) -> Vec<JudgedFunction<'_>> {
    profile.frames.iter().map(|frame| TABLE.judge(&frame.name, frame.kind)).collect()
}

/// A stack from the begin of its context: the interrupted work is unrelated.
fn innermost_first<'j, 'p>(
    functions: &'j [JudgedFunction<'p>],
    stack: &SampledStack,
) -> Vec<&'j JudgedFunction<'p>> {
    let context_frames = stack.frames.get(stack.entry as usize..).unwrap_or(&stack.frames);
    context_frames.iter().rev().filter_map(|index| functions.get(*index as usize)).collect()
}

/// 0 of an empty whole.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
