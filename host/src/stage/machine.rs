//! CPUs, NUMA nodes, kernel and virtualization of a host.

pub(super) mod governor;
pub(super) mod kernel_age;
mod observe;
mod proc_stat;
pub(super) mod smt;
pub(super) mod steal;
mod topology;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{CpuSet, Known};

pub(crate) use proc_stat::cpu_times;
pub use proc_stat::{CpuTime, CpuTimes};

#[derive(Debug, Clone, Serialize)]
pub struct MachineState {
    /// Such as `6.18.0`.
    pub kernel: Known<String>,
    /// Of the first CPU. Architectures other than x86 may have none.
    pub cpu_model: Known<String>,
    pub online: Known<CpuSet>,
    pub numa_nodes: Known<u32>,
    /// The hypervisor flag of x86.
    pub hypervisor: Known<bool>,
    /// Without nodes that only have memory.
    pub nodes: Known<Vec<NumaNode>>,
    /// Hardware threads by core.
    pub cores: Known<Vec<CpuSet>>,
    /// Frequency governor per CPU; `None` without frequency scaling.
    pub governors: Known<Option<BTreeMap<u32, String>>>,
    /// Of the first CPU, such as `intel_pstate`; `None` without frequency scaling.
    pub frequency_driver: Known<Option<String>>,
    /// `on`, `off`, `forceoff`, `notsupported` or `notimplemented`
    /// (`/sys/devices/system/cpu/smt/control`, Linux 4.19); `None` if the kernel does not report
    /// it.
    pub smt_control: Known<Option<String>>,
    /// Time since boot, per CPU and in total.
    pub cpu_times: Known<Vec<CpuTimes>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: CpuSet,
}

impl MachineState {
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.value()?.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.node)
    }

    pub fn cpus_of(&self, node: u32) -> Option<&CpuSet> {
        self.nodes.value()?.iter().find(|item| item.node == node).map(|item| &item.cpus)
    }

    pub fn siblings_of(&self, cpu: u32) -> Option<&CpuSet> {
        self.cores.value()?.iter().find(|core| core.contains(cpu))
    }

    /// `None` if the version is unknown.
    pub fn kernel_is_at_least(&self, version: KernelVersion) -> Option<bool> {
        self::version(self.kernel.value()?).map(|own_version| own_version >= version)
    }
}

/// Major and minor number.
pub type KernelVersion = (u32, u32);

/// Returns 6 and 18 for `6.18.0-rc1`.
pub(super) fn version(release: &str) -> Option<KernelVersion> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
