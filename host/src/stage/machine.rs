//! CPUs, NUMA nodes, kernel and virtualization of a host.

mod cloud;
mod governor;
mod kernel_age;
mod proc_stat;
mod smt;
mod steal;
mod topology;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{StageInfo, StageName};
use crate::finding::Rule;
use crate::{CpuSet, Host, Known};

pub use proc_stat::{CpuTime, CpuTimes};
pub(crate) use proc_stat::{cpu_time, cpu_times};

pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Machine,
    explain: "Packets are processed by CPUs: their number, shared cores and nodes, frequency, and other work \
              on them limit all later stages.",
    rules: RULES,
    counters: proc_stat::counters,
};

const RULES: &[Rule] = &[governor::RULE, smt::SHARED, smt::OFF, steal::RULE, kernel_age::RULE];

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
    /// From the firmware: `ec2`, `gce`, `azure`, ...; `None` for others.
    pub cloud: Known<Option<String>>,
    /// Time since boot, per CPU and in total.
    pub cpu_times: Known<Vec<CpuTimes>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: CpuSet,
}

impl MachineState {
    pub fn observe(host: &Host) -> Self {
        let cpuinfo = host.read("/proc/cpuinfo");
        let (cpu_model, hypervisor) = match &cpuinfo {
            Ok(text) => (cpu_model(text), hypervisor(text)),
            Err(error) => (Known::unknown(error.to_string()), Known::unknown(error.to_string())),
        };
        let online = cpu_list(host, "/sys/devices/system/cpu/online");
        Self {
            kernel: kernel(host),
            cpu_model,
            numa_nodes: match cpu_list(host, "/sys/devices/system/node/online") {
                Known::Value(nodes) => Known::Value(u32::try_from(nodes.len()).unwrap_or(u32::MAX)),
                Known::Unknown { why } => Known::Unknown { why },
            },
            hypervisor,
            nodes: topology::nodes(host),
            cores: topology::cores(host, &online),
            governors: governor::governors(host, &online),
            frequency_driver: governor::driver(host, &online),
            smt_control: smt::control(host),
            cloud: cloud::cloud(host),
            cpu_times: proc_stat::of_each_cpu(host, &online),
            online,
        }
    }

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
    pub fn kernel_is_at_least(&self, major: u32, minor: u32) -> Option<bool> {
        version(self.kernel.value()?).map(|version| version >= (major, minor))
    }
}

/// 6 and 18 of `6.18.0-rc1`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(host: &Host) -> Known<String> {
    const PATH: &str = "/proc/sys/kernel/osrelease";
    match host.read(PATH) {
        Ok(text) if text.starts_with(|letter: char| letter.is_ascii_digit()) => {
            Known::Value(text.trim().to_owned())
        }
        Ok(text) => Known::unknown(format!("{PATH}: '{}' is no release of a kernel", text.trim())),
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// An empty set, as of a node without CPUs, is an empty line. An empty file is an error.
fn cpu_list(host: &Host, path: &str) -> Known<CpuSet> {
    match host.read(path) {
        Ok(text) if text.is_empty() => Known::unknown(format!("{path}: empty")),
        Ok(text) => match CpuSet::from_list(&text) {
            Ok(set) => Known::Value(set),
            Err(error) => Known::unknown(format!("{path}: {error}")),
        },
        Err(error) => Known::unknown(error.to_string()),
    }
}

fn cpuinfo_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

fn cpu_model(text: &str) -> Known<String> {
    cpuinfo_value(text, "model name").map_or_else(
        || Known::unknown("/proc/cpuinfo names no model"),
        |model| Known::Value(model.to_owned()),
    )
}

fn hypervisor(text: &str) -> Known<bool> {
    cpuinfo_value(text, "flags").map_or_else(
        || Known::unknown("/proc/cpuinfo has no x86 flags"),
        |flags| Known::Value(flags.split_whitespace().any(|flag| flag == "hypervisor")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_machine() {
        let host = Host::scripted([
            ("/proc/sys/kernel/osrelease", "4.6.3\n"),
            ("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu hypervisor\n"),
            ("/sys/devices/system/cpu/online", "0-19\n"),
            ("/sys/devices/system/node/online", "0-1\n"),
        ]);
        let machine = MachineState::observe(&host);
        assert_eq!(machine.kernel, Known::Value("4.6.3".into()));
        assert_eq!(machine.cpu_model, Known::Value("Xeon".into()));
        assert_eq!(machine.online.value().map(CpuSet::len), Some(20));
        assert_eq!(machine.numa_nodes, Known::Value(2));
        assert_eq!(machine.hypervisor, Known::Value(true));
    }

    #[test]
    fn what_is_missing_is_unknown_and_says_why() {
        let machine = MachineState::observe(&Host::scripted([
            ("/proc/cpuinfo", "processor : 0\n"),
            ("/proc/sys/kernel/osrelease", ""),
            ("/sys/devices/system/cpu/online", ""),
        ]));
        assert_eq!(machine.cpu_model.why(), Some("/proc/cpuinfo names no model"));
        assert_eq!(machine.kernel.why(), Some("/proc/sys/kernel/osrelease: '' is no release of a kernel"));
        assert_eq!(machine.online.why(), Some("/sys/devices/system/cpu/online: empty"));
        assert!(machine.numa_nodes.why().is_some_and(|why| why.contains("/sys/devices/system/node/online")));
    }
}
