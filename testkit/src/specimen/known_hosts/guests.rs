//! Virtual machines of several shapes on which nothing is wrong: `virtio_net` placed its queues as it
//! does by itself.

use super::{Specimen, small_vm};
use crate::specimen::{Cpu, CpuTimes, Interrupt, Machine, ReceiveQueue, Softnet, TransmitQueue, UdpSocket};

/// Nodes, cores per node, threads per core, queue pairs.
type Shape = (u32, u32, u32, u32);

/// Quiet guests without a UDP service: with hardware threads, with four nodes, with as many queue
/// pairs as CPUs and with fewer.
#[must_use]
pub fn healthy() -> Vec<Specimen> {
    let shapes: [(&'static str, &'static str, Shape); 6] = [
        ("guest-smt", "8 hardware threads of 4 cores, virtio with 8 queue pairs, quiet", (1, 4, 2, 8)),
        (
            "guest-smt-4-queues",
            "8 hardware threads of 4 cores, virtio with 4 queue pairs, quiet",
            (1, 4, 2, 4),
        ),
        ("guest-4-nodes", "8 CPUs on 4 nodes, virtio with 8 queue pairs, quiet", (4, 2, 1, 8)),
        ("guest-4-nodes-4-queues", "8 CPUs on 4 nodes, virtio with 4 queue pairs, quiet", (4, 2, 1, 4)),
        (
            "guest-4-nodes-smt",
            "16 hardware threads on 4 nodes, virtio with 4 queue pairs, quiet",
            (4, 2, 2, 4),
        ),
        ("guest-virtio", "4 CPUs, virtio with 4 queue pairs, quiet", (1, 4, 1, 4)),
    ];
    shapes.into_iter().map(|(name, about, shape)| guest(name, about, shape)).collect()
}

fn guest(name: &'static str, about: &'static str, (nodes, cores, threads, pairs): Shape) -> Specimen {
    let mut first = small_vm::machine();
    let count = nodes * cores * threads;
    // QEMU numbers the threads of a core one after the other.
    first.cpus.all = (0..count)
        .map(|cpu| Cpu { cpu, node: cpu / (cores * threads), core: cpu / threads % cores })
        .collect();
    first.times = vec![CpuTimes { idle: 43_200_000, ..CpuTimes::default() }; count as usize];
    first.softnet = vec![Softnet { processed: 500_000, ..Softnet::default() }; count as usize];
    place(&mut first, count, pairs);
    for process in &mut first.processes {
        process.threads.iter_mut().for_each(|thread| thread.allowed = (0..count).collect());
    }
    // A DHCP client and a time client are no services.
    first.udp.retain(|socket: &UdpSocket| [68, 323].contains(&socket.local.port()));
    let mut later = first.clone();
    later.uptime_centiseconds += 1000;
    for times in &mut later.times {
        times.idle += 1000;
    }
    Specimen { name, about, first, later: Some(later) }
}

/// A group of neighbouring CPUs for each queue pair, in the masks of its two vectors and of XPS
/// (`virtnet_set_affinity`, drivers/net/virtio_net.c, Linux 6.1). Which of a mask's CPUs a vector
/// is on, the kernel chose.
fn place(machine: &mut Machine, cpus: u32, pairs: u32) {
    let group = |pair: u32| -> Vec<u32> { (0..cpus).filter(|cpu| cpu * pairs / cpus == pair).collect() };
    let vector = |number: u32, name: String, affinity: Vec<u32>, chosen: usize| Interrupt {
        irq: 24 + number,
        chip: "PCI-MSI".into(),
        hardware: 49_152 + number,
        name: format!("virtio0-{name}"),
        effective: affinity[chosen % affinity.len()],
        hint: affinity.clone(),
        affinity,
        node: -1,
        handled: vec![1000; cpus as usize],
    };
    let mut interrupts = vec![vector(0, "config".into(), (0..cpus).collect(), 0)];
    for pair in 0..pairs {
        interrupts.push(vector(2 * pair + 1, format!("input.{pair}"), group(pair), 1));
        interrupts.push(vector(2 * pair + 2, format!("output.{pair}"), group(pair), 0));
    }
    interrupts[0].hint.clear();
    let nic = &mut machine.nics[0];
    nic.irqs = interrupts.iter().map(|interrupt| interrupt.irq).collect();
    nic.receive = vec![ReceiveQueue::default(); pairs as usize];
    nic.transmit = (0..pairs).map(|pair| TransmitQueue { xps: group(pair), limit: 0 }).collect();
    nic.ethtool.channels = Some([0, 0, pairs, 0, 0, pairs]);
    nic.ethtool.table_queues = Some(pairs);
    nic.ethtool.statistics = (0..pairs).map(|pair| (format!("rx_queue_{pair}_packets"), 900_000)).collect();
    machine.interrupts = interrupts;
}
