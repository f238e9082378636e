//! A short description of a result's host.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Host;
use crate::stage::machine::MachineState;

/// The host that a result is about. `None` is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSummary {
    /// Its node name.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub kernel: Option<String>,
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// CPUs online.
    #[serde(default)]
    pub cpus: Option<usize>,
    /// Whether it is a virtual machine.
    #[serde(default)]
    pub hypervisor: Option<bool>,
}

impl HostSummary {
    /// The summary of the host that `host` reads. Only a live host has this machine's name.
    pub fn observe(host: &Host) -> Self {
        Self::of_machine(&MachineState::observe(host))
    }

    /// The summary of a machine state that was already read.
    pub fn of_machine(machine: &MachineState) -> Self {
        Self {
            name: host_name(),
            kernel: machine.kernel.value().cloned(),
            cpu_model: machine.cpu_model.value().cloned(),
            cpus: machine.online.value().map(crate::CpuSet::len),
            hypervisor: machine.hypervisor.value().copied(),
        }
    }

    /// A host of which only the name is known.
    pub fn named(name: Option<String>) -> Self {
        Self { name, ..Self::default() }
    }
}

/// The node name of this host; `None` if it has none.
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    (!name.is_empty() && name != "(none)").then_some(name)
}

/// Seconds since 1970; `None` if the clock is before that.
pub fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|elapsed| elapsed.as_secs())
}
