//! Reuseport groups steered from outside, with real sockets on the loopback of a lab's host.
//! Loopback processes a packet on the CPU that sends it, so a pinned thread chooses the CPU.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linerate_engine::steer::{self, CpuTable, SteeringProgram};
use linerate_host::setting::{SteeredSockets, SteeringTable, steering_counts};
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{Host, Setting, SettingError, SettingValue};
use linerate_testkit::skip;
use rustix::net::sockopt::{set_socket_reuseport, socket_cookie};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const FLOWS: usize = 64;

/// Time limit of every wait.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs a test on a host of a lab, with the CPUs that it may use. Prints SKIP with fewer than two
/// CPUs, or if the kernel does not permit steering.
fn run_on_lab_host(test: &str, work: impl FnOnce(&[u32]) + Send) {
    let Some(lab) = super::lab(test) else { return };
    let allowed = sched_getaffinity(None).expect("an affinity");
    let cpus: Vec<u32> =
        (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu as u32).collect();
    if cpus.len() < 2 {
        return skip(test, "requires two CPUs");
    }
    lab.receiver()
        .run(|| {
            let group = Udp::new("127.0.0.1", 1);
            match group.group.steer(&group.table(&cpus[..1])) {
                Err(error) if error.is_denied() => skip(test, error),
                Err(error) => panic!("{error}"),
                Ok(()) => work(&cpus),
            }
        })
        .expect("a host");
}

/// A reuseport group, by the values that boost uses.
struct Group {
    protocol: SocketProtocol,
    local: SocketAddr,
    setting: Setting,
}

impl Group {
    fn new(protocol: SocketProtocol, local: SocketAddr) -> Self {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").expect("a namespace").st_ino();
        Group { protocol, local, setting: Setting::Steering { namespace, protocol, local } }
    }

    fn steer(&self, table: &SteeringTable) -> Result<(), SettingError> {
        self.setting.write(&Host::live(), &SettingValue::new(table.to_string()))
    }

    fn release(&self) {
        self.setting.write(&Host::live(), &SettingValue::new("none")).expect("released");
    }

    fn value(&self) -> String {
        self.setting.read(&Host::live()).expect("read").to_string()
    }

    fn steered_sockets(&self) -> SteeredSockets {
        let Setting::Steering { namespace, .. } = &self.setting else { unreachable!() };
        steering_counts(&Host::live(), *namespace, self.protocol, self.local).expect("read").expect("steered")
    }
}

/// A UDP group whose sockets only the test reads.
struct Udp {
    sockets: Vec<UdpSocket>,
    group: Group,
}

impl Udp {
    fn new(ip: &str, size: usize) -> Self {
        let mut local = SocketAddr::new(ip.parse().expect("an address"), 0);
        let sockets: Vec<UdpSocket> = (0..size)
            .map(|_| {
                let socket = UdpSocket::from(reuseport(&mut local, SocketType::DGRAM));
                socket.set_nonblocking(true).expect("set");
                socket
            })
            .collect();
        Udp { sockets, group: Group::new(SocketProtocol::Udp, local) }
    }

    fn cookies(&self) -> Vec<u64> {
        self.sockets.iter().map(cookie).collect()
    }

    /// A table with one socket per CPU, in turn.
    fn table(&self, cpus: &[u32]) -> SteeringTable {
        let by_cpu = cpus.iter().zip(self.cookies().into_iter().cycle());
        steering_table(by_cpu.map(|(cpu, cookie)| (*cpu, vec![cookie])))
    }

    /// Sends [`FLOWS`] datagrams on a CPU, and returns the number that each socket gets.
    fn spread(&self, cpu: u32) -> Vec<usize> {
        send_on(cpu, self.group.local, FLOWS);
        let mut counts = vec![0; self.sockets.len()];
        self.drain(&mut counts, FLOWS);
        counts
    }

    /// Adds waiting datagrams to the counts until there are `expected`. Loopback delivers before
    /// `send` returns, unless ksoftirqd runs the softirq later.
    fn drain(&self, counts: &mut [usize], expected: usize) {
        let start = Instant::now();
        loop {
            for (socket, count) in self.sockets.iter().zip(counts.iter_mut()) {
                *count += std::iter::from_fn(|| socket.recv(&mut [0; 8]).ok()).count();
            }
            let missing = expected.saturating_sub(counts.iter().sum());
            if missing == 0 {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "{missing} of {expected} datagrams are lost: {counts:?}");
            std::thread::yield_now();
        }
    }
}

