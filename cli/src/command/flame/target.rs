//! Duration, frequency and CPUs of a measurement.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use linerate_host::{CpuSet, Host};
use linerate_trace::flame::ProfileOptions;
use linerate_trace::flame::profile::FREQUENCY_HZ;

use crate::command::cpus;
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
    #[arg(long, value_name = "LIST", value_parser = quantity::parse_cpus)]
    cpus: Option<CpuSet>,
    /// Only the CPUs that process packets of this interface (interrupts and RPS)
    #[arg(short = 'i', long, value_name = "IF", conflicts_with = "cpus")]
    interface: Option<String>,
}

impl FlameTargetArgs {
    pub(super) fn options(&self, host: &Host) -> Result<ProfileOptions> {
        let cpus = match (&self.cpus, &self.interface) {
            (Some(cpus), _) => {
                cpus::check_online("--cpus", cpus, &cpus::online(host)?)?;
                Some(cpus.iter().collect())
            }
            (None, Some(interface)) => Some(of_interface(host, interface)?.iter().collect()),
            (None, None) => None,
        };
        Ok(ProfileOptions { duration: self.duration, frequency_hz: self.frequency, cpus })
    }
}

fn of_interface(host: &Host, interface: &str) -> Result<CpuSet> {
    let cpus = cpus::of_interface(host, interface)?;
    ensure!(
        !cpus.is_empty(),
        "{interface} has neither queue interrupts nor RPS, as is usual for virtual interfaces, so its CPUs are unknown: \
         select CPUs with --cpus"
    );
    Ok(cpus)
}
