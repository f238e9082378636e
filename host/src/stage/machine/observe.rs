//! Reads the machine.

use super::topology::cpu_list;
use super::{MachineState, cloud, governor, proc_stat, smt, topology};
use crate::{Host, Known};

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
            cpu_times: proc_stat::read_cpu_times(host, &online),
            online,
        }
    }
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
    use crate::CpuSet;

    #[test]
    fn machine_state_is_read_from_proc_and_sysfs() {
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
    fn missing_or_empty_machine_files_are_unknown_with_a_reason() {
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