fn steering_table(by_cpu: impl IntoIterator<Item = (u32, Vec<u64>)>) -> SteeringTable {
    SteeringTable { by_cpu: by_cpu.into_iter().collect(), ..SteeringTable::default() }
}

/// The cookies of the steered sockets that are open, or that are closed.
fn steered_cookies(steered: &SteeredSockets, open: bool) -> Vec<u64> {
    let sockets = steered.sockets.iter().filter(|socket| socket.present == open);
    sockets.map(|socket| socket.cookie).collect()
}

fn reuseport(local: &mut SocketAddr, kind: SocketType) -> OwnedFd {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    set_socket_reuseport(&socket, true).expect("set");
    bind(&socket, local).expect("bound");
    *local = SocketAddr::try_from(rustix::net::getsockname(&socket).expect("bound")).expect("an address");
    socket
}

fn cookie(socket: &impl AsFd) -> u64 {
    socket_cookie(socket).expect("a cookie")
}

fn on_cpu<T: Send>(cpu: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut only = CpuSet::new();
            only.set(cpu as usize);
            sched_setaffinity(None, &only).expect("bound");
            work()
        });
        thread.join().expect("done")
    })
}

/// Sends datagrams on a CPU, each from another port.
fn send_on(cpu: u32, to: SocketAddr, number: usize) {
    on_cpu(cpu, || {
        let from = SocketAddr::new(to.ip(), 0);
        for _ in 0..number {
            UdpSocket::bind(from).expect("bound").send_to(b"x", to).expect("sent");
        }
    });
}

fn single_socket_counts(index: usize, of: usize, number: usize) -> Vec<usize> {
    (0..of).map(|at| if at == index { number } else { 0 }).collect()
}

fn check_steering_by_cpu(ip: &str, cpus: &[u32]) {
    let udp = Udp::new(ip, 2);
    assert_eq!(udp.group.value(), "none");
    let [first, second, ..] = cpus else { unreachable!() };
    let table = udp.table(&[*first, *second]);
    udp.group.steer(&table).expect("steered");
    assert_eq!(udp.group.value(), table.to_string());
    assert_eq!(udp.spread(*first), single_socket_counts(0, 2, FLOWS));
    assert_eq!(udp.spread(*second), single_socket_counts(1, 2, FLOWS));
    let steered_sockets = udp.group.steered_sockets();
    let expected = [(*first, udp.cookies()[0]), (*second, udp.cookies()[1])];
    let packets: BTreeSet<(u32, u64, u64)> = steered_sockets
        .sockets
        .iter()
        .flat_map(|socket| socket.packets_by_cpu.iter().map(|(cpu, packets)| (*cpu, socket.cookie, *packets)))
        .collect();
    assert_eq!(packets, expected.map(|(cpu, cookie)| (cpu, cookie, FLOWS as u64)).into());
    assert!(
        steered_sockets.hashed_by_cpu.is_empty()
            && steered_sockets.sockets.iter().all(|socket| socket.present)
    );
    udp.group.release();
    assert_eq!(udp.group.value(), "none");
    let hash_counts = udp.spread(*first);
    assert!(
        hash_counts.iter().all(|count| *count > 0) && hash_counts.iter().sum::<usize>() == FLOWS,
        "{hash_counts:?}"
    );
}

#[test]
fn datagrams_are_steered_by_cpu_until_released() {
    run_on_lab_host("datagrams_are_steered_by_cpu_until_released", |cpus| {
        check_steering_by_cpu("127.0.0.1", cpus);
        if UdpSocket::bind("[::1]:0").is_ok() {
            check_steering_by_cpu("::1", cpus);
        } else {
            skip("datagrams_are_steered_by_cpu_until_released", "no IPv6 here");
        }
    });
}

