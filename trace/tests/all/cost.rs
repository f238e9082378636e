//! CPU time of packets, measured while they arrive.

use std::fs;
use std::hint::black_box;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_host::{CpuSet, Host};
use linerate_lab::Lab;
use linerate_testkit::skip;
use linerate_trace::TraceError;
use linerate_trace::cost::calibrate::calibrate;
use linerate_trace::cost::{CostReport, CostSession, CostVictim, CpuCost};
use rustix::thread::{CpuSet as Mask, gettid, sched_getaffinity};

use crate::{machine, pin, skip_unless_permitted};

/// Observes for a second. `None`, after printing SKIP, if that is not permitted here.
fn observe(test: &str, cpus: Option<&CpuSet>) -> Option<CostReport> {
    let host = Host::live();
    let measure = || {
        let mut session = CostSession::start(&host, cpus, false)?;
        session.wait(Duration::from_secs(1), &|| false)?;
        session.finish(&host)
    };
    skip_unless_permitted(test, measure())
}

fn usable() -> Vec<u32> {
    let mask = sched_getaffinity(None).expect("the CPUs of this thread");
    (0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

struct Threads {
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    fn new() -> Self {
        Self { stop: Arc::default(), running: Vec::new() }
    }

    /// Starts a thread that repeats `work` on a CPU, and returns its id.
    fn start(&mut self, cpu: u32, mut work: impl FnMut() + Send + 'static) -> u32 {
        let (stop, (sender, receiver)) = (Arc::clone(&self.stop), mpsc::channel());
        self.running.push(thread::spawn(move || {
            pin(None, cpu as usize);
            sender.send(gettid().as_raw_nonzero().get().unsigned_abs()).expect("a receiver");
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        }));
        receiver.recv().expect("the id of the thread")
    }

    fn spin(&mut self, cpu: u32) -> u32 {
        self.start(cpu, || _ = black_box((0..1000_u64).fold(0, |sum, number| black_box(sum ^ number))))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.running.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Two CPUs; `None`, after printing SKIP, if there is only one.
fn near_and_far(test: &str) -> Option<[u32; 2]> {
    let cpus = usable().first_chunk().copied();
    cpus.or_else(|| {
        skip(test, "one CPU only");
        None
    })
}

/// A lab whose receiver processes packets on this CPU (RPS), and a sender's socket, connected to a
/// port without a listener. `None`, after printing SKIP, if there can be none here.
fn lab_of_packets_on(cpu: u32, test: &str) -> Option<(Lab, UdpSocket)> {
    let start = || -> Result<_, Box<dyn std::error::Error>> {
        let lab = Lab::builder().queues(1).start()?;
        let queue = lab.receiver().sys_path()?.join("class/net/eth0/queues/rx-0");
        fs::write(queue.join("rps_cpus"), CpuSet::from_iter([cpu]).to_mask())?;
        let socket = lab.senders()[0].run(|| UdpSocket::bind("0.0.0.0:0"))??;
        socket.connect((lab.links()[0].receiver.ipv4[0], 9))?;
        Ok((lab, socket))
    };
    start().map_err(|why| skip(test, why)).ok()
}

fn victim(cost: &CostReport, tid: u32) -> &CostVictim {
    cost.victims.iter().find(|victim| victim.tid == tid).expect("a thread that ran all the time is a victim")
}

fn assert_balanced(cost: &CostReport) {
    for cpu in &cost.cpus {
        assert!(cpu.imbalance().abs() < 0.01, "{:.3} % off: {cpu:?}", cpu.imbalance() * 100.0);
    }
}

#[test]
fn cpu_time_parts_add_up_to_the_elapsed_time() {
    let _machine = machine();
    let Some(cost) = observe("cpu_time_parts_add_up_to_the_elapsed_time", None) else { return };
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("the online CPUs");
    let online = CpuSet::from_list(&online).expect("a list of CPUs");
    assert_eq!(CpuSet::from_iter(cost.cpus.iter().map(|cpu| cpu.cpu)), online);
    assert_balanced(&cost);
    assert!(cost.seconds >= 1.0, "{}", cost.seconds);
    // The time of each thread is counted separately from the time of all threads.
    let threads: u64 = cost.victims.iter().map(CostVictim::had_ns).sum();
    let all = cost.all_cpus();
    assert!(threads <= all.tasks_ns + all.elapsed_ns / 100, "{threads} of {}", all.tasks_ns);
    assert!(cost.own.runs > 0);
    let text = serde_json::to_string(&cost).expect("JSON");
    assert_eq!(
        serde_json::from_str::<CostReport>(&text).expect("read again").victims.len(),
        cost.victims.len()
    );
}

#[test]
fn packets_are_charged_to_the_thread_on_the_receiving_cpu() {
    const NAME: &str = "packets_are_charged_to_the_thread_on_the_receiving_cpu";
    let _machine = machine();
    let Some([near, far]) = near_and_far(NAME) else { return };
    let Some((lab, socket)) = lab_of_packets_on(far, NAME) else { return };
    let mut threads = Threads::new();
    let (near_victim, far_victim) = (threads.spin(near), threads.spin(far));
    let sender = threads.start(near, move || _ = socket.send(&[0; 64]));
    // On a busy machine, sender and victim may have run at different times.
    let is_charged = |cost: &CostReport| victim(cost, far_victim).taken_share() > 0.02;
    let Some(mut cost) = observe(NAME, None) else { return };
    for _ in 0..7 {
        if is_charged(&cost) {
            break;
        }
        let Some(next) = observe(NAME, None) else { return };
        cost = next;
    }
    drop((threads, lab));
    assert_balanced(&cost);
    let (near_victim, far_victim, sender) =
        (victim(&cost, near_victim), victim(&cost, far_victim), victim(&cost, sender));
    assert!(far_victim.taken_share() > 0.02, "{far_victim:?}");
    assert!(near_victim.taken_share() < far_victim.taken_share() / 4.0, "{near_victim:?} {far_victim:?}");
    let own_ns = |victim: &CostVictim| *victim.taken_in_own_calls_ns.value().expect("known on this machine");
    // The sender's own calls cause the packets that its CPU processes. The thread on the other CPU
    // did not cause the packets there.
    assert!(own_ns(far_victim) < far_victim.taken_ns / 4, "{far_victim:?}");
    assert!(own_ns(sender) > sender.taken_ns / 2, "{sender:?}");
    // The kernel's figure includes softirqs or leaves them out, depending on its configuration. It
    // never exceeds the time on the CPU.
    let accounted = *far_victim.accounted_ns.value().expect("a thread that lives");
    assert!(accounted <= far_victim.on_cpu_ns + far_victim.on_cpu_ns / 20 + 30_000_000, "{far_victim:?}");
    let backlog = cost.devices.iter().find(|device| device.name == "backlog").expect("RPS uses the backlog");
    assert!(backlog.packets > 0 && backlog.taken_ns > 0 && backlog.polls > 0, "{backlog:?}");
    let all = cost.all_cpus();
    let polls: u64 = cost.devices.iter().map(|device| device.taken_ns).sum();
    assert!(polls <= all.net_rx_ns + all.elapsed_ns / 100, "{polls} of {}", all.net_rx_ns);
}

#[test]
fn only_requested_cpus_are_observed() {
    const NAME: &str = "only_requested_cpus_are_observed";
    let _machine = machine();
    let Some(&cpu) = usable().last() else { return };
    let Some(cost) = observe(NAME, Some(&CpuSet::from_iter([cpu]))) else { return };
    assert_eq!(cost.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [cpu]);
    assert_balanced(&cost);
    let threads: u64 = cost.victims.iter().map(|victim| victim.on_cpu_ns).sum();
    assert!(threads <= cost.cpus[0].elapsed_ns * 101 / 100, "{threads}");
    // The kernel accounts the time of all CPUs.
    let is_known = cost.victims.iter().any(|victim| victim.accounted_ns.value().is_some());
    assert!(cpu == 0 || !is_known, "{:?}", cost.victims);
}

#[test]
fn frequent_short_softirqs_are_traced_in_windows() {
    const NAME: &str = "frequent_short_softirqs_are_traced_in_windows";
    let _machine = machine();
    let Some(&cpu) = usable().last() else { return };
    let measure = || {
        let host = Host::live();
        let mut session = CostSession::start(&host, None, false)?;
        // Until the session finds that tracing exceeds its budget.
        session.wait(Duration::from_millis(600), &|| false)?;
        session.read(&host)?;
        session.wait(Duration::from_millis(1500), &|| false)?;
        let windows = session.read(&host)?;
        drop(session);
        let mut session = CostSession::start(&host, None, false)?.exact();
        session.wait(Duration::from_millis(1500), &|| false)?;
        Ok::<_, TraceError>((windows, session.finish(&host)?))
    };
    let mut threads = Threads::new();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(socket.local_addr().expect("its address")).expect("to itself");
    let mut buffer = [0; 100];
    let tid = threads.start(cpu, move || {
        for _ in 0..100 {
            let _ = socket.send(&[0; 100]).and_then(|_| socket.recv(&mut buffer));
        }
    });
    let result = measure();
    drop(threads);
    let Some((windows, exact)) = skip_unless_permitted(NAME, result) else { return };
    // Since the previous reading, without the 600 ms before it.
    assert!((1.5..2.1).contains(&windows.seconds), "{}", windows.seconds);
    assert_balanced(&windows);
    assert_balanced(&exact);
    let of_cpu =
        |cost: &CostReport| cost.cpus.iter().find(|other| other.cpu == cpu).expect("the CPU").clone();
    let (in_windows, whole) = (of_cpu(&windows), of_cpu(&exact));
    assert_eq!(whole.traced_ns, whole.elapsed_ns);
    if whole.own_runs < 200_000 {
        return skip(NAME, format!("a busy machine let only {} programs run", whole.own_runs));
    }
    assert!(in_windows.traced_ns < in_windows.elapsed_ns * 3 / 4, "{in_windows:?}");
    assert!(windows.notes.iter().any(|note| note.contains("in windows")), "{:?}", windows.notes);
    assert!(in_windows.own_runs < whole.own_runs * 3 / 4, "{in_windows:?} {whole:?}");
    // The time per packet is the same, whether tracing is continuous or in windows.
    let each = |cost: &CpuCost| cost.ns_a_packet().expect("packets");
    assert!((0.5..2.0).contains(&(each(&in_windows) / each(&whole))), "{in_windows:?} {whole:?}");
    let taken_share =
        |cost: &CostReport| cost.victims.iter().find(|victim| victim.tid == tid).map(CostVictim::taken_share);
    let (Some(in_windows), Some(whole)) = (taken_share(&windows), taken_share(&exact)) else {
        panic!("the thread is no victim")
    };
    assert!((in_windows - whole).abs() < 0.1, "{in_windows} {whole}");
}

#[test]
fn dropped_session_unloads_its_programs() {
    let _machine = machine();
    let loaded = || {
        let descriptors = fs::read_dir("/proc/self/fdinfo").expect("/proc").flatten();
        let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.filter(|text| text.contains("prog_id:")).count()
    };
    let session = CostSession::start(&Host::live(), None, false);
    let Some(session) = skip_unless_permitted("dropped_session_unloads_its_programs", session) else {
        return;
    };
    assert!(loaded() >= 6, "{}", loaded());
    drop(session);
    assert_eq!(loaded(), 0);
}

/// The loss that inference finds in addition to tracing, and how much of it interrupts may explain,
/// as shares of the time: the median of three runs.
fn difference(test: &str, cpu: u32) -> Option<(f64, f64)> {
    // A hypervisor takes some microseconds to deliver an interrupt, which no tracepoint sees.
    const UNSEEN_NS: f64 = 15_000.0;
    let mut differences = Vec::new();
    for _ in 0..3 {
        let result = calibrate(&Host::live(), &[cpu], Duration::from_millis(700), &|| false);
        let (cost, calibrations) = skip_unless_permitted(test, result)?;
        assert_balanced(&cost);
        let [calibration] = calibrations.as_slice() else { panic!("{calibrations:?} {:?}", cost.notes) };
        let interrupts = calibration.interrupts as f64 * UNSEEN_NS / calibration.elapsed_ns as f64;
        println!("{:.2} % more of {calibration:?}", calibration.difference() * 100.0);
        differences.push((calibration.difference(), interrupts));
    }
    differences.sort_by(|first, second| first.0.total_cmp(&second.0));
    Some(differences[1])
}

#[test]
fn inferred_loss_of_a_calibration_loop_matches_tracing() {
    const NAME: &str = "inferred_loss_of_a_calibration_loop_matches_tracing";
    const QUIET_ATTEMPTS: usize = 3;
    let _machine = machine();
    let Some([near, far]) = near_and_far(NAME) else { return };
    // Tracing may report no loss that did not happen.
    let mut is_steady = false;
    for _ in 0..QUIET_ATTEMPTS {
        let Some((quiet, _)) = difference(NAME, far) else { return };
        assert!(quiet > -0.1, "{quiet}");
        is_steady = quiet < 0.1;
        if is_steady {
            break;
        }
    }
    let Some((lab, socket)) = lab_of_packets_on(far, NAME) else { return };
    let mut threads = Threads::new();
    threads.start(near, move || _ = socket.send(&[0; 64]));
    let Some((loaded, interrupts)) = difference(NAME, far) else { return };
    drop((threads, lab));
    assert!(loaded > -0.1, "{loaded}");
    if !is_steady {
        return skip(NAME, "others keep this machine busy: the speed of a CPU without packets varies");
    }
    // It misses only the entries into interrupts.
    assert!(loaded < 0.1 + interrupts, "{loaded}, {interrupts}");
}
