//! Duration, frequency and CPUs of a measurement.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linerate_host::stage::machine::MachineState;
use linerate_host::{CpuSet, Host, PacketPath, Scope};
use linerate_trace::flame::ProfileOptions;
use linerate_trace::flame::profile::FREQUENCY_HZ;

use crate::quantity;

#[derive(Debug, Args)]
pub(super) struct FlameTargetArgs {
    // At most an hour, because stacks are kept in memory.
    /// Duration, seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = quantity::seconds(0.1..=3_600.0))]
    duration: Duration,
    /// Samples per second and CPU
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = FREQUENCY_HZ,
        value_parser = clap::value_parser!(u32).range(1..=20_000)
    )]
    frequency: u32,
    /// Only these CPUs, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Only the CPUs that process packets of this interface (interrupts and RPS)
    #[arg(short = 'i', long, value_name = "IF", conflicts_with = "cpus")]
    interface: Option<String>,
}

impl FlameTargetArgs {
    pub(super) fn options(&self, host: &Host) -> Result<ProfileOptions> {
        let cpus = match (&self.cpus, &self.interface) {
            (Some(list), _) => Some(parse_online_cpus(host, &CpuSet::from_list(list).context("--cpus")?)?),
            (None, Some(interface)) => Some(of_interface(host, interface)?),
            (None, None) => None,
        };
        Ok(ProfileOptions { duration: self.duration, frequency_hz: self.frequency, cpus })
    }
}

fn parse_online_cpus(host: &Host, requested: &CpuSet) -> Result<Vec<u32>> {
    ensure!(!requested.is_empty(), "--cpus names no CPU");
    if let Some(online) = MachineState::observe(host).online.value()
        && let Some(offline_cpu) = requested.iter().find(|cpu| !online.contains(*cpu))
    {
        bail!("--cpus: CPU {offline_cpu} is not online: there are {online}");
    }
    Ok(requested.iter().collect())
}

fn of_interface(host: &Host, interface: &str) -> Result<Vec<u32>> {
    if let Ok(names) = host.list("/sys/class/net")
        && !names.iter().any(|name| name == interface)
    {
        bail!("no interface '{interface}': there are {}", names.join(", "));
    }
    let scope = Scope { interfaces: vec![interface.to_owned()], ..Scope::default() };
    let cpus = packet_cpus(&PacketPath::observe(host, &scope), interface);
    ensure!(
        !cpus.is_empty(),
        "{interface} has neither queue interrupts nor RPS, as is usual for virtual interfaces, so its CPUs are unknown: \
         select CPUs with --cpus"
    );
    Ok(cpus)
}

/// CPUs of the interrupts of an interface's queues, and CPUs that RPS steers their packets to.
fn packet_cpus(path: &PacketPath, interface: &str) -> Vec<u32> {
    let vectors = path.irq.vectors(interface);
    let serves_queue = |vector: &&linerate_host::stage::irq::IrqVector| {
        vector.receive_queue.is_some() || vector.transmit_queue.is_some()
    };
    // If no vector names its queue, any of them may belong to a queue.
    let has_queue_vectors = vectors.iter().any(|vector| serves_queue(&vector));
    let vector_cpus = vectors
        .iter()
        .filter(|vector| !has_queue_vectors || serves_queue(vector))
        .filter_map(|vector| vector.cpus());
    let rps = path.softirq.rps.iter().filter(|rps| rps.interface == interface);
    let queues = rps.filter_map(|rps| rps.queues.value()).flatten();
    let rps_cpus = queues.filter_map(|queue| queue.cpus.value());
    let online = path.machine.online.value();
    let cpus: std::collections::BTreeSet<u32> = vector_cpus.chain(rps_cpus).flat_map(CpuSet::iter).collect();
    cpus.into_iter().filter(|cpu| online.is_none_or(|online| online.contains(*cpu))).collect()
}
