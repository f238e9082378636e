//! The CPUs that process packets of an interface.

use linerate_host::stage::irq::IrqVector;
use linerate_host::{CpuSet, PacketPath};

/// CPUs of the interrupts of an interface's queues, and CPUs that RPS steers their packets to.
pub(super) fn packet_cpus(path: &PacketPath, interface: &str) -> CpuSet {
    let vectors = path.irq.vectors(interface);
    let serves_queue =
        |vector: &&IrqVector| vector.receive_queue.is_some() || vector.transmit_queue.is_some();
    // If no vector names its queue, any of them may belong to a queue.
    let has_queue_vectors = vectors.iter().any(|vector| serves_queue(&vector));
    let queue_vectors = vectors.iter().filter(|vector| !has_queue_vectors || serves_queue(vector));
    let rps_cpus = path.softirq.rps_queues(interface).iter().filter_map(|queue| queue.cpus.value());
    let online = path.machine.online.value();
    let cpus = queue_vectors.filter_map(IrqVector::cpus).chain(rps_cpus).flat_map(CpuSet::iter);
    cpus.filter(|cpu| online.is_none_or(|online| online.contains(*cpu))).collect()
}
