//! Activity per CPU.

use std::collections::BTreeMap;

use crate::counter_sample::CounterSample;
use crate::known::UnknownReason;
use crate::stage::machine::CpuTimes;
use crate::stage::softirq::SoftnetCpu;

use super::SnapshotInput;
use super::interrupts::InterruptRates;
use crate::live::growth::rate_32;
use crate::live::snapshot::CpuSnapshot;

pub(super) fn all(
    readings: &SnapshotInput<'_>,
    interrupts: &InterruptRates,
) -> Result<Vec<CpuSnapshot>, UnknownReason> {
    let times = readings.now.cpu_times.known()?;
    let before = CpuCounters::of(readings.before);
    let now = CpuCounters::of(Some(readings.now));
    let mut cpus: Vec<CpuSnapshot> =
        times.iter().map(|times| cpu(readings, interrupts, (&before, &now), times)).collect();
    let total: f64 = cpus.iter().filter_map(|cpu| cpu.packets_per_second).sum();
    for cpu in &mut cpus {
        cpu.packets_share = cpu.packets_per_second.filter(|_| total > 0.0).map(|packets| packets / total);
    }
    Ok(cpus)
}

struct CpuCounters<'a> {
    times: BTreeMap<u32, &'a CpuTimes>,
    softnet: BTreeMap<u32, &'a SoftnetCpu>,
    net_rx: Option<&'a BTreeMap<u32, u64>>,
}

impl<'a> CpuCounters<'a> {
    fn of(sample: Option<&'a CounterSample>) -> Self {
        let times = sample.and_then(|sample| sample.cpu_times.value()).into_iter().flatten();
        let softnet = sample.and_then(|sample| sample.softnet.value()).into_iter().flatten();
        Self {
            times: times.map(|item| (item.cpu, item)).collect(),
            softnet: softnet.map(|item| (item.cpu, item)).collect(),
            net_rx: sample.and_then(|sample| sample.net_rx.value()),
        }
    }
}

fn cpu(
    readings: &SnapshotInput<'_>,
    interrupts: &InterruptRates,
    (before, now): (&CpuCounters<'_>, &CpuCounters<'_>),
    times: &CpuTimes,
) -> CpuSnapshot {
    let cpu = times.cpu;
    let share = |part: fn(&CpuTimes) -> u64| {
        let earlier = before.times.get(&cpu)?;
        let all = times.total().checked_sub(earlier.total()).filter(|all| *all > 0)?;
        Some((part(times).checked_sub(part(earlier))? as f64 / all as f64).min(1.0))
    };
    let softnet = |count: fn(&SoftnetCpu) -> Option<u64>| {
        let count_of = |counters: &CpuCounters<'_>| counters.softnet.get(&cpu).and_then(|line| count(line));
        rate_32(count_of(before), count_of(now), readings.seconds)
    };
    let net_rx = |counters: &CpuCounters<'_>| counters.net_rx.and_then(|counts| counts.get(&cpu).copied());
    CpuSnapshot {
        cpu,
        node: readings.path.machine.node_of(cpu),
        interrupts_per_second: interrupts.cpu_rate(cpu),
        busy_share: share(|times| times.idle).map(|idle| 1.0 - idle),
        softirq_share: share(|times| times.softirq),
        steal_share: share(|times| times.steal),
        net_rx_per_second: rate_32(net_rx(before), net_rx(now), readings.seconds),
        packets_share: None,
        packets_per_second: softnet(|line| Some(line.processed)),
        rps_per_second: softnet(|line| line.received_rps),
        drops_per_second: softnet(|line| Some(line.dropped)),
        squeezes_per_second: softnet(|line| Some(line.time_squeeze)),
        backlog_packets: now.softnet.get(&cpu).and_then(|line| line.backlog),
    }
}
