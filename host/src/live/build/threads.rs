//! Threads that serve sockets: their CPU time, and their CPU relative to the packets.

use crate::stage::thread::{ServingThread, TICKS_PER_SECOND, TaskStat};
use crate::{CpuSet, Known};

use super::input::{SnapshotInput, list};
use super::interfaces::overlap;
use crate::live::growth::rate;
use crate::live::snapshot::{CpuSnapshot, ThreadLocality, ThreadSnapshot};

// A CPU with less than this share of all packets, or this rate, does not count as receiving them.
const LEAST_SHARE: f64 = 0.02;
const LEAST_PACKETS: f64 = 100.0;

pub(super) fn all(
    readings: &SnapshotInput<'_>,
    cpus: &Known<Vec<CpuSnapshot>>,
) -> Known<Vec<ThreadSnapshot>> {
    let serving = match &readings.path.thread.serving {
        Known::Value(serving) => serving,
        Known::Unknown { why } => return Known::unknown(why.clone()),
    };
    let with_packets = with_packets(cpus.value().map_or(&[], Vec::as_slice));
    let mut threads: Vec<ThreadSnapshot> = Vec::new();
    for known in serving {
        if threads.iter().any(|thread| thread.tid == known.tid) {
            continue;
        }
        let key = (known.pid, known.tid);
        // Another thread may have the same id now.
        let Some(now) = readings.now.threads.get(&key).filter(|task| task.name == known.name) else {
            continue;
        };
        let before = readings.before.and_then(|before| before.threads.get(&key));
        let before = before.filter(|task| task.started == now.started);
        threads.push(thread(readings, known, (before, now), &with_packets));
    }
    Known::Value(threads)
}

/// CPUs on which packets enter the network stack, by activity.
fn with_packets(cpus: &[CpuSnapshot]) -> CpuSet {
    let takes = |cpu: &&CpuSnapshot| {
        cpu.packets_share.is_some_and(|share| share >= LEAST_SHARE)
            && cpu.packets_per_second.is_some_and(|packets| packets >= LEAST_PACKETS)
    };
    cpus.iter().filter(takes).map(|cpu| cpu.cpu).collect()
}

fn thread(
    readings: &SnapshotInput<'_>,
    known: &ServingThread,
    (before, now): (Option<&TaskStat>, &TaskStat),
    with_packets: &CpuSet,
) -> ThreadSnapshot {
    let share = |ticks: fn(&TaskStat) -> Option<u64>| {
        rate(before.and_then(ticks), ticks(now), readings.seconds).map(|rate| rate / TICKS_PER_SECOND)
    };
    let all = |task: &TaskStat| task.user_ticks?.checked_add(task.system_ticks?);
    let cpu_share = share(all);
    let ran = cpu_share.is_some_and(|share| share > 0.0);
    let cpu = now.last_cpu;
    let services = readings.path.socket.services().iter();
    let serves =
        services.filter(|service| service.sockets.iter().any(|socket| known.sockets.contains(&socket.inode)));
    ThreadSnapshot {
        pid: known.pid,
        tid: known.tid,
        name: known.name.clone(),
        services: serves.map(crate::stage::socket::ServiceSockets::name).collect(),
        gone_seconds: None,
        cpu_share,
        system_share: share(|task| task.system_ticks),
        cpu,
        moved_from: before.and_then(|task| task.last_cpu).filter(|earlier| Some(*earlier) != cpu),
        allowed: known.allowed.value().map(list),
        seat: cpu.filter(|_| ran).and_then(|cpu| seat(readings, cpu, with_packets)),
    }
}

fn seat(readings: &SnapshotInput<'_>, cpu: u32, with_packets: &CpuSet) -> Option<ThreadLocality> {
    if with_packets.is_empty() {
        return None;
    }
    if with_packets.contains(cpu) {
        return Some(ThreadLocality::WithPackets);
    }
    let machine = &readings.path.machine;
    let own = machine.node_of(cpu).and_then(|node| machine.cpus_of(node));
    Some(match own {
        Some(own) if !overlap(own, with_packets) => ThreadLocality::FarNode,
        _ => ThreadLocality::OffQueue,
    })
}
