//! A whole machine, and the tree it makes.

use std::collections::BTreeMap;

use serde_json::json;

use crate::specimen::{
    CpuTimes, Cpus, EOPNOTSUPP, Interrupt, Listener, Netfilter, Nic, Process, Softnet, Tree, UdpCounts,
    UdpSocket, cpus, interrupts, netfilter, protocols, softnet,
};

/// A kernel by its version: what it shows depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    pub major: u32,
    pub minor: u32,
    /// All of it, such as `4.6.3`.
    pub release: &'static str,
}

/// A machine at one moment.
#[derive(Debug, Clone)]
pub struct Machine {
    pub kernel: Kernel,
    /// Hundredths of a second since boot.
    pub uptime_centiseconds: u64,
    pub cpus: Cpus,
    /// Their times, in order.
    pub times: Vec<CpuTimes>,
    /// What their softirqs did, in order.
    pub softnet: Vec<Softnet>,
    /// Its interrupts, in order of number.
    pub interrupts: Vec<Interrupt>,
    pub nics: Vec<Nic>,
    /// Sysctls by dotted name.
    pub sysctls: BTreeMap<String, String>,
    pub udp: Vec<UdpSocket>,
    pub tcp: Vec<Listener>,
    pub udp_counts: UdpCounts,
    pub netfilter: Netfilter,
    pub processes: Vec<Process>,
    /// Vendor and product of the board or the virtual machine.
    pub product: (&'static str, &'static str),
    /// Auditing of system calls: 0 off, 1 on, 2 on and locked.
    pub audit: u32,
    /// What else its kernel shows, in place of what comes of the above.
    pub also: Tree,
}

impl Kernel {
    /// Whether it is of this version or later.
    #[must_use]
    pub fn at_least(self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl Machine {
    /// What the kernel shows of it.
    #[must_use]
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        let kernel = self.kernel;
        let seconds = |centiseconds: u64| format!("{}.{:02}", centiseconds / 100, centiseconds % 100);
        let idle: u64 = self.times.iter().map(|times| times.idle).sum();
        tree.line("/proc/uptime", format!("{} {}", seconds(self.uptime_centiseconds), seconds(idle)));
        tree.line("/proc/sys/kernel/osrelease", kernel.release);
        tree.line("/sys/class/dmi/id/sys_vendor", self.product.0);
        tree.line("/sys/class/dmi/id/product_name", self.product.1);
        self.cpus.write(&mut tree, kernel);
        tree.file("/proc/stat", cpus::stat(&self.cpus, &self.times));
        softnet::write(&mut tree, kernel, &self.cpus, &self.softnet);
        interrupts::write(&mut tree, kernel, &self.cpus, &self.interrupts);
        for nic in &self.nics {
            nic.write(&mut tree, kernel, self.cpus.count());
            netfilter::write_nothing_attached(&mut tree, nic.name);
        }
        for (name, value) in &self.sysctls {
            tree.line(format!("/proc/sys/{}", name.replace('.', "/")), value);
        }
        protocols::write(&mut tree, kernel, &self.udp, &self.tcp, self.udp_counts);
        self.netfilter.write(&mut tree, kernel);
        for process in &self.processes {
            process.write(&mut tree, &self.cpus);
        }
        tree.call("audit/enabled", &json!(self.audit));
        tree.call("audit/rules", &json!({ "count": 0, "never_task": false }));
        self.write_napi(&mut tree);
        tree.put_over(&self.also);
        tree
    }

    /// NAPI instances are told since Linux 6.8.
    fn write_napi(&self, tree: &mut Tree) {
        if !self.kernel.at_least(6, 8) {
            tree.refusal("netdev/napi", EOPNOTSUPP);
            return;
        }
        let instances = self.nics.iter().flat_map(|nic| {
            nic.irqs.iter().enumerate().map(|(queue, irq)| {
                json!({
                    "interface_index": nic.index, "id": 8193 + irq, "irq": irq, "pid": null,
                    "receive_queues": [queue], "transmit_queues": [queue],
                })
            })
        });
        tree.call("netdev/napi", &instances.collect());
    }
}
