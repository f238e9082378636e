//! Machines for the tests of rules: one interface, `eth0`, whose vector of queue n is interrupt 100
//! + n.

use super::{InterfaceVectors, IrqVector};
use crate::Scope;
use crate::finding::{Rule, RuleMatch};
use crate::stage::PacketPath;
use crate::stage::softirq::SoftnetCpu;
use crate::{CpuSet, Host, HostRecording, Known};

/// CPU lists in the kernel's notation.
#[derive(Debug, Clone)]
pub(in crate::stage) struct SampleMachine<'a> {
    pub nodes: &'a [&'a str],
    /// Hardware threads of each core; empty for one CPU per core.
    pub cores: &'a [&'a str],
    pub isolated: &'a str,
    pub nic_node: Option<u32>,
    /// The CPU of each receive queue's vector; empty for a virtual interface.
    pub vectors: &'a [u32],
    pub hints: Option<&'a [u32]>,
    /// RPS of each receive queue, empty if off. It is off for missing queues.
    pub rps: &'a [&'a str],
    pub files: &'a [(&'a str, &'a str)],
}

impl SampleMachine<'_> {
    /// Four CPUs and as many queues, each on its own CPU.
    pub(in crate::stage) const PLAIN: SampleMachine<'static> = SampleMachine {
        nodes: &["0-3"],
        cores: &[],
        isolated: "",
        nic_node: None,
        vectors: &[0, 1, 2, 3],
        hints: None,
        rps: &[],
        files: &[],
    };
}

/// The observed state of the machine.
pub(in crate::stage) fn path(machine: &SampleMachine<'_>) -> PacketPath {
    let host = Host::recorded(machine.recording());
    PacketPath::observe(&host, &Scope { interfaces: vec!["eth0".into()], ..Scope::default() })
}

impl Rule {
    pub(in crate::stage) fn on(&self, machine: &SampleMachine<'_>) -> Vec<RuleMatch> {
        self.once(&path(machine))
    }

    pub(in crate::stage) fn assert_none_on(&self, machines: &[SampleMachine<'_>]) {
        for machine in machines {
            assert!(self.on(machine).is_empty(), "{} {machine:?}", self.id);
        }
    }
}

pub(in crate::stage) fn cpus(list: &str) -> CpuSet {
    CpuSet::from_list(list).expect("a list")
}

/// Vectors of `eth0` from this interrupt on, each on one CPU, for a queue pair.
pub(in crate::stage) fn vectors(first_irq: u32, cpus: &[u32]) -> Vec<InterfaceVectors> {
    let vector = |(queue, cpu): (u32, &u32)| IrqVector {
        irq: first_irq + queue,
        name: format!("eth0-TxRx-{queue}"),
        receive_queue: Some(queue),
        transmit_queue: Some(queue),
        affinity: Known::Value(CpuSet::from_iter([*cpu])),
        effective: Known::Value(None),
        hint: Known::Value(None),
        handled: Vec::new(),
        managed: Known::Value(None),
    };
    let vectors = Known::Value((0..).zip(cpus).map(vector).collect());
    vec![InterfaceVectors { interface: "eth0".into(), vectors }]
}

/// `softnet_stat`: packets processed, packets dropped, and squeezes, of each CPU.
pub(in crate::stage) fn softnet(cpus: impl IntoIterator<Item = [u64; 3]>) -> Known<Vec<SoftnetCpu>> {
    let (received_rps, flow_limit, backlog) = (None, None, None);
    let line = |(cpu, [processed, dropped, time_squeeze]): (u32, [u64; 3])| SoftnetCpu {
        cpu,
        processed,
        dropped,
        time_squeeze,
        received_rps,
        flow_limit,
        backlog,
    };
    Known::Value((0..).zip(cpus).map(line).collect())
}

impl SampleMachine<'_> {
    fn recording(&self) -> HostRecording {
        let mut recording = HostRecording::new();
        let mut file = |path: String, content: String| recording.insert_file(path, content);
        let all = cpus(&self.nodes.join(","));
        file("/sys/devices/system/cpu/online".into(), format!("{all}\n"));
        file("/sys/devices/system/cpu/isolated".into(), format!("{}\n", self.isolated));
        file("/proc/1/comm".into(), "init\n".into());
        for (node, list) in self.nodes.iter().enumerate() {
            file(format!("/sys/devices/system/node/node{node}/cpulist"), format!("{list}\n"));
        }
        let last = self.nodes.len().saturating_sub(1);
        file("/sys/devices/system/node/online".into(), format!("0-{last}\n"));
        for cpu in all.iter() {
            let core = self.cores.iter().find(|core| cpus(core).contains(cpu));
            let core = core.map_or_else(|| cpu.to_string(), |core| (*core).to_owned());
            file(
                format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
                format!("{core}\n"),
            );
        }
        self.interface(&mut file);
        for (path, content) in self.files {
            file((*path).to_owned(), (*content).to_owned());
        }
        let device = ("/sys/class/net/eth0/device", "../../../0000:01:00.0");
        recording.with_links((!self.vectors.is_empty()).then_some(device))
    }

    fn interface(&self, file: &mut impl FnMut(String, String)) {
        let mut table = "  CPU0\n".to_owned();
        for (queue, cpu) in self.vectors.iter().enumerate() {
            let irq = 100 + queue;
            table.push_str(&format!("{irq}: 0 PCI-MSI {queue}-edge eth0-TxRx-{queue}\n"));
            let mask = |cpu: u32| format!("{}\n", CpuSet::from_iter([cpu]).to_mask());
            file(format!("/proc/irq/{irq}/smp_affinity"), mask(*cpu));
            file(format!("/proc/irq/{irq}/effective_affinity_list"), format!("{cpu}\n"));
            let hint = self.hints.and_then(|hints| hints.get(queue));
            file(format!("/proc/irq/{irq}/affinity_hint"), hint.map_or("0\n".to_owned(), |hint| mask(*hint)));
        }
        file("/proc/interrupts".into(), table);
        let base = "/sys/class/net/eth0";
        for queue in 0..self.vectors.len().max(1) {
            let mask = self.rps.get(queue).map_or_else(String::new, |list| cpus(list).to_mask());
            let mask = if mask.is_empty() { "0".to_owned() } else { mask };
            file(format!("{base}/queues/rx-{queue}/rps_cpus"), format!("{mask}\n"));
            file(format!("{base}/queues/rx-{queue}/rps_flow_cnt"), "0\n".into());
        }
        file(format!("{base}/operstate"), "up\n".into());
        file(format!("{base}/ifindex"), "2\n".into());
        if !self.vectors.is_empty() {
            let node = self.nic_node.map_or(-1, i64::from);
            file(format!("{base}/device/numa_node"), format!("{node}\n"));
            file("/calls/ethtool/eth0/driver.json".into(), r#"{"name": "ixgbe"}"#.into());
        }
    }
}
