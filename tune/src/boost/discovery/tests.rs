use linerate_host::HostRecording;
use linerate_host::delivery::DeliveryCount;
use linerate_host::recording::RecordedEntry;

use super::*;

const RUNNING: &str = "running\n";
const WAIT4: &str = "61 0xffffffff 0x0";

struct Tree {
    recording: HostRecording,
    sockets: BTreeMap<&'static str, Vec<String>>,
    /// Start of the stack of the processes that are added.
    stack: u32,
}

impl Tree {
    fn new() -> Self {
        let mut tree = Tree { recording: HostRecording::new(), sockets: BTreeMap::new(), stack: 7_000 };
        for list in ["udp4", "udp6", "tcp4", "tcp6"] {
            tree.sockets.insert(list, Vec::new());
        }
        tree.file("/proc/sys/kernel/arch", "x86_64\n");
        tree.file("/sys/devices/system/cpu/online", "0-3\n");
        tree.file("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
        tree.link("/proc/thread-self/ns/net", "net:[4026531840]");
        tree
    }

    fn file(&mut self, path: &str, text: &str) {
        self.recording.insert_file(path, text);
    }

    fn link(&mut self, path: &str, target: &str) {
        self.recording.insert(path, RecordedEntry::Link(target.to_owned()));
    }

    /// Adds a socket with the cookie `inode - 600`. Each holder has it as descriptor `inode - 700`.
    fn socket(mut self, list: &'static str, local: &str, inode: u64, holders: &[u32]) -> Self {
        let cookie = inode - 600;
        let socket = format!(r#"{{"local": "{local}", "inode": {inode}, "cookie": {cookie}}}"#);
        self.sockets.get_mut(list).expect("a list").push(socket);
        for pid in holders {
            self.link(&format!("/proc/{pid}/fd/{}", inode - 700), &format!("socket:[{inode}]"));
        }
        self.options(inode, true)
    }

    fn options(mut self, inode: u64, reuseport: bool) -> Self {
        let options = format!(r#"{{"reuseport": {reuseport}}}"#);
        self.file(&format!("/calls/socket/{inode}/options.json"), &options);
        self
    }

    /// The processes that are added next are no forks of those before.
    fn after_exec(mut self) -> Self {
        self.stack += 1;
        self
    }

    /// Adds a process with one thread per system call in `calls`.
    fn process(mut self, (pid, parent): (u32, u32), name: &str, calls: &[&str]) -> Self {
        let numbers = format!("{}{} {}", "0 ".repeat(5), self.stack, "0 ".repeat(9));
        let stat = |tid: u32| {
            let threads = calls.len();
            format!(
                "{tid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 {threads} 0 {} {numbers}2 0 0\n",
                1_000 + tid
            )
        };
        self.file(&format!("/proc/{pid}/comm"), &format!("{name}\n"));
        self.file(&format!("/proc/{pid}/stat"), &stat(pid));
        self.link(&format!("/proc/{pid}/exe"), &format!("/usr/sbin/{name}"));
        self.link(&format!("/proc/{pid}/ns/net"), "net:[4026531840]");
        for (tid, call) in (pid..).zip(calls) {
            let task = format!("/proc/{pid}/task/{tid}");
            self.file(&format!("{task}/stat"), &stat(tid));
            self.file(&format!("{task}/status"), "Cpus_allowed_list:\t0-3\n");
            self.file(&format!("{task}/syscall"), call);
            self.file(&format!("{task}/cgroup"), "0::/\n");
        }
        self
    }

    fn with_name(mut self, pid: u32, name: &str) -> Self {
        self.file(&format!("/proc/{pid}/comm"), &format!("{name}\n"));
        self
    }

    fn epoll(mut self, pid: u32, descriptor: u32, inodes: &[u64]) -> Self {
        let lines = inodes
            .iter()
            .map(|inode| format!("tfd: {} events: 19 data: 3 pos:0 ino:{inode:x} sdev:8\n", inode - 700));
        let text: String = lines.collect();
        self.file(&format!("/proc/{pid}/fdinfo/{descriptor}"), &text);
        self
    }

    fn host(mut self) -> Host {
        for (list, sockets) in std::mem::take(&mut self.sockets) {
            self.file(&format!("/calls/sock_diag/{list}.json"), &format!("[{}]", sockets.join(",")));
        }
        Host::recorded(self.recording)
    }

    fn observe(self, query: &ServerQuery) -> Result<ObservedServer, DiscoveryError> {
        let options = ObservationOptions { duration: Duration::ZERO, datagrams: true };
        ObservedServer::observe(&self.host(), query, options, &|| false).map(|(server, _)| server)
    }

    /// The threads that read sockets, with the cookies and the evidence, after these datagrams were
    /// observed.
    fn readers(self, delivery: &[DeliveryCount]) -> Vec<(u32, Vec<u64>, ReaderEvidence)> {
        let host = self.host();
        let found = find(&host, &port(53), &ProcessTable::observe(&host)).expect("a server");
        let groups: Result<Vec<ServerGroup>, _> = found
            .services
            .iter()
            .map(|service| ServerGroup::of(&host, 1, service, &found.processes))
            .collect();
        let mut sampling = linerate_host::stage::thread::ThreadSampling::new(&host, &found.services);
        sampling.take_sample();
        let delivery = DeliveryReport { read: delivery.to_vec(), ..DeliveryReport::default() };
        let claims = readers::find_claims(&groups.expect("groups"), &sampling.threads(), Some(&delivery));
        let reader = |((_, tid), sockets): ((u32, u32), BTreeMap<u64, ReaderEvidence>)| {
            let evidence = sockets.values().min().copied().expect("a socket");
            (tid, sockets.into_keys().collect(), evidence)
        };
        claims.into_iter().map(reader).collect()
    }

    fn server(self) -> ObservedServer {
        self.observe(&port(53)).expect("a server")
    }

    fn refusal(self, query: &ServerQuery) -> String {
        let refusal = self.observe(query).expect_err("refused").to_string();
        assert!(!refusal.contains('\n'), "{refusal}");
        refusal
    }
}

fn port(port: u16) -> ServerQuery {
    ServerQuery { port: Some(port), ..ServerQuery::default() }
}

fn pid(pid: u32) -> ServerQuery {
    ServerQuery { pid: Some(pid), ..ServerQuery::default() }
}

fn readers(server: &ObservedServer) -> Vec<(u32, Vec<u64>, ReaderEvidence)> {
    server.readers.iter().map(|reader| (reader.tid, reader.sockets.clone(), reader.seen)).collect()
}

fn pids(server: &ObservedServer) -> Vec<(u32, bool)> {
    server.processes.iter().map(|process| (process.pid, process.reads)).collect()
}

/// A master that made two sockets, and two workers that each wait for one of them with epoll.
fn prefork() -> Tree {
    Tree::new()
        .process((50, 1), "nsd", &[WAIT4])
        .process((60, 50), "nsd", &["232 0x9 0x7f00"])
        .process((61, 50), "nsd", &["232 0x9 0x7f00"])
        .with_name(60, "nsd: server 1")
        .socket("udp4", "10.0.0.1:53", 703, &[50, 60, 61])
        .socket("udp4", "10.0.0.1:53", 704, &[50, 60, 61])
        .epoll(60, 9, &[703])
        .epoll(61, 9, &[704])
}

#[test]
fn prefork_workers_read_their_epoll_sockets_and_the_master_none() {
    let server = prefork().server();
    assert_eq!((server.name.as_str(), server.product.as_deref()), ("nsd", Some("nsd")));
    assert_eq!(server.namespace, 4_026_531_840);
    assert_eq!(pids(&server), [(50, false), (60, true), (61, true)]);
    assert_eq!(
        readers(&server),
        [(60, vec![103], ReaderEvidence::Polling), (61, vec![104], ReaderEvidence::Polling)]
    );
    let [group] = server.groups.as_slice() else { panic!("{:?}", server.groups) };
    assert!(group.reuseport && !group.ordered);
    let member = &group.members[0];
    assert_eq!(member.socket, SocketAt { cookie: 103, inode: 703, pid: 50, descriptor: 3 });
    assert_eq!(member.holders, [(50, 3), (60, 3), (61, 3)]);
    let worker = &server.processes[1];
    assert_eq!((worker.parent, worker.started, worker.threads), (Some(50), 1_060, 1));
    assert_eq!((server.readers[0].started, server.readers[0].cpuset.clone()), (1_060, None));
}

#[test]
fn any_process_of_a_server_selects_the_whole_server() {
    for member in [50, 61] {
        assert_eq!(
            pids(&prefork().observe(&pid(member)).expect("a server")),
            [(50, false), (60, true), (61, true)]
        );
    }
}

#[test]
fn master_without_sockets_belongs_to_the_server_of_its_workers() {
    let tree = Tree::new()
        .process((40, 1), "sh", &[WAIT4])
        .process((50, 40), "frr", &[WAIT4])
        .process((60, 50), "frr", &["45 0x3 0x7f00"])
        .process((61, 50), "frr", &["45 0x4 0x7f00"])
        .process((62, 50), "frr", &[WAIT4])
        .socket("udp4", "10.0.0.1:53", 703, &[60])
        .socket("udp4", "10.0.0.1:53", 704, &[61]);
    let server = tree.observe(&pid(50)).expect("a server");
    assert_eq!(pids(&server), [(50, false), (60, true), (61, true), (62, false)]);
    assert_eq!(
        readers(&server),
        [(60, vec![103], ReaderEvidence::InCall), (61, vec![104], ReaderEvidence::InCall)]
    );
}

#[test]
fn parent_with_the_same_interpreter_is_not_part_of_the_server() {
    let services = |parent: u32, program: &str| {
        Tree::new()
            .process((parent, 0), program, &[WAIT4])
            .after_exec()
            .process((50, parent), program, &["45 0x3 0x7f00"])
            .process((51, 50), program, &["45 0x3 0x7f00"])
            .after_exec()
            .process((60, parent), program, &["45 0x3 0x7f00"])
            .socket("udp4", "10.0.0.1:53", 703, &[50, 51])
            .socket("udp4", "10.0.0.1:54", 704, &[60])
    };
    let with_command_lines = |mut tree: Tree, lines: &[(u32, &str)]| {
        lines.iter().for_each(|(pid, line)| tree.file(&format!("/proc/{pid}/cmdline"), line));
        tree
    };
    let supervisord = [(40, "python3\0supervisord\0"), (50, "python3\0a\0"), (60, "python3\0b\0")];
    let reexec = [(40, "nsd\0-d\0"), (50, "nsd\0-d\0")];
    let init = [(1, "init\0"), (50, "init\0")];
    for (tree, expected) in [
        (with_command_lines(services(40, "python3"), &supervisord), &[50, 51][..]),
        (with_command_lines(services(40, "nsd"), &reexec), &[40, 50, 51]),
        (with_command_lines(services(1, "busybox"), &init), &[50, 51]),
    ] {
        let server = tree.server();
        assert_eq!(server.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn workers_that_share_a_socket_are_all_readers() {
    let tree = Tree::new()
        .process((50, 1), "gunicorn", &[WAIT4])
        .process((60, 50), "gunicorn", &["45 0x3 0x7f00"])
        .process((61, 50), "gunicorn", &["45 0x3 0x7f00"])
        .socket("udp4", "10.0.0.1:53", 703, &[50, 60, 61])
        .options(703, false);
    let server = tree.server();
    assert_eq!(
        readers(&server),
        [(60, vec![103], ReaderEvidence::InCall), (61, vec![103], ReaderEvidence::InCall)]
    );
    assert_eq!(server.groups[0].steering, Known::Value("none".to_owned()));
    assert_eq!(server.readers_of(103).count(), 2);
}

#[test]
fn threads_read_all_udp_and_tcp_sockets_in_their_epoll() {
    let tree = Tree::new()
        .process((50, 1), "knotd", &[WAIT4, "232 0x64 0x7f00", "232 0x65 0x7f00"])
        .socket("udp4", "0.0.0.0:53", 703, &[50])
        .socket("udp4", "0.0.0.0:53", 704, &[50])
        .socket("udp6", "[::]:53", 705, &[50])
        .socket("udp6", "[::]:53", 706, &[50])
        .socket("tcp4", "0.0.0.0:53", 707, &[50])
        .epoll(50, 100, &[703, 705, 707])
        .epoll(50, 101, &[704, 706]);
    let server = tree.server();
    let expected =
        [(51, vec![103, 105, 107], ReaderEvidence::Polling), (52, vec![104, 106], ReaderEvidence::Polling)];
    assert_eq!(readers(&server), expected);
    let groups: Vec<_> = server.groups.iter().map(|group| (group.protocol, group.members.len())).collect();
    assert_eq!(groups, [(SocketProtocol::Udp, 2), (SocketProtocol::Udp, 2), (SocketProtocol::Tcp, 1)]);
    assert_eq!(server.udp_ports(), [53]);
}

fn delivery_count((pid, tid): (u32, u32), cookie: u64) -> DeliveryCount {
    DeliveryCount { cookie, arrived_on: Some(0), read_on: 1, pid, tid, packets: 40 }
}

#[test]
fn observed_reads_override_assumptions_about_running_threads() {
    let tree = || {
        Tree::new()
            .process((50, 1), "echo", &[WAIT4, RUNNING, RUNNING])
            .socket("udp4", "10.0.0.1:53", 703, &[50])
            .socket("udp4", "10.0.0.1:53", 704, &[50])
    };
    let cookies = vec![103, 104];
    let assumed_readers =
        [(51, cookies.clone(), ReaderEvidence::Assumed), (52, cookies, ReaderEvidence::Assumed)];
    assert_eq!(tree().readers(&[]), assumed_readers);
    let unknown_reads = [delivery_count((50, 51), 999), delivery_count((50, 70), 103)];
    assert_eq!(
        tree().readers(&unknown_reads),
        assumed_readers,
        "reads of unknown sockets and threads do not count"
    );
    let both_reads = [delivery_count((50, 51), 104), delivery_count((50, 52), 103)];
    assert_eq!(
        tree().readers(&both_reads),
        [(51, vec![104], ReaderEvidence::Reading), (52, vec![103], ReaderEvidence::Reading)]
    );
    let one_read = [delivery_count((50, 51), 104)];
    let expected = [(51, vec![104], ReaderEvidence::Reading), (52, vec![103], ReaderEvidence::Assumed)];
    assert_eq!(tree().readers(&one_read), expected, "the other thread is assumed to read the other socket");
}

#[test]
fn observed_reads_override_polling_of_all_sockets_in_a_group() {
    let reads = [delivery_count((60, 60), 103), delivery_count((61, 61), 104)];
    let tree = prefork().socket("tcp4", "10.0.0.1:53", 705, &[50, 60, 61]);
    let tree = tree.epoll(60, 9, &[703, 704, 705]).epoll(61, 9, &[703, 704, 705]);
    assert_eq!(
        tree.readers(&reads),
        [(60, vec![103, 105], ReaderEvidence::Reading), (61, vec![104, 105], ReaderEvidence::Reading)]
    );
}

#[test]
fn io_uring_threads_read_registered_and_otherwise_unread_sockets() {
    let mut tree = Tree::new()
        .process((50, 1), "echo", &["426 0x14 0x0", "426 0x15 0x0", RUNNING])
        .socket("udp4", "10.0.0.1:53", 703, &[50])
        .socket("udp4", "10.0.0.1:53", 704, &[50]);
    tree.file("/proc/50/fdinfo/20", "UserFiles:\t1\n    0: socket:[703]\nUserBufs:\t0\n");
    tree.file("/proc/50/fdinfo/21", "UserFiles:\t0\nUserBufs:\t0\n");
    let server = tree.server();
    assert_eq!(server.readers_of(103).map(|reader| reader.tid).collect::<Vec<_>>(), [50]);
    assert!(
        server.readers.iter().all(|reader| reader.seen == ReaderEvidence::Ring) && server.readers.len() == 2
    );
}

#[test]
fn only_thread_of_a_single_socket_server_is_its_reader() {
    let tree = Tree::new()
        .process((50, 1), "chronyd", &["23 0x9 0x7f00"])
        .socket("udp4", "0.0.0.0:123", 703, &[50])
        .options(703, false);
    let server = tree.observe(&port(123)).expect("a server");
    assert_eq!(readers(&server), [(50, vec![103], ReaderEvidence::OnlyThread)]);
    assert!(!server.groups[0].reuseport && server.groups[0].members.len() == 1);
}

#[test]
fn threads_started_during_the_observation_are_counted() {
    let mut tree = Tree::new()
        .process((50, 1), "echo", &["232 0x9 0x7f00", "232 0xa 0x7f00"])
        .socket("udp4", "10.0.0.1:53", 703, &[50])
        .socket("udp4", "10.0.0.1:53", 704, &[50])
        .epoll(50, 9, &[703])
        .epoll(50, 10, &[704]);
    // The process as it was listed, before its second thread was made.
    let zeros = "0 ".repeat(15);
    tree.file(
        "/proc/50/stat",
        &format!("50 (echo) S 1 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 1050 {zeros}2 0 0\n"),
    );
    let server = tree.server();
    assert_eq!((server.readers.len(), server.processes[0].threads), (2, 2));
}

fn two_programs() -> Tree {
    Tree::new()
        .process((50, 1), "dnsmasq", &["7 0x7f00 0x2"])
        .process((60, 1), "unbound", &["232 0x9 0x7f00"])
        .socket("udp4", "192.168.0.1:53", 703, &[50])
        .socket("udp4", "127.0.0.1:53", 704, &[60])
        .epoll(60, 9, &[704])
}

#[test]
fn two_servers_on_one_port_require_a_pid() {
    assert_eq!(
        two_programs().refusal(&port(53)),
        "several servers are on this port: dnsmasq (192.168.0.1:53, --pid 50) and unbound (127.0.0.1:53, --pid 60): \
         choose one with --pid"
    );
    let server = two_programs().observe(&pid(60)).expect("a server");
    assert_eq!((server.name.as_str(), pids(&server)), ("unbound", vec![(60, true)]));
    assert!(server.notes.iter().any(|note| note.contains("dnsmasq") && note.contains("left alone")));
    let query = ServerQuery { port: Some(53), ..pid(50) };
    assert_eq!(two_programs().observe(&query).expect("a server").name, "dnsmasq");
}

#[test]
fn tcp_listener_of_another_program_is_not_part_of_the_udp_server() {
    let tree = Tree::new()
        .process((50, 1), "nginx", &["232 0x9 0x7f00"])
        .process((60, 1), "quic", &["45 0x4 0x7f00"])
        .socket("tcp4", "0.0.0.0:53", 703, &[50])
        .socket("udp4", "0.0.0.0:53", 704, &[60]);
    let server = tree.server();
    assert_eq!((server.name.as_str(), server.groups.len()), ("quic", 1));
    assert!(server.notes.iter().any(|note| note.contains("nginx")), "{:?}", server.notes);
}

#[test]
fn sockets_of_dead_workers_have_no_reader() {
    // Worker 61 is gone, and worker 60 was seen at its own socket.
    for call in ["232 0x9 0x7f00", "45 0x3 0x7f00"] {
        let tree = Tree::new()
            .process((50, 1), "nsd", &[WAIT4])
            .process((60, 50), "nsd", &[call])
            .socket("udp4", "10.0.0.1:53", 703, &[50, 60])
            .socket("udp4", "10.0.0.1:53", 704, &[50, 60])
            .epoll(60, 9, &[703]);
        let server = tree.server();
        assert_eq!(server.readers.iter().map(|reader| reader.tid).collect::<Vec<_>>(), [60]);
        assert_eq!((server.readers_of(103).count(), server.readers_of(104).count()), (1, 0));
    }
    let busy = Tree::new()
        .process((50, 1), "nsd", &[WAIT4])
        .process((60, 50), "nsd", &[RUNNING])
        .process((61, 50), "nsd", &[RUNNING])
        .socket("udp4", "10.0.0.1:53", 703, &[50, 60, 61])
        .socket("udp4", "10.0.0.1:53", 704, &[50, 60, 61])
        .socket("udp4", "10.0.0.1:53", 705, &[50, 60, 61]);
    let reads = [delivery_count((60, 60), 103), delivery_count((61, 61), 104)];
    assert_eq!(
        busy.readers(&reads),
        [(60, vec![103], ReaderEvidence::Reading), (61, vec![104], ReaderEvidence::Reading)]
    );
}

#[test]
fn systemd_that_passes_on_a_socket_is_not_part_of_the_server() {
    let tree = Tree::new()
        .process((1, 0), "systemd", &["281 0x4 0x7f00"])
        .process((50, 1), "kresd", &["232 0x9 0x7f00"])
        .process((60, 1), "other", &["232 0x9 0x7f00"])
        .socket("udp4", "10.0.0.1:53", 703, &[1, 50])
        .socket("udp4", "10.0.0.2:53", 704, &[1, 60])
        .epoll(50, 9, &[703]);
    let server = tree.observe(&pid(50)).expect("a server");
    assert_eq!((server.name.as_str(), pids(&server)), ("kresd", vec![(50, true)]));
    assert_eq!(server.groups.len(), 1);
}

#[test]
fn ephemeral_ports_count_only_without_other_ports() {
    let tree = || {
        Tree::new()
            .process((50, 1), "unbound", &["232 0x9 0x7f00"])
            .socket("udp4", "0.0.0.0:40001", 704, &[50])
            .epoll(50, 9, &[703, 704])
    };
    let server = tree().socket("udp4", "10.0.0.1:53", 703, &[50]).observe(&pid(50)).expect("a server");
    assert_eq!(server.udp_ports(), [53]);
    assert_eq!(tree().observe(&pid(50)).expect("a server").udp_ports(), [40_001]);
}

#[test]
fn unknown_ports_and_processes_are_refused_in_one_line() {
    let refusal = prefork().refusal(&port(54));
    assert!(refusal.starts_with("nobody listens on port 54: "), "{refusal}");
    let refusal = prefork().refusal(&pid(70));
    assert!(refusal.starts_with("no process 70: "), "{refusal}");
    let refusal = prefork().process((70, 1), "cat", &[WAIT4]).refusal(&pid(70));
    assert!(
        refusal.starts_with("process 70 holds no unconnected UDP socket and no TCP listener in"),
        "{refusal}"
    );
    let query = ServerQuery { port: Some(53), ..pid(70) };
    let two_servers = prefork().process((70, 1), "ntpd", &[WAIT4]).socket("udp4", "0.0.0.0:123", 709, &[70]);
    assert_eq!(two_servers.refusal(&query), "process 70 holds no socket on port 53");
    let refusal = prefork().refusal(&ServerQuery::default());
    assert_eq!(refusal, "which server? Name it with --port N, --pid P, or both");
}

#[test]
fn servers_in_other_namespaces_are_refused_in_one_line() {
    let mut tree = prefork();
    tree.link("/proc/61/ns/net", "net:[4026532999]");
    let refusal = tree.refusal(&pid(61));
    let nsenter = "linerate boost --netns 61 --pid 61";
    assert_eq!(refusal, format!("process 61 is in another network namespace: {nsenter}"));
    let refusal =
        Tree::new().process((50, 1), "sh", &[]).socket("udp4", "10.0.0.1:53", 703, &[]).refusal(&port(53));
    assert!(refusal.contains("held by no process that is visible here") && refusal.contains("PID namespace"));
    let refusal = prefork().socket("udp4", "10.0.0.1:53", 705, &[]).refusal(&port(53));
    assert!(refusal.starts_with("udp 10.0.0.1:53 is held by no process that is visible here"), "{refusal}");
}

#[test]
fn containerized_server_gets_a_note_with_its_inner_pid() {
    let mut tree = prefork();
    tree.file("/proc/60/status", "Name:\tnsd\nNSpid:\t60\t7\n");
    let notes = tree.server().notes;
    assert!(notes.iter().any(|note| note.ends_with("process 60 is 7 there")), "{notes:?}");
}

#[test]
fn missing_permissions_are_refused_with_the_required_capabilities() {
    use linerate_host::recording::RecordedFailure;
    let mut tree = prefork();
    tree.file("/proc/thread-self/status", "CapEff:\t0000000000000000\n");
    for pid in [50, 60, 61] {
        for descriptor in [3, 4] {
            tree.link(&format!("/proc/{pid}/fd/{descriptor}"), "/dev/null");
        }
        let failure = RecordedEntry::Failed(RecordedFailure::Errno { errno: libc::EACCES });
        tree.recording.insert(format!("/proc/{pid}/fd"), failure);
    }
    let refusal = tree.refusal(&port(53));
    assert!(refusal.contains("not permitted") && refusal.contains("CAP_SYS_PTRACE"), "{refusal}");
    assert!(refusal.contains("CAP_NET_ADMIN and CAP_BPF") && refusal.contains("CAP_SYS_NICE"), "{refusal}");
}
