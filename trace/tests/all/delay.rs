//! Times and reasons of requests between the hosts of a lab.

use std::fs;
use std::hint::black_box;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Scope};
use std::time::Duration;

use linerate_host::Host;
use linerate_host::delivery::FlowWatch;
use linerate_host::setting::Offload;
use linerate_lab::{Lab, LabHost};
use linerate_testkit::skip;
use linerate_trace::delay::{DelayCause, DelayReport, DelaySession, DelayStage};
use rustix::thread::Pid;

use crate::{machine, pin, skip_unless_permitted};

const PORT: u16 = 5353;
const PATIENCE: Duration = Duration::from_secs(20);
/// Enough requests for the slowest 1 % to have a most frequent reason.
const ENOUGH: u64 = 600;
/// Number of runs, because other programs on this machine may be the reason, too.
const ATTEMPTS: usize = 4;
/// Nice values of the threads that a request waits for, and of a process that competes with them.
/// Other programs have a lower priority than both.
const SERVED: i32 = -10;
const BURNING: i32 = -20;

fn nice(value: i32) {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), value).expect("root may");
}

fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(time).expect("after boot").as_nanos() as u64
}

struct DelayScene {
    lab: Lab,
    host: Host,
    server: UdpSocket,
    client: UdpSocket,
    stop: AtomicBool,
    // Last, so that the next test starts after the lab has ended.
    _machine: MutexGuard<'static, ()>,
}

impl DelayScene {
    fn new(test: &str) -> Option<Self> {
        let _machine = machine();
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            skip(test, "one CPU only");
            return None;
        }
        let lab = Lab::builder().queues(1).start().map_err(|why| skip(test, why)).ok()?;
        let address = lab.links()[0].receiver.ipv4[0];
        let server = lab.receiver().run(|| UdpSocket::bind((address, PORT))).expect("run").expect("bound");
        let client = lab.senders()[0].run(|| UdpSocket::bind("0.0.0.0:0")).expect("run").expect("bound");
        client.connect((address, PORT)).expect("connected");
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        }
        let host = Host::live_with_sys(lab.receiver().sys_path().expect("a sysfs"));
        Some(Self { _machine, lab, host, server, client, stop: AtomicBool::new(false) })
    }

    fn start(test: &str) -> Option<(Self, DelaySession)> {
        let scene = Self::new(test)?;
        let session = scene.session(test)?;
        Some((scene, session))
    }

    fn session(&self, test: &str) -> Option<DelaySession> {
        let session = self.lab.receiver().run(|| DelaySession::start(&self.host, PORT)).expect("run");
        // With half a CPU as its budget, the session observes most of the time, so that tests
        // are short.
        skip_unless_permitted(test, session).map(|session| session.with_budget(0.5))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the server. Call this when all requests are answered.
    fn end_server(&self) {
        self.client.send(&[]).expect("sent");
    }

    /// Starts a server that calls `before` with the number of the request before each reply.
    fn serve<'s>(&'s self, scope: &'s Scope<'s, '_>, cpu: usize, before: impl Fn(u64) + Send + 's) {
        let serve = move || {
            pin(None, cpu);
            nice(SERVED);
            let mut buffer = [0; 2048];
            for number in 1.. {
                let (length, client) = self.server.recv_from(&mut buffer).expect("a request");
                if length == 0 {
                    return;
                }
                before(number);
                self.server.send_to(&buffer[..length], client).expect("sent");
            }
        };
        thread::Builder::new().name("server".to_owned()).spawn_scoped(scope, serve).expect("a thread");
    }

    fn burn<'s>(&'s self, scope: &'s Scope<'s, '_>, cpu: usize) {
        let burn = move || {
            pin(None, cpu);
            nice(BURNING);
            while !self.is_over() {
                black_box((0..1000_u64).fold(0, |sum, number| black_box(sum ^ number)));
            }
        };
        thread::Builder::new().name("burner".to_owned()).spawn_scoped(scope, burn).expect("a thread");
    }

    /// Sends bursts of requests of `size` bytes and waits for their replies, until the scene is
    /// over.
    fn ask(&self, burst: u16, size: usize) {
        let (mut request, mut buffer) = (vec![0; size], [0; 2048]);
        let mut number = 0_u16;
        nice(SERVED);
        while !self.is_over() {
            for _ in 0..burst {
                number = number.wrapping_add(1);
                request[..2].copy_from_slice(&number.to_be_bytes());
                self.client.send(&request).expect("sent");
            }
            for _ in 0..burst {
                self.client.recv(&mut buffer).expect("a reply");
            }
            thread::sleep(Duration::from_micros(100));
        }
        self.end_server();
    }

    /// Observes until `cause` is the most frequent reason of the slowest requests.
    fn assert_cause(&self, session: &mut DelaySession, stages: &[DelayStage], cause: &DelayCause) {
        let mut attempts = Vec::new();
        for _ in 0..ATTEMPTS {
            let reasons = self.observe(session).reasons;
            let first = reasons.first().expect("a reason");
            if stages.contains(&first.stage) && first.cause == *cause {
                return self.end();
            }
            attempts.push(reasons);
        }
        self.end();
        panic!("{attempts:#?}");
    }

    fn observe(&self, session: &mut DelaySession) -> DelayReport {
        drop(session.take_report(&self.host));
        for _ in 0..60 {
            session.wait(&self.host, Duration::from_millis(500), &|| false).expect("observed");
            if session.requests() >= ENOUGH {
                break;
            }
        }
        session.report(&self.host)
    }
}

