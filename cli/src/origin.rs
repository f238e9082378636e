//! Where and when a result is from.

use std::time::{SystemTime, UNIX_EPOCH};

use linerate_host::Host;
use linerate_host::stage::machine::MachineState;
use serde::{Deserialize, Serialize};

/// The host that a result is about. `None` is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostSummary {
    /// Its node name.
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) kernel: Option<String>,
    #[serde(default)]
    pub(crate) cpu_model: Option<String>,
    /// CPUs online.
    #[serde(default)]
    pub(crate) cpus: Option<usize>,
    /// Whether it is a virtual machine.
    #[serde(default)]
    pub(crate) hypervisor: Option<bool>,
}

/// Who made a result, when, and on which host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) schema: String,
    /// Version of the program.
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    /// Seconds since 1970; `None` if unknown.
    pub(crate) started_unix_seconds: Option<u64>,
    pub(crate) host: HostSummary,
}

/// Something that limits what a result says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warning {
    /// A stable identifier such as `cpu-steal`; `None` for remarks without one.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// A sentence or clause for people.
    pub(crate) detail: String,
}

impl Warning {
    pub(crate) fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), detail: detail.into() }
    }

    /// A remark without an identifier.
    pub(crate) fn remark(detail: impl Into<String>) -> Self {
        Self { kind: None, detail: detail.into() }
    }
}

impl HostSummary {
    /// The host that `host` reads. Only a live host has this machine's name.
    pub(crate) fn observe(host: &Host) -> Self {
        Self::of_machine(&MachineState::observe(host))
    }

    /// The same from a machine state that was read already.
    pub(crate) fn of_machine(machine: &MachineState) -> Self {
        Self {
            name: host_name(),
            kernel: machine.kernel.value().cloned(),
            cpu_model: machine.cpu_model.value().cloned(),
            cpus: machine.online.value().map(linerate_host::CpuSet::len),
            hypervisor: machine.hypervisor.value().copied(),
        }
    }

    /// A host of which only the name is known.
    pub(crate) fn named(name: Option<String>) -> Self {
        Self { name, ..Self::default() }
    }
}

/// The node name of this host; `None` if it has none.
pub(crate) fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    (!name.is_empty() && name != "(none)").then_some(name)
}

/// The time, seconds since 1970; `None` if the clock is before that.
pub(crate) fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
