//! Softirqs, backlog and RPS.

use linerate_host::PacketPath;
use linerate_host::stage::softirq::SoftnetCpu;

use super::{CounterReset, GatheredSamples};
use crate::metrics::families::{
    SOFTIRQ_BACKLOG, SOFTIRQ_BACKLOG_LIMIT, SOFTIRQ_DROPPED, SOFTIRQ_FLOW_LIMITED, SOFTIRQ_PROCESSED,
    SOFTIRQ_RPS, SOFTIRQ_RPS_CPUS, SOFTIRQ_RUNS, SOFTIRQ_SQUEEZES,
};
use crate::metrics::family::MetricFamily;

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    path.softirq.softnet.value().into_iter().flatten().for_each(|line| of_cpu(line, all));
    for (cpu, runs) in path.softirq.net_rx.value().into_iter().flatten() {
        all.add_source_counter(&SOFTIRQ_RUNS, &[&cpu.to_string()], (0, CounterReset::At32Bits), *runs);
    }
    if let Some(limit) = path.softirq.sysctls.get("netdev_max_backlog").and_then(|limit| limit.value()) {
        all.add_integer_gauge(&SOFTIRQ_BACKLOG_LIMIT, &[], *limit);
    }
    for item in &path.softirq.rps {
        for queue in item.queues.value().into_iter().flatten() {
            if let Some(cpus) = queue.cpus.value() {
                all.add_integer_gauge(
                    &SOFTIRQ_RPS_CPUS,
                    &[&item.interface, &queue.queue.to_string()],
                    cpus.len() as u64,
                );
            }
        }
    }
}

fn of_cpu(line: &SoftnetCpu, all: &mut GatheredSamples) {
    let counts: [(&'static MetricFamily, Option<u64>); 5] = [
        (&SOFTIRQ_PROCESSED, Some(line.processed)),
        (&SOFTIRQ_DROPPED, Some(line.dropped)),
        (&SOFTIRQ_SQUEEZES, Some(line.time_squeeze)),
        (&SOFTIRQ_RPS, line.received_rps),
        (&SOFTIRQ_FLOW_LIMITED, line.flow_limit),
    ];
    let cpu = line.cpu.to_string();
    for (family, count) in counts {
        if let Some(count) = count {
            all.add_source_counter(family, &[&cpu], (0, CounterReset::At32Bits), count);
        }
    }
    if let Some(waiting) = line.backlog {
        all.add_integer_gauge(&SOFTIRQ_BACKLOG, &[&cpu], waiting);
    }
}