fn thread_cause(name: &str) -> DelayCause {
    DelayCause::OtherThread { thread: name.to_owned() }
}

#[test]
fn delay_stages_add_up_to_a_time_within_the_round_trip() {
    const NAME: &str = "delay_stages_add_up_to_a_time_within_the_round_trip";
    let Some((scene, mut session)) = DelayScene::start(NAME) else { return };
    let round_trips = Mutex::new(Vec::new());
    let mut records = Vec::new();
    thread::scope(|scope| {
        scene.serve(scope, 1, |_| ());
        scope.spawn(|| {
            let mut buffer = [0; 64];
            for number in 0_u32.. {
                let begin = now_ns();
                scene.client.send(&number.to_be_bytes()).expect("sent");
                scene.client.recv(&mut buffer).expect("a reply");
                round_trips.lock().expect("no panic").push((begin, now_ns()));
                if scene.is_over() {
                    return scene.end_server();
                }
            }
        });
        while records.len() < 10_000 {
            let (window, pause) = session.turn(&scene.host).expect("observed");
            records.extend(window);
            thread::sleep(pause.min(Duration::from_millis(20)));
        }
        scene.end();
    });
    let round_trips = round_trips.into_inner().expect("no panic");
    for record in &records {
        let sum: u64 = DelayStage::ALL.iter().map(|stage| record.stage_ns(*stage)).sum();
        assert_eq!(sum, record.end_to_end_ns());
        // The client has one request at a time, so the record belongs to the one open at its begin.
        let at = round_trips.partition_point(|(begin, _)| *begin <= record.points[0]);
        let (begin, end) = round_trips[at - 1];
        assert!(begin <= record.points[0] && record.points[7] <= end, "{record:?} of {begin} to {end}");
    }
    let report = session.report(&scene.host);
    assert!(report.unmatched_reads <= report.windows, "{} of {}", report.unmatched_reads, report.reads);
}

#[test]
fn pauses_between_windows_outlast_an_interval() {
    let host = Host::live();
    let session = DelaySession::start(&host, PORT);
    let session = skip_unless_permitted("pauses_between_windows_outlast_an_interval", session);
    let Some(mut session) = session.map(|session| session.with_budget(1e-6)) else { return };
    let windows = [(); 2].map(|()| {
        session.wait(&host, Duration::from_millis(200), &|| false).expect("observed");
        session.take_report(&host).windows
    });
    assert_eq!(windows, [1, 0]);
}

#[test]
fn sleeping_server_is_reported_as_the_cause() {
    const NAME: &str = "sleeping_server_is_reported_as_the_cause";
    let Some((scene, mut session)) = DelayScene::start(NAME) else { return };
    thread::scope(|scope| {
        let sleeps = |number: u64| {
            if number.is_multiple_of(80) {
                thread::sleep(Duration::from_millis(1));
            }
        };
        scene.serve(scope, 1, sleeps);
        scope.spawn(|| scene.ask(1, 64));
        let cause = DelayCause::ServerSlept { thread: "server".to_owned() };
        scene.assert_cause(&mut session, &[DelayStage::Server], &cause);
    });
}

#[test]
fn process_competing_with_the_server_is_reported_as_the_cause() {
    const NAME: &str = "process_competing_with_the_server_is_reported_as_the_cause";
    let Some((scene, mut session)) = DelayScene::start(NAME) else { return };
    thread::scope(|scope| {
        scene.serve(scope, 1, |_| ());
        scene.burn(scope, 1);
        scope.spawn(|| {
            pin(None, 0);
            scene.ask(1, 64);
        });
        let stages = [DelayStage::WakeUp, DelayStage::Server];
        scene.assert_cause(&mut session, &stages, &thread_cause("burner"));
    });
}

