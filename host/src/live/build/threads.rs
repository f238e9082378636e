//! Threads that serve sockets: their CPU time, and their CPU relative to the packets.

use crate::known::UnknownReason;
use crate::stage::thread::{ServingThread, TICKS_PER_SECOND, TaskStat};
use crate::{CpuSet, Known};

use super::SnapshotInput;
use crate::live::growth::rate;
use crate::live::snapshot::{CpuSnapshot, ThreadLocality, ThreadSnapshot};

// A CPU with less than this share of all packets, or this rate, does not count as receiving them.
// If packets are spread over many CPUs, a quarter of an even share suffices.
const LEAST_SHARE: f64 = 0.02;
const LEAST_PART_OF_EVEN_SHARE: f64 = 0.25;
const LEAST_PACKETS: f64 = 100.0;

pub(super) fn all(
    readings: &SnapshotInput<'_>,
    cpus: &Known<Vec<CpuSnapshot>>,
) -> Result<Vec<ThreadSnapshot>, UnknownReason> {
    let serving = readings.path.thread.serving.known()?;
    let packet_cpus = packet_cpus(cpus.value().map_or(&[], Vec::as_slice));
    let mut threads: Vec<ThreadSnapshot> = Vec::new();
    for serving_thread in serving {
        if threads.iter().any(|thread| thread.tid == serving_thread.tid) {
            continue;
        }
        let key = (serving_thread.pid, serving_thread.tid);
        // Another thread may have the same id now.
        let Some(now) = readings.now.threads.get(&key).filter(|task| task.name == serving_thread.name) else {
            continue;
        };
        let before = readings.before.and_then(|before| before.threads.get(&key));
        let before = before.filter(|task| task.started == now.started);
        threads.push(thread(readings, serving_thread, (before, now), &packet_cpus));
    }
    Ok(threads)
}

/// CPUs on which packets enter the network stack, by activity.
fn packet_cpus(cpus: &[CpuSnapshot]) -> CpuSet {
    let is_active = |cpu: &&CpuSnapshot| cpu.packets_per_second.is_some_and(|rate| rate >= LEAST_PACKETS);
    let even_share = 1.0 / cpus.iter().filter(is_active).count().max(1) as f64;
    let least_share = LEAST_SHARE.min(LEAST_PART_OF_EVEN_SHARE * even_share);
    let receives_packets =
        |cpu: &&CpuSnapshot| is_active(cpu) && cpu.packets_share.is_some_and(|share| share >= least_share);
    cpus.iter().filter(receives_packets).map(|cpu| cpu.cpu).collect()
}

fn thread(
    readings: &SnapshotInput<'_>,
    serving_thread: &ServingThread,
    (before, now): (Option<&TaskStat>, &TaskStat),
    packet_cpus: &CpuSet,
) -> ThreadSnapshot {
    let share = |ticks: fn(&TaskStat) -> Option<u64>| {
        rate(before.and_then(ticks), ticks(now), readings.seconds).map(|rate| rate / TICKS_PER_SECOND)
    };
    let cpu_share = share(TaskStat::total_ticks);
    let has_run = cpu_share.is_some_and(|share| share > 0.0);
    let cpu = now.last_cpu;
    let services = readings.path.socket.services().iter();
    let served_services = services.filter(|service| {
        service.sockets.iter().any(|socket| serving_thread.sockets.contains(&socket.inode))
    });
    ThreadSnapshot {
        pid: serving_thread.pid,
        tid: serving_thread.tid,
        name: serving_thread.name.clone(),
        services: served_services.map(crate::stage::socket::ServiceSockets::name).collect(),
        gone_seconds: None,
        cpu_share,
        system_share: share(|task| task.system_ticks),
        cpu,
        moved_from: before.and_then(|task| task.last_cpu).filter(|earlier| Some(*earlier) != cpu),
        allowed: serving_thread.allowed.value().map(ToString::to_string),
        seat: cpu.filter(|_| has_run).and_then(|cpu| thread_locality(readings, cpu, packet_cpus)),
    }
}

fn thread_locality(readings: &SnapshotInput<'_>, cpu: u32, packet_cpus: &CpuSet) -> Option<ThreadLocality> {
    if packet_cpus.is_empty() {
        return None;
    }
    if packet_cpus.contains(cpu) {
        return Some(ThreadLocality::WithPackets);
    }
    let machine = &readings.path.machine;
    let node_cpus = machine.node_of(cpu).and_then(|node| machine.cpus_of(node));
    Some(match node_cpus {
        Some(cpus) if !cpus.iter().any(|cpu| packet_cpus.contains(cpu)) => ThreadLocality::FarNode,
        _ => ThreadLocality::OffQueue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_receive_packets_from_two_percent_or_a_quarter_of_an_even_share() {
        for (rates, receiving) in [
            (vec![10_000.0; 128], 128),
            ([vec![30_000.0; 60], vec![45_000.0; 4]].concat(), 64),
            ([vec![250_000.0; 4], vec![150.0; 60]].concat(), 4),
            (vec![1_000_000.0, 50_000.0, 10_000.0, 0.0], 2),
            (vec![99.0; 2], 0),
        ] {
            let total: f64 = rates.iter().sum();
            let cpu = |(cpu, rate): (u32, &f64)| CpuSnapshot {
                cpu,
                packets_per_second: Some(*rate),
                packets_share: Some(rate / total),
                ..CpuSnapshot::default()
            };
            let cpus: Vec<CpuSnapshot> = (0..).zip(&rates).map(cpu).collect();
            assert_eq!(packet_cpus(&cpus).len(), receiving, "{rates:?}");
        }
    }
}
