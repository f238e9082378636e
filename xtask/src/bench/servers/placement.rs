//! The CPUs on which packets are received while servers are compared.

use anyhow::ensure;
use clap::ValueEnum;
use linerate_lab::LabHost;

use crate::bench::placement::{pin_napi_threads, set_device, steer_by_rps};
use crate::machine;

/// A veth pair has no interrupts: packets are received on the CPU that sent them, unless they are
/// steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ReceivePlacement {
    /// RPS moves packets to the servers' CPUs; XDP programs run before that, on the generator's CPU
    Rps,
    /// A NAPI thread on the servers' CPUs polls the interface, for XDP programs and the stack
    Threaded,
    /// All packets on the generator's CPU
    Sent,
}

impl ReceivePlacement {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Rps => {
                "RPS moves packets to the servers' CPUs, in softirqs, where many may wait; XDP programs run on the generator's CPU"
            }
            Self::Threaded => {
                "threaded NAPI on the servers' CPUs: XDP programs and the stack share them with the servers"
            }
            Self::Sent => "all receiving is done on the generator's CPU",
        }
    }

    pub(super) fn set(
        self,
        host: &LabHost,
        interface: &str,
        queues: u32,
        cpus: &[u32],
    ) -> anyhow::Result<()> {
        match self {
            Self::Sent => Ok(()),
            Self::Rps => steer_by_rps(host, interface, queues, cpus),
            Self::Threaded => {
                set_device(host, interface, "threaded", "1")?;
                pin_napi_threads(interface, cpus)
            }
        }
    }
}

/// Keeps the calling thread, and the programs it starts in a lab, off the servers' CPUs.
pub(super) fn pin_to(cpu: u32, servers: &[u32]) -> anyhow::Result<()> {
    ensure!(
        !servers.contains(&cpu),
        "CPU {cpu} cannot both serve and ask: see --server-cpus and --generator-cpu"
    );
    let allowed_cpus = machine::allowed_cpus()?;
    for required_cpu in servers.iter().chain([&cpu]) {
        ensure!(
            allowed_cpus.contains(required_cpu),
            "there is no CPU {required_cpu} here: two are needed, see --server-cpus and --generator-cpu"
        );
    }
    machine::pin(None, cpu)
}