#[test]
fn datagrams_of_a_closed_socket_go_to_other_sockets() {
    run_on_lab_host("datagrams_of_a_closed_socket_go_to_other_sockets", |cpus| {
        let mut udp = Udp::new("127.0.0.1", 4);
        let cookies = udp.cookies();
        let table = steering_table([(cpus[0], cookies[..3].to_vec()), (cpus[1], cookies[3..].to_vec())]);
        udp.group.steer(&table).expect("steered");
        let counts_by_hash = udp.spread(cpus[0]);
        assert!(
            counts_by_hash[..3].iter().all(|count| *count > 0) && counts_by_hash[3] == 0,
            "by the hash: {counts_by_hash:?}"
        );

        drop(udp.sockets.remove(0));
        let remaining_counts = udp.spread(cpus[0]);
        assert!(
            remaining_counts[..2].iter().sum::<usize>() == FLOWS && remaining_counts[2] == 0,
            "{remaining_counts:?}"
        );
        assert_eq!(udp.group.value(), table.to_string(), "the value includes closed sockets");
        let steered_sockets = udp.group.steered_sockets();
        assert_eq!(steered_cookies(&steered_sockets, false), [cookies[0]]);
        assert_eq!(steered_sockets.hashed_by_cpu, BTreeMap::new());

        udp.sockets.drain(..2);
        assert_eq!(udp.spread(cpus[0]), [FLOWS], "to a socket of another CPU");
        assert_eq!(udp.group.steered_sockets().hashed_by_cpu, BTreeMap::from([(cpus[0], FLOWS as u64)]));
    });
}

/// Undo restores a table of workers, some of which have ended since.
#[test]
fn tables_with_closed_sockets_are_set_and_attached() {
    run_on_lab_host("tables_with_closed_sockets_are_set_and_attached", |cpus| {
        let mut udp = Udp::new("127.0.0.1", 3);
        let original = udp.table(&cpus[..2]);
        udp.group.steer(&original).expect("steered");
        drop(udp.sockets.remove(0));
        udp.group.steer(&udp.table(&cpus[..2])).expect("steered");
        for is_attached in [true, false] {
            if !is_attached {
                udp.group.release();
            }
            udp.group.steer(&original).expect("steered");
            assert_eq!(udp.group.value(), original.to_string(), "{is_attached}");
            assert_eq!(udp.spread(cpus[1]), single_socket_counts(0, 2, FLOWS));
            assert_eq!(udp.spread(cpus[0]).iter().sum::<usize>(), FLOWS, "by the kernel's hash");
            let open_cookies = steered_cookies(&udp.group.steered_sockets(), true);
            assert_eq!(open_cookies, [udp.cookies()[0]], "{is_attached}");
        }
        drop(udp.sockets.remove(0));
        let error = udp.group.steer(&original).expect_err("no open socket").to_string();
        assert!(error.contains("is none of the group"), "{error}");
    });
}

#[test]
fn no_datagram_is_lost_while_steering_tables_change() {
    run_on_lab_host("no_datagram_is_lost_while_steering_tables_change", |cpus| {
        const CHANGES: usize = 40;
        const IN_FLIGHT: usize = 100;
        let udp = Udp::new("127.0.0.1", 4);
        let cookies = udp.cookies();
        let tables: Vec<SteeringTable> = [[0, 1], [1, 0], [2, 3], [3, 3]]
            .map(|at| steering_table(cpus.iter().copied().zip(at.map(|at| vec![cookies[at]]))))
            .to_vec();
        let (received, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Each CPU sends half, so that both have sent whenever IN_FLIGHT datagrams are received.
        let send = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                if sent < (received.load(Ordering::Relaxed) + IN_FLIGHT).div_ceil(2) {
                    sent += 1;
                    socket.send_to(b"x", udp.group.local).expect("sent");
                } else {
                    std::thread::yield_now();
                }
            }
            sent
        };
        let mut counts = vec![0; 4];
        std::thread::scope(|scope| {
            let senders: Vec<_> =
                cpus[..2].iter().map(|cpu| scope.spawn(move || on_cpu(*cpu, send))).collect();
            for change in 0..CHANGES {
                if change % 8 == 7 {
                    udp.group.release();
                } else {
                    udp.group.steer(&tables[change % 4]).expect("steered");
                }
                // Some traffic arrives after each change.
                let before = counts.iter().sum::<usize>();
                udp.drain(&mut counts, before + IN_FLIGHT);
                received.store(counts.iter().sum(), Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
            let sent = senders.into_iter().map(|sender| sender.join().expect("sent")).sum();
            udp.drain(&mut counts, sent);
            assert_eq!(counts.iter().sum::<usize>(), sent);
        });
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    });
}

#[test]
fn tcp_listeners_are_steered_by_cpu() {
    run_on_lab_host("tcp_listeners_are_steered_by_cpu", |cpus| {
        let mut local: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let listeners: Vec<TcpListener> = (0..2)
            .map(|_| {
                let socket = reuseport(&mut local, SocketType::STREAM);
                listen(&socket, 128).expect("listening");
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true).expect("set");
                listener
            })
            .collect();
        let group = Group::new(SocketProtocol::Tcp, local);
        let by_cpu = cpus.iter().zip(&listeners).map(|(cpu, listener)| (*cpu, vec![cookie(listener)]));
        let table = steering_table(by_cpu);
        assert_eq!(group.value(), "none");
        group.steer(&table).expect("steered");
        assert_eq!(group.value(), table.to_string());
        for (index, cpu) in cpus[..2].iter().enumerate() {
            let streams: Vec<TcpStream> =
                on_cpu(*cpu, || (0..16).map(|_| TcpStream::connect(local).expect("connected")).collect());
            let accepted = |listener: &TcpListener| std::iter::from_fn(|| listener.accept().ok()).count();
            let counts: Vec<usize> = listeners.iter().map(accepted).collect();
            assert_eq!(counts, single_socket_counts(index, 2, streams.len()));
        }
        group.release();
        assert_eq!(group.value(), "none");
    });
}

