//! Threads that serve sockets: their CPU time, and their CPU relative to the packets.

use crate::known::UnknownReason;
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
    let receives_packets = |cpu: &&CpuSnapshot| {
        cpu.packets_share.is_some_and(|share| share >= LEAST_SHARE)
            && cpu.packets_per_second.is_some_and(|packets| packets >= LEAST_PACKETS)
    };
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
    let total_ticks = |task: &TaskStat| task.user_ticks?.checked_add(task.system_ticks?);
    let cpu_share = share(total_ticks);
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
        allowed: serving_thread.allowed.value().map(list),
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
        Some(node_cpus) if !overlap(node_cpus, packet_cpus) => ThreadLocality::FarNode,
        _ => ThreadLocality::OffQueue,
    })
}
