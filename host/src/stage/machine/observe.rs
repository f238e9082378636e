//! Reads the machine.

use super::topology::cpu_list;
use super::{MachineState, governor, proc_stat, smt, topology};
use crate::known::UnknownReason;
use crate::{CpuSet, Host, Known};

impl MachineState {
    pub fn observe(host: &Host) -> Self {
        let online = cpu_list(host, "/sys/devices/system/cpu/online");
        let cpu_info = Known::from(host.read("/proc/cpuinfo"));
        let node_count = |nodes: CpuSet| u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        Self {
            kernel: host.read_known("/proc/sys/kernel/osrelease", kernel),
            cpu_model: cpu_model(&cpu_info).into(),
            numa_nodes: cpu_list(host, "/sys/devices/system/node/online").map(node_count),
            hypervisor: hypervisor(&cpu_info).into(),
            nodes: topology::nodes(host).into(),
            cores: topology::cores(host, &online).into(),
            governors: governor::governors(host, &online).into(),
            frequency_driver: governor::driver(host, &online).into(),
            smt_control: smt::control(host),
            cpu_times: proc_stat::read_cpu_times(host, &online),
            online,
        }
    }
}

fn kernel(text: &str) -> Result<String, String> {
    let release = text.trim();
    if release.starts_with(|letter: char| letter.is_ascii_digit()) {
        Ok(release.to_owned())
    } else {
        Err(format!("'{release}' is no release of a kernel"))
    }
}

fn cpuinfo_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

fn cpu_model(info: &Known<String>) -> Result<String, UnknownReason> {
    let model = cpuinfo_value(info.known()?, "model name");
    Ok(model.ok_or("/proc/cpuinfo names no model")?.to_owned())
}

fn hypervisor(info: &Known<String>) -> Result<bool, UnknownReason> {
    let flags = cpuinfo_value(info.known()?, "flags").ok_or("/proc/cpuinfo has no x86 flags")?;
    Ok(flags.split_whitespace().any(|flag| flag == "hypervisor"))
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
        assert_eq!((machine.governors, machine.smt_control), (Known::Value(None), Known::Value(None)));
        let machine = MachineState::observe(&Host::scripted([
            ("/sys/devices/system/cpu/online", "0\n"),
            ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", ""),
            ("/sys/devices/system/cpu/smt/control", ""),
        ]));
        assert!(machine.governors.why_contains("empty") && machine.smt_control.why_contains("empty"));
    }
}
