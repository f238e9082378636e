//! The CPUs that a command measures.

use anyhow::{Context, Result, bail};
use linerate_host::stage::irq::IrqVector;
use linerate_host::{CpuSet, Host, PacketPath, Scope};

pub(super) fn online(host: &Host) -> Result<CpuSet> {
    CpuSet::from_list(&host.read("/sys/devices/system/cpu/online")?).context("/sys/devices/system/cpu/online")
}

/// Fails unless all the CPUs of an option are online.
pub(super) fn check_online(option: &str, cpus: &CpuSet, online: &CpuSet) -> Result<()> {
    let offline = cpus.iter().find(|cpu| !online.contains(*cpu));
    offline.map_or(Ok(()), |cpu| bail!("{option}: CPU {cpu} is not online (online: {online})"))
}

/// CPUs of the interrupts of an interface's queues, and CPUs that RPS steers their packets to. Empty if neither is known,
/// for example for a veth, whose packets are processed on the sending CPU.
pub(super) fn of_interface(host: &Host, interface: &str) -> Result<CpuSet> {
    let scope = Scope { interfaces: vec![interface.to_owned()], ..Scope::default() };
    scope.check(host)?;
    let path = PacketPath::observe(host, &scope);
    let vectors = path.irq.vectors(interface);
    let serves_queue =
        |vector: &&IrqVector| vector.receive_queue.is_some() || vector.transmit_queue.is_some();
    // If no vector names its queue, any of them may belong to a queue.
    let has_queue_vectors = vectors.iter().any(|vector| serves_queue(&vector));
    let queue_vectors = vectors.iter().filter(|vector| !has_queue_vectors || serves_queue(vector));
    let rps_cpus = path.softirq.rps_queues(interface).iter().filter_map(|queue| queue.cpus.value());
    let online = path.machine.online.value();
    let cpus = queue_vectors.filter_map(IrqVector::cpus).chain(rps_cpus).flat_map(CpuSet::iter);
    Ok(cpus.filter(|cpu| online.is_none_or(|online| online.contains(*cpu))).collect())
}
