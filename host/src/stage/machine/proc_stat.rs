//! `/proc/stat`: CPU time.

use serde::Serialize;

use crate::{CpuSet, Host, Known};

pub(super) const PATH: &str = "/proc/stat";

/// Fields in use: user nice system idle iowait irq softirq steal. The other fields are guest time,
/// which is part of user (proc(5)).
const FIELDS: usize = 8;

/// Time since boot in ticks of `USER_HZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuTimes {
    pub cpu: u32,
    /// Includes nice.
    pub user: u64,
    /// In the kernel for processes.
    pub system: u64,
    /// Includes iowait.
    pub idle: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
}

/// Time since boot over all online CPUs in ticks of `USER_HZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// Includes steal. Guest time is part of user time, and not counted twice.
    pub total: u64,
    /// Time that the hypervisor used for other work while this machine had work.
    pub steal: u64,
}

impl CpuTime {
    pub fn observe(host: &Host) -> Known<Self> {
        CpuTimes::observe(host).map(|times| Self {
            total: times.iter().map(CpuTimes::total).fold(0, u64::saturating_add),
            steal: times.iter().map(|time| time.steal).fold(0, u64::saturating_add),
        })
    }
}

impl CpuTimes {
    pub fn observe(host: &Host) -> Known<Vec<Self>> {
        read_cpu_times(host, &Known::unknown("not asked for"))
    }

    pub fn total(&self) -> u64 {
        [self.user, self.system, self.idle, self.irq, self.softirq, self.steal]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// The file has a line for each online CPU.
pub(super) fn read_cpu_times(host: &Host, online: &Known<CpuSet>) -> Known<Vec<CpuTimes>> {
    host.read_known(PATH, |text| {
        let times = cpu_times(text)?;
        let has_line = |cpu: &u32| times.iter().any(|time| time.cpu == *cpu);
        match online.value().into_iter().flat_map(CpuSet::iter).find(|cpu| !has_line(cpu)) {
            Some(cpu) => Err(format!("no line of CPU {cpu}, which is online")),
            None => Ok(times),
        }
    })
}

/// The lines of the online CPUs.
pub(crate) fn cpu_times(text: &str) -> Result<Vec<CpuTimes>, String> {
    let mut times = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        let Some(cpu) = words.next().and_then(|name| name.strip_prefix("cpu")).filter(|cpu| !cpu.is_empty())
        else {
            continue;
        };
        let cpu = cpu.parse().map_err(|_| format!("line {}: 'cpu{cpu}' is no CPU", index + 1))?;
        let mut fields = [0_u64; FIELDS];
        for (number, field) in fields.iter_mut().enumerate() {
            let word = words
                .next()
                .ok_or_else(|| format!("line {}: cpu{cpu} has {number} fields of {FIELDS}", index + 1))?;
            *field = word
                .parse()
                .map_err(|_| format!("line {}: field {} of cpu{cpu} is '{word}'", index + 1, number + 1))?;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = fields;
        let (user, idle) = (user.saturating_add(nice), idle.saturating_add(iowait));
        times.push(CpuTimes { cpu, user, system, idle, irq, softirq, steal });
    }
    if times.is_empty() { Err("no line of a CPU".to_owned()) } else { Ok(times) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captured on a 2-CPU virtual machine, Linux 6.18.
    const CAPTURED: &str = "cpu  1689633 76158 820165 1779969 6346 0 283434 1464 0 0\n\
        cpu0 799705 31163 437580 876798 1471 0 176460 687 0 0\n\
        cpu1 889928 44995 382584 903170 4874 0 106973 776 0 0\n\
        intr 5 0 0\nctxt 1\n";

    #[test]
    fn cpu_times_are_read_per_cpu() {
        let times = cpu_times(CAPTURED).expect("two CPUs");
        let cpu1 = CpuTimes {
            cpu: 1,
            user: 889_928 + 44_995,
            system: 382_584,
            idle: 903_170 + 4_874,
            irq: 0,
            softirq: 106_973,
            steal: 776,
        };
        assert_eq!((times.len(), times[1]), (2, cpu1));
        assert_eq!(cpu1.total(), 2_333_300);
        let time = CpuTime::observe(&Host::scripted([(PATH, CAPTURED)]));
        assert_eq!(time, Known::Value(CpuTime { total: 4_657_164, steal: 1_463 }));
    }

    #[test]
    fn malformed_or_missing_cpu_lines_are_named_in_the_error() {
        assert_eq!(cpu_times("cpu 1\ncpu0 1 2 3"), Err("line 2: cpu0 has 3 fields of 8".to_owned()));
        let error = cpu_times("cpu0 1 2 3 4 x 6 7 8").expect_err("garbled");
        assert_eq!(error, "line 1: field 5 of cpu0 is 'x'");
        assert_eq!(cpu_times("cpux 1"), Err("line 1: 'cpux' is no CPU".to_owned()));
        assert_eq!(cpu_times(""), Err("no line of a CPU".to_owned()));
        let online = CpuSet::from_list("0-2").into();
        let unknown = read_cpu_times(&Host::scripted([(PATH, "intr 1\n")]), &online);
        assert_eq!(unknown.why(), Some("/proc/stat: no line of a CPU"));
        let missing_cpu = read_cpu_times(&Host::scripted([(PATH, CAPTURED)]), &online);
        assert_eq!(missing_cpu.why(), Some("/proc/stat: no line of CPU 2, which is online"));
    }
}
