//! `linerate flame` next to a running server.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use linerate_lab::Lab;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

use crate::support::{
    self, TestDirectory, has_two_cpus, program, read_document, skip, start_root_lab, text_of,
};

const PORT: u16 = 4054;

/// Number of CPUs that send and serve.
const CPUS: usize = 2;

/// Server threads that share a socket. Each thread waits in its own epoll, so a packet wakes all
/// waiting threads.
const THREADS: usize = 32;

const ATTEMPTS: u32 = 3;

/// Prints a SKIP line and returns `None` without root, without two CPUs or if no lab can be
/// created.
fn lab() -> Option<Lab> {
    if has_two_cpus() { start_root_lab(Lab::builder()) } else { None }
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu % CPUS);
    sched_setaffinity(None, &cpus).expect("pinned");
}

/// The server's sockets on one port: one socket, or one per CPU for the packets that arrive there.
fn sockets(lab: &Lab, many: bool) -> Vec<UdpSocket> {
    let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
    let open = |cpu: u32| {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &address)?;
        if many {
            sockopt::set_socket_incoming_cpu(&socket, cpu)?;
        }
        Ok::<_, std::io::Error>(UdpSocket::from(socket))
    };
    let cpus = if many { 0..2 } else { 0..1 };
    cpus.map(|cpu| lab.receiver().run(|| open(cpu)).expect("run").expect("bound")).collect()
}

/// Calls `run` while both CPUs send requests to the port and threads on both CPUs serve it.
fn under_load<T>(lab: &Lab, sockets: &[UdpSocket], run: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let go_on = || !over.load(Ordering::Relaxed);
    let to = sockets[0].local_addr().expect("bound");
    let open = || UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(to).map(|()| socket));
    let serve = |number: usize| {
        pin(number);
        let socket = &sockets[number % sockets.len()];
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        epoll::add(&poller, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("added");
        let patience = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let (mut events, mut buffer) = (Vec::with_capacity(1), [0; 100]);
        while go_on() {
            events.clear();
            let _ = epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), Some(&patience));
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        }
    };
    let send = |number: usize| {
        pin(number);
        let socket = lab.senders()[0].run(open).expect("run").expect("connected");
        socket.set_nonblocking(true).expect("set");
        while go_on() {
            for _ in 0..32 {
                let _ = socket.send(&[0; 64]);
            }
            while socket.recv(&mut [0; 64]).is_ok() {}
        }
    };
    let (serve, send) = (&serve, &send);
    thread::scope(|scope| {
        let threads = if sockets.len() == 1 { THREADS } else { CPUS };
        (0..threads).for_each(|number| drop(scope.spawn(move || serve(number))));
        (0..CPUS).for_each(|number| drop(scope.spawn(move || send(number))));
        let result = run();
        over.store(true, Ordering::Relaxed);
        result
    })
}

/// The output of `linerate flame`.
struct FlameOutput {
    text: String,
    document: Value,
}

impl FlameOutput {
    /// Time that CPUs waited for a socket that several threads share, in ns.
    fn waited_for_socket_ns(&self) -> u64 {
        let locks = self.document["result"]["contention"]["locks"].as_array().expect("a list");
        let of_socket = locks.iter().filter(|lock| SOCKET_LOCKS.iter().any(|spot| lock["spot"] == *spot));
        of_socket.map(|lock| lock["waited_ns"].as_u64().expect("a time")).sum()
    }

    /// Whether the first paragraph says that CPUs wait for a socket that several threads share.
    fn reports_shared_socket_first(&self) -> bool {
        let [verdict, locks, spots] =
            ["", "\nLock waits", "\nHot spots"].map(|heading| self.text.find(heading));
        let paragraph = self.text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let names_finding = (paragraph.contains("wait for") || paragraph.contains("waiting for"))
            && paragraph.contains("socket.shared-by-threads");
        names_finding && verdict < locks && (locks < spots || !paragraph.contains("waiting for locks"))
    }

    /// This test's share of all samples that are not idle.
    fn own_share(&self) -> f64 {
        let stacks = self.document["result"]["profile"]["stacks"].as_array().expect("a list");
        let sum = |of: &dyn Fn(&&Value) -> bool| {
            let busy = stacks.iter().filter(|stack| stack["context"] != "idle").filter(of);
            busy.map(|stack| stack["samples"].as_u64().expect("a count")).sum::<u64>() as f64
        };
        sum(&|stack| stack["pid"] == std::process::id()) / sum(&|_| true).max(1.0)
    }
}

/// Lock spots of the finding `socket.shared-by-threads`.
const SOCKET_LOCKS: [&str; 2] = ["socket-lock", "wake-up-lock"];

/// Runs `linerate flame`. Prints a SKIP line and returns `None` if it cannot run or cannot trace
/// locks.
fn run_flame(json: &str) -> Option<FlameOutput> {
    // Threads that are always runnable would leave flame little CPU time.
    let mut command = Command::new("nice");
    command.args(["-n", "-15"]).arg(program()).args(["flame", "--duration", "1.5", "--json", json]);
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    if !output.status.success() {
        skip(String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    let document = read_document(json);
    if document["result"]["contention"].is_null() {
        skip(&document["warnings"]);
        return None;
    }
    Some(FlameOutput { text: text_of(&output), document })
}

#[test]
fn flame_reports_a_shared_socket_first_but_not_per_cpu_sockets() {
    support::machine();
    let Some(lab) = lab() else { return };
    let directory = TestDirectory::new();
    let json = &directory.file("flame.json");
    let shared = sockets(&lab, false);
    let mut last_output = None;
    // Other programs may have used the CPUs.
    for _ in 0..ATTEMPTS {
        let Some(output) = under_load(&lab, &shared, || run_flame(json)) else { return };
        let is_first = output.reports_shared_socket_first();
        last_output = Some(output);
        if is_first {
            break;
        }
    }
    drop(shared);
    let shared = last_output.expect("an output");
    if !shared.reports_shared_socket_first() && shared.own_share() < 0.5 {
        return skip("the machine has other work");
    }
    assert!(shared.reports_shared_socket_first(), "{}", shared.text);
    let Some(separate) = under_load(&lab, &sockets(&lab, true), || run_flame(json)) else { return };
    assert!(!separate.reports_shared_socket_first(), "{}", separate.text);
    let (waited, waited_separate) = (shared.waited_for_socket_ns(), separate.waited_for_socket_ns());
    assert!(waited > 10 * waited_separate, "{waited} {waited_separate}: {} {}", shared.text, separate.text);
}