#[test]
fn steering_program_of_another_application_is_not_replaced() {
    run_on_lab_host("steering_program_of_another_application_is_not_replaced", |cpus| {
        for (program, name) in
            [(SteeringProgram::Cbpf, "classic-by-cpu"), (SteeringProgram::Ebpf, "program ")]
        {
            let udp = Udp::new("127.0.0.1", 2);
            let table = CpuTable::new(&[[cpus[0]], [cpus[1]]]).expect("a table");
            steer::attach(&udp.sockets, &table, program).expect("attached");
            let value = udp.group.value();
            assert!(value.starts_with(name), "{value}");
            let error = udp.group.steer(&udp.table(&cpus[..2])).expect_err("another program").to_string();
            assert!(error.contains("is there already (") && error.contains("is not replaced"), "{error}");
            let none = udp.group.setting.write(&Host::live(), &SettingValue::new("none"));
            assert!(none.expect_err("another program").to_string().contains("is not replaced"));
            assert_eq!((udp.group.value(), udp.spread(cpus[1])), (value, single_socket_counts(1, 2, FLOWS)));

            // Sockets leave the other program's map some time after it was detached.
            steer::detach(&udp.sockets[0]).expect("detached");
            udp.group.steer(&udp.table(&cpus[..2])).expect("steered");
            assert_eq!(udp.spread(cpus[1]), single_socket_counts(1, 2, FLOWS));
        }
    });
}

#[test]
fn unsteerable_sockets_and_cpus_are_refused_with_the_reason() {
    run_on_lab_host("unsteerable_sockets_and_cpus_are_refused_with_the_reason", |cpus| {
        let mut udp = Udp::new("127.0.0.1", 2);
        let refusal = |table: &SteeringTable| udp.group.steer(table).expect_err("refused").to_string();
        let error = refusal(&steering_table([(cpus[0], vec![u64::MAX])]));
        assert!(error.contains(&format!("socket {} is none of the group", u64::MAX)), "{error}");
        let error = refusal(&udp.table(&[99_999]));
        assert!(error.contains("there is no CPU 99999"), "{error}");

        let single_socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let group = Group::new(SocketProtocol::Udp, single_socket.local_addr().expect("bound"));
        assert_eq!(group.value(), "none");
        let table = steering_table([(cpus[0], vec![cookie(&single_socket)])]);
        let error = group.steer(&table).expect_err("refused").to_string();
        assert!(error.contains("in no reuseport group"), "{error}");
        assert_eq!((udp.group.value(), group.value()), ("none".into(), "none".into()));

        let Setting::Steering { namespace, protocol, local } = udp.group.setting.clone() else {
            unreachable!()
        };
        let other_namespace = Setting::Steering { namespace: namespace + 1, protocol, local };
        let error =
            other_namespace.write(&Host::live(), &SettingValue::new("none")).expect_err("another namespace");
        assert!(!error.is_gone() && error.to_string().contains("--netns PID"), "{error}");
        udp.sockets.clear();
        assert!(udp.group.setting.read(&Host::live()).expect_err("closed").is_gone());
    });
}
