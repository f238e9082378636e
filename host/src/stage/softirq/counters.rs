//! Counters of softirqs.

use super::SoftnetCpu;
use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

const SOFTNET: &str = "/proc/net/softnet_stat";

pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    let softnet = path.softirq.softnet.value().map_or(&[][..], Vec::as_slice);
    let mut counters: Vec<Counter> = softnet.iter().flat_map(counters_of_cpu).collect();
    let net_rx = path.softirq.net_rx.value().into_iter().flatten();
    counters.extend(
        net_rx.map(|(cpu, runs)| counter(*cpu, "NET_RX", CountedUnit::Events, *runs, "/proc/softirqs")),
    );
    counters
}

fn counters_of_cpu(line: &SoftnetCpu) -> Vec<Counter> {
    let counts = [
        ("processed", CountedUnit::PacketsIn, Some(line.processed)),
        ("dropped", CountedUnit::PacketsLost, Some(line.dropped)),
        ("time_squeeze", CountedUnit::Events, Some(line.time_squeeze)),
        ("received_rps", CountedUnit::Events, line.received_rps),
        // Included in `dropped` (net/core/dev.c, `enqueue_to_backlog`), so not an additional loss.
        ("flow_limit", CountedUnit::Events, line.flow_limit),
    ];
    counts
        .into_iter()
        .filter_map(|(name, counts, value)| Some(counter(line.cpu, name, counts, value?, SOFTNET)))
        .collect()
}

fn counter(cpu: u32, name: &str, counts: CountedUnit, value: u64, read_from: &str) -> Counter {
    Counter::new(StageName::Softirq, format!("cpu {cpu}"), name, counts, value, read_from)
}
