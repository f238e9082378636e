//! Servers and machines for the tests of plans.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use linerate_host::delivery::{ArrivalCount, DeliveryReport, SendCount};
use linerate_host::recording::{HostRecording, RecordedEntry};
use linerate_host::setting::{SocketAt, SocketKnob};
use linerate_host::stage::socket::{SocketOptions, SocketProtocol};
use linerate_host::{CpuSet, Host, Known, PacketPath, Scope};

use crate::boost::ObservedServer;
use crate::boost::discovery::{GroupSocket, ReaderEvidence, ReaderThread, ServerGroup, ServerProcess};

/// A machine: lists of CPUs as the kernel writes them, and `eth0`.
#[derive(Debug, Clone)]
pub(super) struct BoostSampleMachine {
    /// CPUs of each node.
    pub(super) nodes: Vec<String>,
    /// Hardware threads of each core; empty: one core per CPU.
    pub(super) cores: Vec<String>,
    /// The CPU of each receive queue's interrupt; empty: a software interface.
    pub(super) vectors: Vec<u32>,
    /// CPUs of RPS of each receive queue.
    pub(super) rps: Vec<String>,
    pub(super) isolated: String,
    pub(super) kernel: String,
    pub(super) mtu: u32,
}

impl BoostSampleMachine {
    /// One node, and one queue per CPU.
    pub(super) fn of(cpus: u32) -> Self {
        Self {
            nodes: vec![format!("0-{}", cpus - 1)],
            cores: Vec::new(),
            vectors: (0..cpus).collect(),
            rps: Vec::new(),
            isolated: String::new(),
            kernel: "6.12.0".to_owned(),
            mtu: 1500,
        }
    }

    pub(super) fn path(&self) -> PacketPath {
        let host = Host::recorded(self.recording());
        PacketPath::observe(&host, &Scope { interfaces: vec!["eth0".into()], ..Scope::default() })
    }

    fn recording(&self) -> HostRecording {
        let mut recording = HostRecording::new();
        let mut file = |path: String, content: String| recording.insert_file(path, content);
        let all = cpus(&self.nodes.join(","));
        file("/proc/sys/kernel/osrelease".into(), format!("{}\n", self.kernel));
        file("/sys/devices/system/cpu/online".into(), format!("{all}\n"));
        file("/sys/devices/system/cpu/isolated".into(), format!("{}\n", self.isolated));
        for (node, list) in self.nodes.iter().enumerate() {
            file(format!("/sys/devices/system/node/node{node}/cpulist"), format!("{list}\n"));
        }
        file("/sys/devices/system/node/online".into(), format!("0-{}\n", self.nodes.len() - 1));
        for cpu in all.iter() {
            let core = self.cores.iter().find(|core| cpus(core).contains(cpu));
            let core = core.cloned().unwrap_or_else(|| cpu.to_string());
            file(
                format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
                format!("{core}\n"),
            );
        }
        let mut table = "  CPU0\n".to_owned();
        for (queue, cpu) in self.vectors.iter().enumerate() {
            let irq = 100 + queue;
            table.push_str(&format!("{irq}: 0 PCI-MSI {queue}-edge eth0-TxRx-{queue}\n"));
            let mask = CpuSet::from_iter([*cpu]).to_mask();
            file(format!("/proc/irq/{irq}/smp_affinity"), format!("{mask}\n"));
            file(format!("/proc/irq/{irq}/effective_affinity_list"), format!("{cpu}\n"));
        }
        file("/proc/interrupts".into(), table);
        let base = "/sys/class/net/eth0";
        for queue in 0..self.vectors.len().max(1) {
            let mask = self.rps.get(queue).map_or_else(|| "0".to_owned(), |list| cpus(list).to_mask());
            file(format!("{base}/queues/rx-{queue}/rps_cpus"), format!("{mask}\n"));
            file(format!("{base}/queues/rx-{queue}/rps_flow_cnt"), "0\n".into());
        }
        file(format!("{base}/operstate"), "up\n".into());
        file(format!("{base}/ifindex"), "2\n".into());
        file(format!("{base}/mtu"), format!("{}\n", self.mtu));
        if !self.vectors.is_empty() {
            file(format!("{base}/device/numa_node"), "0\n".into());
            recording
                .insert("/sys/class/net/eth0/device", RecordedEntry::Link("../../../0000:01:00.0".into()));
        }
        recording
    }
}

pub(super) fn cpus(list: &str) -> CpuSet {
    CpuSet::from_list(list).expect("a list")
}

