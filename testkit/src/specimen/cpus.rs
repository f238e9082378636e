//! CPUs, nodes and cores, and how the kernel writes sets of them.

use std::fmt::Write;

use crate::specimen::{Kernel, Tree};

/// A CPU and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    pub cpu: u32,
    /// Its NUMA node; the package is the same number.
    pub node: u32,
    /// Its core's number in the package.
    pub core: u32,
}

/// The CPUs of a machine.
#[derive(Debug, Clone)]
pub struct Cpus {
    pub all: Vec<Cpu>,
    pub model: &'static str,
    /// Whether a hypervisor runs them.
    pub hypervisor: bool,
    /// Their frequency governor; none where the kernel scales no frequency.
    pub governor: Option<&'static str>,
}

/// Time of a CPU since boot, in ticks of `USER_HZ`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user: u64,
    /// In the kernel for processes.
    pub system: u64,
    pub idle: u64,
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

/// A list such as `0-4,10-14`, of numbers in order.
pub(crate) fn list(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some((first, _)) = rest.split_first() {
        let run = rest.iter().zip(*first..).take_while(|(cpu, expected)| **cpu == *expected).count();
        let separator = if text.is_empty() { "" } else { "," };
        let last = rest[run - 1];
        let _ = if last == *first {
            write!(text, "{separator}{first}")
        } else {
            write!(text, "{separator}{first}-{last}")
        };
        rest = &rest[run..];
    }
    text
}

/// A mask as `%*pb` prints it (`bitmap_string` in lib/vsprintf.c): words of 32 bits, the first one only as wide as
/// the machine's CPUs need.
pub(crate) fn mask(cpus: &[u32], possible: usize) -> String {
    let words = possible.div_ceil(32).max(1);
    let first_bits = if possible.is_multiple_of(32) { 32 } else { possible % 32 };
    (0..words)
        .rev()
        .map(|word| {
            let bits = cpus
                .iter()
                .filter(|cpu| **cpu as usize / 32 == word)
                .fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32));
            let width = if word == words - 1 { first_bits.div_ceil(4) } else { 8 };
            format!("{bits:0width$x}")
        })
        .collect::<Vec<_>>()
        .join(",")
}

impl Cpus {
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        self.all.iter().map(|cpu| cpu.cpu).collect()
    }

    /// Those of a node.
    #[must_use]
    pub fn of_node(&self, node: u32) -> Vec<u32> {
        self.all.iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.cpu).collect()
    }

    fn siblings(&self, of: &Cpu) -> Vec<u32> {
        let shares = |cpu: &&Cpu| (cpu.node, cpu.core) == (of.node, of.core);
        self.all.iter().filter(shares).map(|cpu| cpu.cpu).collect()
    }

    fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.all.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    pub(crate) fn write(&self, tree: &mut Tree, kernel: Kernel) {
        let system = "/sys/devices/system";
        let all = list(&self.numbers());
        for name in ["online", "possible", "present"] {
            tree.line(format!("{system}/cpu/{name}"), &all);
        }
        tree.file(format!("{system}/cpu/offline"), "\n");
        let smt = self.all.iter().any(|cpu| self.siblings(cpu).len() > 1);
        if kernel.at_least(4, 19) {
            tree.line(format!("{system}/cpu/smt/active"), u8::from(smt));
            tree.line(format!("{system}/cpu/smt/control"), if smt { "on" } else { "notsupported" });
        }
        for cpu in &self.all {
            self.write_cpu(tree, kernel, cpu);
        }
        let nodes = self.nodes();
        tree.line(format!("{system}/node/online"), list(&nodes));
        tree.line(format!("{system}/node/has_cpu"), list(&nodes));
        for node in &nodes {
            let cpus = self.of_node(*node);
            tree.line(format!("{system}/node/node{node}/cpulist"), list(&cpus));
            tree.line(format!("{system}/node/node{node}/cpumap"), mask(&cpus, self.count()));
            let distances = nodes.iter().map(|other| if other == node { "10" } else { "21" });
            tree.line(format!("{system}/node/node{node}/distance"), distances.collect::<Vec<_>>().join(" "));
        }
        tree.file("/proc/cpuinfo", self.cpuinfo());
    }

    fn write_cpu(&self, tree: &mut Tree, kernel: Kernel, cpu: &Cpu) {
        let path = format!("/sys/devices/system/cpu/cpu{}", cpu.cpu);
        let siblings = self.siblings(cpu);
        tree.line(format!("{path}/topology/core_id"), cpu.core);
        tree.line(format!("{path}/topology/physical_package_id"), cpu.node);
        tree.line(format!("{path}/topology/thread_siblings"), mask(&siblings, self.count()));
        tree.line(format!("{path}/topology/thread_siblings_list"), list(&siblings));
        tree.line(format!("{path}/topology/core_siblings_list"), list(&self.of_node(cpu.node)));
        if kernel.at_least(5, 3) {
            tree.line(format!("{path}/topology/core_cpus_list"), list(&siblings));
            tree.line(format!("{path}/topology/package_cpus_list"), list(&self.of_node(cpu.node)));
        }
        if let Some(governor) = self.governor {
            tree.line(format!("{path}/cpufreq/scaling_governor"), governor);
            tree.line(format!("{path}/cpufreq/scaling_driver"), "intel_pstate");
            tree.line(format!("{path}/cpufreq/scaling_available_governors"), "performance powersave");
        }
    }

    fn cpuinfo(&self) -> String {
        let flags = if self.hypervisor { "fpu vme sse2 ht hypervisor" } else { "fpu vme sse2 ht" };
        let mut text = String::new();
        for cpu in &self.all {
            let _ = write!(
                text,
                "processor\t: {}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: {}\nphysical id\t: {}\n\
                 core id\t\t: {}\nflags\t\t: {flags}\npower management:\n\n",
                cpu.cpu, self.model, cpu.node, cpu.core
            );
        }
        text
    }
}

/// `/proc/stat`.
pub(crate) fn stat(cpus: &Cpus, times: &[CpuTimes]) -> String {
    let row = |name: &str, times: &CpuTimes| {
        let CpuTimes { user, system, idle, softirq, steal } = times;
        format!("{name} {user} 0 {system} {idle} 0 0 {softirq} {steal} 0 0\n")
    };
    let mut all = CpuTimes::default();
    for cpu in times {
        all.user += cpu.user;
        all.system += cpu.system;
        all.idle += cpu.idle;
        all.softirq += cpu.softirq;
        all.steal += cpu.steal;
    }
    // The line of all has two spaces after its name (fs/proc/stat.c).
    let mut text = row("cpu ", &all);
    for (cpu, times) in cpus.all.iter().zip(times) {
        text.push_str(&row(&format!("cpu{}", cpu.cpu), times));
    }
    text.push_str("intr 0\nctxt 0\nbtime 1465000000\nprocesses 4711\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_the_kernel_does() {
        assert_eq!(list(&[0, 1, 2, 3, 4, 10, 12, 13]), "0-4,10,12-13");
        assert_eq!(list(&[]), "");
        assert_eq!(mask(&[0], 20), "00001");
        assert_eq!(mask(&[0, 1], 2), "3");
        assert_eq!(mask(&[32, 0], 128), "00000000,00000000,00000001,00000001");
        assert_eq!(mask(&[32, 0], 40), "01,00000001");
    }
}
