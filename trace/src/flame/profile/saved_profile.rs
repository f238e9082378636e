//! Saved profiles, which may have been edited.

use std::collections::BTreeMap;

use linerate_host::Known;
use serde::Deserialize;

use super::{CpuContext, CpuProfile, SampleEvent, SampledStack, SamplingCost, StackFrame, StackProfile};

#[derive(Deserialize)]
pub(super) struct SavedProfile {
    seconds: f64,
    event: SampleEvent,
    frequency_hz: u32,
    cpus: Vec<CpuProfile>,
    frames: Vec<StackFrame>,
    stacks: Vec<SampledStack>,
    #[serde(default)]
    own: Known<SamplingCost>,
    #[serde(default)]
    notes: Vec<String>,
}

impl TryFrom<SavedProfile> for StackProfile {
    type Error = String;

    // Validates indices, so that users of a profile need no checks.
    fn try_from(saved: SavedProfile) -> Result<Self, String> {
        let SavedProfile { seconds, event, frequency_hz, cpus, frames, stacks, own, notes } = saved;
        if !(seconds > 0.0 && seconds.is_finite() && frequency_hz > 0) {
            return Err("a profile without a time or a frequency".to_owned());
        }
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for stack in &stacks {
            if let Some(index) = stack.frames.iter().find(|index| **index as usize >= frames.len()) {
                return Err(format!("a stack of a profile has function {index} of {}", frames.len()));
            }
            if stack.entry as usize > stack.frames.len() {
                return Err(format!("a stack of a profile begins behind its end, at {}", stack.entry));
            }
            let (samples, idle) = sums.entry(stack.cpu).or_default();
            *samples = samples.checked_add(stack.samples).ok_or("a profile with too many samples")?;
            *idle += if stack.context == CpuContext::Idle { stack.samples } else { 0 };
        }
        let cpu_sums: BTreeMap<u32, (u64, u64)> =
            cpus.iter().filter(|cpu| cpu.samples > 0).map(|cpu| (cpu.cpu, (cpu.samples, cpu.idle))).collect();
        sums.retain(|_, (samples, _)| *samples > 0);
        if cpu_sums != sums {
            return Err("a profile whose stacks are not as many as its CPUs' samples".to_owned());
        }
        Ok(Self { seconds, event, frequency_hz, cpus, frames, stacks, own, notes })
    }
}

pub(crate) fn any_profile(bytes: &[u8]) {
    if let Ok(profile) = serde_json::from_slice::<StackProfile>(bytes) {
        _ = (profile.busy(), profile.lost());
        for stack in &profile.stacks {
            _ = profile.frames_of(stack).count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::fixture::profile;

    #[test]
    fn inconsistent_profiles_are_refused() {
        let good = profile("2 openssl task main;aes\n");
        let load_error = |change: fn(&mut StackProfile)| {
            let mut bad = good.clone();
            change(&mut bad);
            serde_json::from_str::<StackProfile>(&serde_json::to_string(&bad).unwrap())
                .unwrap_err()
                .to_string()
        };
        assert!(load_error(|bad| bad.stacks[0].frames[1] = 2).contains("function 2 of 2"));
        assert!(load_error(|bad| bad.stacks[0].entry = 3).contains("behind its end"));
        assert!(load_error(|bad| bad.stacks[0].samples = 3).contains("not as many"));
        assert!(load_error(|bad| bad.cpus[0].idle = 1).contains("not as many"));
        assert!(load_error(|bad| bad.frequency_hz = 0).contains("frequency"));
    }
}