/// A server whose workers each read one socket per address.
pub(in crate::boost) fn server(
    name: &str,
    addresses: &[(SocketProtocol, &str)],
    workers: u32,
    allowed: &str,
) -> ObservedServer {
    let tid = |worker: u32| 800 + worker;
    let group = |(index, (protocol, local)): (usize, &(SocketProtocol, &str))| {
        let index = u64::try_from(index).expect("few");
        let members = (0..workers).map(|worker| member(100 * (index + 1) + u64::from(worker), tid(worker)));
        ServerGroup {
            protocol: *protocol,
            local: local.parse::<SocketAddr>().expect("an address"),
            reuseport: workers > 1,
            members: members.collect(),
            ordered: true,
            steering: Known::Value("none".to_owned()),
        }
    };
    let groups: Vec<ServerGroup> = addresses.iter().enumerate().map(group).collect();
    let reader = |worker: u32| {
        let own = |group: &ServerGroup| group.members[worker as usize].socket.cookie;
        reader(name, tid(worker), groups.iter().map(own).collect(), allowed)
    };
    let readers: Vec<ReaderThread> = (0..workers).map(reader).collect();
    let process = |pid: u32, parent: Option<u32>, reads: bool| ServerProcess {
        pid,
        parent,
        name: name.to_owned(),
        started: u64::from(pid),
        threads: 1,
        reads,
    };
    let mut processes = vec![process(799, None, false)];
    processes.extend((0..workers).map(|worker| process(tid(worker), Some(799), true)));
    ObservedServer {
        name: name.to_owned(),
        product: crate::boost::catalog::of_process(name).map(|product| product.id.clone()),
        processes,
        namespace: 4_026_531_840,
        groups,
        readers,
        delivery: Known::unknown("nobody looked"),
        notes: Vec::new(),
    }
}

pub(in crate::boost) fn member(cookie: u64, pid: u32) -> GroupSocket {
    let descriptor = u32::try_from(cookie).expect("few");
    let knobs = [
        (SocketKnob::ReceiveBuffer, "212992 by default"),
        (SocketKnob::PathMtu, "want"),
        (SocketKnob::BusyPoll, "0"),
    ];
    let knobs = knobs.map(|(knob, value)| (knob, value.to_owned())).into();
    GroupSocket {
        socket: SocketAt { cookie, inode: 10_000 + cookie, pid, descriptor },
        holders: vec![(pid, descriptor)],
        options: Known::Value(Some(SocketOptions { reuseport: true, knobs, ..SocketOptions::default() })),
        drops: Some(0),
        receive_buffer_bytes: Some(212_992),
    }
}

pub(in crate::boost) fn reader(name: &str, tid: u32, sockets: Vec<u64>, allowed: &str) -> ReaderThread {
    ReaderThread {
        pid: tid,
        tid,
        started: u64::from(tid),
        name: name.to_owned(),
        sockets,
        seen: ReaderEvidence::Reading,
        guessed: Vec::new(),
        allowed: Known::Value(cpus(allowed)),
        cpuset: None,
    }
}

pub(in crate::boost) fn echo(workers: u32, allowed: &str) -> ObservedServer {
    server("echo", &[(SocketProtocol::Udp, "0.0.0.0:7")], workers, allowed)
}

/// NSD: each server has a socket for IPv4, IPv6 and TCP.
pub(super) fn nsd(workers: u32, allowed: &str) -> ObservedServer {
    let addresses = [
        (SocketProtocol::Udp, "0.0.0.0:53"),
        (SocketProtocol::Udp, "[::]:53"),
        (SocketProtocol::Tcp, "0.0.0.0:53"),
    ];
    server("nsd", &addresses, workers, allowed)
}

/// Many datagrams, evenly from these CPUs, for the first socket.
pub(super) fn seen_on(server: &mut ObservedServer, list: &str) {
    let cookie = server.groups[0].members[0].socket.cookie;
    let arrived =
        cpus(list).iter().map(|cpu| ArrivalCount { cookie, cpu, packets: 1000, refused: 0 }).collect();
    server.delivery = Known::Value(DeliveryReport { seconds: 2.0, arrived, ..DeliveryReport::default() });
}

/// Each socket has sent this number of datagrams, the largest with `largest_bytes`.
pub(super) fn sent(server: &mut ObservedServer, packets: u64, largest_bytes: u32) {
    let members = server.groups.iter().flat_map(|group| &group.members);
    let sent = members.map(|member| SendCount { cookie: member.socket.cookie, packets, largest_bytes });
    let sent = sent.collect();
    let before = server.delivery.value().cloned().unwrap_or_default();
    server.delivery = Known::Value(DeliveryReport { sent, ..before });
}

pub(super) fn pins(plan: &super::BoostPlan) -> BTreeMap<u32, String> {
    let pin = |change: &crate::plan::PlannedChange| match &change.setting {
        linerate_host::Setting::ThreadCpus { tid, .. } => Some((*tid, change.to.to_string())),
        _ => None,
    };
    plan.plan.changes.iter().filter_map(pin).collect()
}

pub(super) fn tables(plan: &super::BoostPlan) -> BTreeMap<String, String> {
    let table = |change: &crate::plan::PlannedChange| match &change.setting {
        linerate_host::Setting::Steering { protocol, local, .. } => {
            Some((format!("{} {local}", protocol.name()), change.to.to_string()))
        }
        _ => None,
    };
    plan.plan.changes.iter().filter_map(table).collect()
}
