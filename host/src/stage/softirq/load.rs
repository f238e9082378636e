//! Softirq load of CPUs: from counters that wrap at 2^32, and from CPU times, which do not wrap.

use std::collections::BTreeMap;

use super::{SoftirqState, SoftnetCpu};
use crate::stage::{HostView, PacketPath};

pub(super) type Count = fn(&SoftnetCpu) -> u64;

/// Growth of a counter per second and CPU. `None` without two readings.
pub(super) fn rates(view: &HostView<'_>, count: Count) -> Option<BTreeMap<u32, f64>> {
    let seconds = view.seconds()?;
    let before = by_cpu(&view.before?.softirq, count)?;
    let now = by_cpu(&view.now.softirq, count)?;
    let rate = |(cpu, now): (u32, u64)| Some((cpu, counter_growth(*before.get(&cpu)?, now) / seconds));
    Some(now.into_iter().filter_map(rate).collect())
}

/// Packets processed per second and CPU. `None` also if the counter could have wrapped twice
/// between the readings: a CPU processes at most about two million packets per second.
pub(super) fn packet_rates(view: &HostView<'_>) -> Option<BTreeMap<u32, f64>> {
    const SECONDS_PER_WRAP: f64 = 2_000.0;
    view.seconds().filter(|seconds| *seconds <= SECONDS_PER_WRAP)?;
    rates(view, |line| line.processed)
}

pub(super) fn sum(path: &PacketPath, count: Count) -> Option<u64> {
    Some(by_cpu(&path.softirq, count)?.into_values().sum())
}

fn by_cpu(softirq: &SoftirqState, count: Count) -> Option<BTreeMap<u32, u64>> {
    Some(softirq.softnet.value()?.iter().map(|line| (line.cpu, count(line))).collect())
}

/// A 32-bit counter that shrank has wrapped once.
fn counter_growth(before: u64, now: u64) -> f64 {
    let wrap = if now < before { 1_u64 << 32 } else { 0 };
    (now + wrap).saturating_sub(before) as f64
}

/// The share of time that each CPU spent in softirqs: between two readings, or with one reading
/// since boot. `None` if times are unknown.
pub(super) fn time_shares(view: &HostView<'_>) -> Option<BTreeMap<u32, f64>> {
    let now = times(view.now)?;
    let before = match view.before {
        Some(before) => times(before)?,
        None => BTreeMap::new(),
    };
    let share = |(cpu, (softirq, total)): (u32, (u64, u64))| {
        let (softirq_before, total_before) = before.get(&cpu).copied().unwrap_or_default();
        let (softirq, total) = (softirq.checked_sub(softirq_before)?, total.checked_sub(total_before)?);
        (total > 0).then(|| (cpu, softirq as f64 / total as f64))
    };
    Some(now.into_iter().filter_map(share).collect())
}

/// Softirq time and total time by CPU in ticks.
fn times(path: &PacketPath) -> Option<BTreeMap<u32, (u64, u64)>> {
    let times = path.machine.cpu_times.value()?;
    Some(times.iter().map(|time| (time.cpu, (time.softirq, time.total()))).collect())
}

/// Softirq ticks since boot by CPU.
pub(super) fn ticks(path: &PacketPath) -> Option<BTreeMap<u32, u64>> {
    Some(times(path)?.into_iter().map(|(cpu, (softirq, _))| (cpu, softirq)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_32_bit_counter_that_wraps_keeps_its_growth() {
        assert!((counter_growth(0xffff_fff0, 0x10) - 32.0).abs() < f64::EPSILON);
        assert!((counter_growth(5, 9) - 4.0).abs() < f64::EPSILON);
    }
}