#[test]
fn process_competing_with_a_napi_thread_is_reported_as_the_cause() {
    const NAME: &str = "process_competing_with_a_napi_thread_is_reported_as_the_cause";
    let Some((scene, mut session)) = DelayScene::start(NAME) else { return };
    // A NAPI thread competes with processes; a softirq would interrupt them.
    let device = scene.lab.receiver().sys_path().expect("a sysfs").join("class/net/eth0");
    for offload in [Offload::GenericReceive, Offload::UdpReceiveForwarding] {
        let result = scene.lab.receiver().run(|| scene.host.set_offload("eth0", offload, true));
        result.expect("run").expect("veth has NAPI for UDP with these");
    }
    let before = napi_threads();
    fs::write(device.join("threaded"), "1").expect("Linux 5.12");
    let threads: Vec<i32> = napi_threads().into_iter().filter(|pid| !before.contains(pid)).collect();
    assert!(!threads.is_empty());
    for pid in threads {
        pin(Pid::from_raw(pid), 1);
        // With this nice value the NAPI thread gets 2 % of the CPU next to the burner, less than
        // the requests need. With more, it gets the CPU within 40 us of a wake-up, which is as long
        // as an idle CPU of a virtual machine takes to wake up.
        rustix::process::setpriority_process(Pid::from_raw(pid), -2).expect("root may");
    }
    thread::scope(|scope| {
        scene.serve(scope, 0, |_| ());
        scene.burn(scope, 1);
        scope.spawn(|| {
            pin(None, 0);
            scene.ask(1, 64);
        });
        scene.assert_cause(&mut session, &[DelayStage::Softirq], &thread_cause("burner"));
    });
}

fn napi_threads() -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("napi/eth0-"))
    })
    .collect()
}

#[test]
fn full_qdisc_is_reported_as_the_cause() {
    const NAME: &str = "full_qdisc_is_reported_as_the_cause";
    const TBF: &str = "qdisc add dev eth0 root tbf rate 50mbit burst 4kb latency 100ms";
    let Some((scene, mut session)) = DelayScene::start(NAME) else { return };
    let arguments: Vec<&str> = TBF.split(' ').collect();
    let result = scene.lab.receiver().run(|| scene.host.program("tc", &arguments, ""));
    if let Err(why) = result.expect("run") {
        return skip(NAME, why);
    }
    thread::scope(|scope| {
        scene.serve(scope, 1, |_| ());
        scope.spawn(|| scene.ask(40, 1000));
        let qdisc = DelayCause::Qdisc { interface: "eth0".to_owned() };
        scene.assert_cause(&mut session, &[DelayStage::Transmit], &qdisc);
    });
}

/// Replies of a server on a macvlan pass the tracepoints at the lower device again if the client is
/// outside, but not if the client is on another macvlan of the same device.
#[test]
fn replies_of_a_stacked_device_are_counted_once() {
    const NAME: &str = "replies_of_a_stacked_device_are_counted_once";
    for client_device in ["eth0", "sibling"] {
        let Some(mut scene) = DelayScene::new(NAME) else { return };
        let ip = |host: &LabHost, command: &str| {
            let arguments: Vec<&str> = command.split(' ').collect();
            host.run(|| scene.host.program("ip", &arguments, "").map(drop)).expect("run")
        };
        let (receiver, sender) = (scene.lab.receiver(), &scene.lab.senders()[0]);
        if let Err(why) = ip(receiver, "link add upper link eth0 type macvlan mode bridge") {
            return skip(NAME, why);
        }
        let move_sibling = format!("link set sibling netns {}", sender.thread_id());
        let client_address = format!("addr add 10.77.0.2/24 dev {client_device}");
        let client_up = format!("link set {client_device} up");
        for (host, command) in [
            (receiver, "addr add 10.77.0.1/24 dev upper"),
            (receiver, "link set upper up"),
            (receiver, "link add sibling link eth0 type macvlan mode bridge"),
            (receiver, &move_sibling),
            (sender, &client_address),
            (sender, &client_up),
        ] {
            ip(host, command).expect(command);
        }
        let server = receiver.run(|| UdpSocket::bind(("10.77.0.1", PORT))).expect("run").expect("bound");
        scene.client.connect(("10.77.0.1", PORT)).expect("connected");
        server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        scene.server = server;
        let Some(mut session) = scene.session(NAME) else { return };
        let start = || FlowWatch::start(&scene.host, &[PORT], None);
        let flows = scene.lab.receiver().run(start).expect("run").expect("started");
        thread::scope(|scope| {
            scene.serve(scope, 1, |_| ());
            scope.spawn(|| scene.ask(2, 64));
            while session.requests() < ENOUGH {
                drop(session.turn(&scene.host).expect("observed"));
            }
            scene.end();
        });
        let report = session.report(&scene.host);
        // A window begins with at most two requests that were received before.
        assert!(report.replies <= report.received + 2 * report.windows, "{client_device}: {report:?}");
        let counts = flows.by_client().expect("read");
        let client = counts.values().next().expect("a client");
        // The server does not answer the last request.
        assert_eq!(client.replies, client.requests - 1, "{client_device}: {counts:?}");
    }
}
