//! Hosts with services, for tests of rules.

use super::{ServiceSockets, SocketOptions, SocketOwner, SocketProtocol, SocketState};
use crate::Scope;
use crate::stage::PacketPath;
use crate::stage::machine::NumaNode;
use crate::stage::thread::{ServingEvidence, ServingThread, ThreadWatch};
use crate::{CpuSet, Host, Known};

/// A host of four CPUs, whose eth0 has a queue for each of these CPUs.
pub(in crate::stage) fn host(receive: &[u32]) -> PacketPath {
    let mut files = vec![
        ("/proc/uptime".to_owned(), "100.0 1.0\n".to_owned()),
        ("/sys/class/net/eth0/operstate".to_owned(), "up\n".to_owned()),
    ];
    for (queue, cpu) in receive.iter().enumerate() {
        let path = format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
        files.push((path, format!("{:x}\n", 1_u32 << cpu)));
    }
    let scope = Scope { interfaces: vec!["eth0".to_owned()], ..Scope::default() };
    let mut path = PacketPath::observe(&Host::scripted(files), &scope);
    path.machine.online = Known::Value((0..4).collect());
    path.socket.services = Known::Value(Vec::new());
    path.thread.serving = Known::Value(Vec::new());
    path
}

/// The same host ten seconds later.
pub(in crate::stage) fn later(path: &PacketPath) -> PacketPath {
    let mut path = path.clone();
    path.uptime_seconds = path.uptime_seconds.map(|seconds| seconds + 10.0);
    path
}

/// A named service on port 53 with this many sockets, with inodes from 700.
pub(in crate::stage) fn service(sockets: u64) -> ServiceSockets {
    ServiceSockets {
        protocol: SocketProtocol::Udp,
        local: ([10, 0, 0, 1], 53).into(),
        processes: Known::Value(vec![SocketOwner { pid: 50, name: "echo".to_owned() }]),
        sockets: (700..700 + sockets).map(socket).collect(),
        steering: Known::Value(None),
        ordered: false,
        v6_only: false,
        named: true,
        read_from: "sock_diag".to_owned(),
    }
}

fn socket(inode: u64) -> SocketState {
    SocketState {
        inode,
        cookie: Some(inode),
        uid: 0,
        queued_bytes: 0,
        receive_buffer_bytes: Some(212_992),
        drops: Some(0),
        options: Known::Value(Some(SocketOptions::default())),
        descriptors: vec![(50, 3)],
    }
}

/// A thread seen in recvfrom on this socket, with this list of allowed CPUs.
pub(in crate::stage) fn thread(tid: u32, inode: u64, allowed: &str) -> ServingThread {
    ServingThread {
        pid: 50,
        tid,
        name: "worker".to_owned(),
        sockets: vec![inode],
        how: ServingEvidence::InCall("recvfrom".to_owned()),
        takes_turns_at: None,
        allowed: Known::Value(CpuSet::from_list(allowed).expect("a list")),
        last_cpu: Known::Value(0),
        user_ticks: Known::Value(0),
        system_ticks: Known::Value(0),
    }
}

/// The process of the service.
pub(in crate::stage) fn thread_watch(started_seconds: Option<f64>) -> ThreadWatch {
    ThreadWatch {
        pid: 50,
        threads: Known::Value(2),
        started_seconds,
        calls: Known::Value(2),
        stopped: 0,
        scheduled_idle: 0,
        cpu_quota: Known::Value(None),
        ticks: [].into(),
    }
}

impl PacketPath {
    pub(in crate::stage) fn with(mut self, service: ServiceSockets, threads: Vec<ServingThread>) -> Self {
        self.socket.services.expect_mut().push(service);
        self.thread.serving.expect_mut().extend(threads);
        self
    }

    pub(in crate::stage) fn service(&mut self) -> &mut ServiceSockets {
        &mut self.socket.services.expect_mut()[0]
    }

    pub(in crate::stage) fn thread_mut(&mut self, index: usize) -> &mut ServingThread {
        &mut self.thread.serving.expect_mut()[index]
    }

    /// Two nodes of two CPUs each: 0 and 1, 2 and 3.
    pub(in crate::stage) fn with_nodes(mut self) -> Self {
        let cpus = |list: &str| CpuSet::from_list(list).expect("a list");
        let node = |node: u32, list: &str| NumaNode { node, cpus: cpus(list) };
        self.machine.nodes = Known::Value(vec![node(0, "0-1"), node(1, "2-3")]);
        self
    }

    /// Two cores of two hardware threads each: 0 and 1, 2 and 3.
    pub(in crate::stage) fn with_siblings(mut self) -> Self {
        let cpus = |list: &str| CpuSet::from_list(list).expect("a list");
        self.machine.cores = Known::Value(vec![cpus("0-1"), cpus("2-3")]);
        self
    }
}
