//! Duration, frequency and CPUs of a measurement.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linerate_host::stage::machine::MachineState;
use linerate_host::{CpuSet, Host, PacketPath, Scope};
use linerate_trace::flame::ProfileOptions;
use linerate_trace::flame::profile::FREQUENCY_HZ;

use crate::command::packet_cpus::packet_cpus;
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
    let cpus: Vec<u32> = packet_cpus(&PacketPath::observe(host, &scope), interface).iter().collect();
    ensure!(
        !cpus.is_empty(),
        "{interface} has neither queue interrupts nor RPS, as is usual for virtual interfaces, so its CPUs are unknown: \
         select CPUs with --cpus"
    );
    Ok(cpus)
}
