//! The accuracy of both backends, compared with the exact counters of reflectors.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use linerate_lab::Lab;
use linerate_load::generator::{GeneratorBackend, GeneratorOptions};
use linerate_load::{Generator, GeneratorError, LoadSlot, LoadWorkload, PacingMode, SlotOutcome, stats};
use linerate_testkit::reflector::{FrozenSpan, Reflector, ReflectorAccount, RunningReflector, XdpService};
use linerate_testkit::skip;
use rustix::process::{Pid, Signal};

const PAYLOAD: usize = 100;

/// Maximum number of measurements per result. The tests use the median, because other work on the
/// machine disturbs some measurements.
const ATTEMPTS: usize = 9;

/// Whether the median of [`ATTEMPTS`] errors is within the tolerance, whatever further errors are.
fn is_median_within(errors: &[f64], tolerance: f64) -> bool {
    errors.iter().filter(|error| error.abs() <= tolerance).count() > ATTEMPTS / 2
}

struct Scene {
    lab: Lab,
    backend: GeneratorBackend,
}

/// Held by each test, because a test that keeps a CPU busy disturbs the times of another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `test` with each backend, each time in a new lab.
fn with_each_backend(name: &str, test: impl Fn(&Scene)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for backend in [GeneratorBackend::Socket, GeneratorBackend::Xdp] {
        match Lab::builder().start() {
            Ok(lab) => test(&Scene { lab, backend }),
            Err(why) => return skip(name, why.to_string()),
        }
    }
}

impl Scene {
    fn serve(&self, builder: linerate_testkit::reflector::ReflectorBuilder) -> RunningReflector {
        let address = (self.lab.links()[0].receiver.ipv4[0], 0);
        self.lab.receiver().run(|| builder.address(address).start()).unwrap().unwrap()
    }

    fn options(&self, target: SocketAddr, flows: usize) -> GeneratorOptions {
        let workload = LoadWorkload::Echo { payload_bytes: PAYLOAD };
        GeneratorOptions { flows, workload, backend: self.backend, ..GeneratorOptions::new(vec![target]) }
    }

    /// `None`, after a SKIP message, if the process lacks the privilege for XDP.
    fn start(&self, test: &str, options: GeneratorOptions) -> Option<Box<dyn Generator>> {
        match self.lab.senders()[0].run(|| options.start()).unwrap() {
            Ok(generator) => Some(generator),
            Err(GeneratorError::Xdp { why }) if !rustix::process::geteuid().is_root() => {
                skip(test, why);
                None
            }
            Err(why) => panic!("{:?}: {why}", self.backend),
        }
    }

    fn generator(&self, test: &str, service: &RunningReflector, flows: usize) -> Option<Box<dyn Generator>> {
        self.start(test, self.options(service.address(), flows))
    }
}

/// A CPU for the generator and a CPU for the service, so that neither waits for the other.
fn two_cpus() -> Option<(u32, usize)> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Some((u32::try_from(cpus.next()?).ok()?, cpus.next()?))
}

/// Keeps CPUs from going idle, with loops at the lowest priority (SCHED_IDLE). The wake-up time of
/// a CPU and its cache misses depend on how long it was idle, and so on the delay to be measured.
struct Awake(Vec<Child>);

impl Awake {
    fn keep(cpus: &[usize]) -> std::io::Result<Self> {
        let spin = |cpu: &usize| {
            Command::new("chrt")
                .args(["--idle", "0", "taskset", "--cpu-list", &cpu.to_string()])
                .args(["timeout", "120", "sh", "-c", "while :; do :; done"])
                .spawn()
        };
        cpus.iter().map(spin).collect::<Result<_, _>>().map(Self)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `timeout` passes the signal on to the shell.
            let kill_result = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
            kill_result.and_then(|()| child.wait().map(drop).map_err(|_| rustix::io::Errno::CHILD)).unwrap();
        }
    }
}

/// A slot with a drain time for replies that the service delays.
fn slot(mode: PacingMode, milliseconds: u64) -> LoadSlot {
    LoadSlot { drain: Duration::from_secs(2), ..LoadSlot::new(mode, Duration::from_millis(milliseconds)) }
}

fn rate(per_second: f64) -> PacingMode {
    PacingMode::Rate { per_second }
}

/// Checks that the counters of the generator and of the service agree exactly.
fn assert_agree(outcome: &SlotOutcome, account: &ReflectorAccount) {
    let lost_on_the_way = outcome.self_watch.refused_by_link + account.overflowed;
    assert_eq!(outcome.sent, account.received + lost_on_the_way, "{outcome:?}\n{account:?}");
    assert_eq!(outcome.answered, account.answered, "{outcome:?}\n{account:?}");
    let unanswered = account.dropped + account.corrupted + account.over_capacity + lost_on_the_way;
    assert_eq!(outcome.lost, unanswered, "{outcome:?}\n{account:?}");
    assert_eq!(outcome.duplicate, account.duplicated, "{outcome:?}\n{account:?}");
    assert_eq!(outcome.corrupt, account.corrupted, "{outcome:?}\n{account:?}");
    assert_eq!(outcome.reordered, account.swapped, "{outcome:?}\n{account:?}");
    assert_eq!((outcome.unsolicited, outcome.late), (0, 0), "{outcome:?}\n{account:?}");
}

#[test]
fn generator_and_reflector_counts_agree_exactly() {
    with_each_backend("generator_and_reflector_counts_agree_exactly", |scene| {
        let mixed_faults = || Reflector::builder().drop_every(10).corrupt_every(9).duplicate_every(4);
        let faulty = [
            (rate(4_000.0), mixed_faults()),
            (PacingMode::Window { outstanding: 4 }, mixed_faults()),
            (rate(4_000.0), Reflector::builder().swap_every(3)),
            (rate(4_000.0), Reflector::builder().swap_every(1).delay(Duration::from_millis(2))),
            (rate(4_000.0), Reflector::builder().token_bucket(1_000.0, 20)),
            (rate(4_000.0), Reflector::builder().drop_every(1)),
        ];
        for (mode, builder) in faulty {
            let service = scene.serve(builder);
            let Some(mut generator) =
                scene.generator("generator_and_reflector_counts_agree_exactly", &service, 8)
            else {
                return;
            };
            let outcome = generator.run(&slot(mode, 500)).unwrap();
            drop(generator);
            assert_agree(&outcome, &service.stop());
        }
    });
}

#[test]
fn latency_grows_by_the_delay_of_the_reflector() {
    let test = "latency_grows_by_the_delay_of_the_reflector";
    let Some((near, far)) = two_cpus() else { return skip(test, "two CPUs are needed") };
    with_each_backend(test, |scene| {
        let _awake = match Awake::keep(&[near as usize, far]) {
            Ok(awake) => awake,
            Err(why) => return skip(test, format!("chrt of util-linux: {why}")),
        };
        let delays = [0, 100, 1_000].map(Duration::from_micros);
        let mut errors = [Vec::new(), Vec::new()];
        for _ in 0..ATTEMPTS {
            let mut medians = Vec::new();
            for delay in delays {
                let service = scene.serve(Reflector::builder().delay(delay).busy().cpu(far));
                let cpus = Some(vec![near]);
                let options = GeneratorOptions { cpus, ..scene.options(service.address(), 4) };
                let Some(mut generator) = scene.start(test, options) else { return };
                let outcome = generator.run(&slot(rate(1_000.0), 300)).unwrap();
                assert_eq!(outcome.lost, 0, "{outcome:?}");
                let truth = service.stop().reply_delay_ns(0.5).unwrap();
                medians.push((outcome.latency_ns.median().unwrap() as f64, truth as f64));
            }
            // The latency floor is not caused by the service: wire, network stacks, and the timer
            // tick by which requests leave late.
            let floor = medians[0].0 - medians[0].1;
            for ((latency, truth), errors) in medians[1..].iter().zip(&mut errors) {
                errors.push((latency - floor - truth) / (5_000.0 + 0.05 * truth));
            }
            if errors.iter().all(|errors| is_median_within(errors, 1.0)) {
                return;
            }
        }
        panic!("{:?}, {:?}: {errors:?} times the tolerance", scene.backend, &delays[1..]);
    });
}

/// The quantile of the latency, in ns, that follows from the schedule and the freezes alone.
fn expected_quantile(outcome: &SlotOutcome, frozen: &[FrozenSpan], quantile: f64) -> f64 {
    let interval_ns = outcome.duration.as_nanos() as f64 / outcome.sent as f64;
    let waits = (0..outcome.sent).map(|number| {
        let intended = outcome.started_realtime_ns + (number as f64 * interval_ns) as u64;
        let freeze =
            frozen.iter().find(|span| (span.began_realtime_ns..span.ended_realtime_ns).contains(&intended));
        freeze.map_or(0, |span| span.ended_realtime_ns - intended)
    });
    let mut waits: Vec<u64> = waits.collect();
    waits.sort_unstable();
    waits[((outcome.sent as f64 * quantile) as usize).min(waits.len() - 1)] as f64
}

#[test]
fn paced_latency_shows_freezes_without_coordinated_omission() {
    let test = "paced_latency_shows_freezes_without_coordinated_omission";
    with_each_backend(test, |scene| {
        let freezing_service = || {
            let builder = Reflector::builder();
            scene.serve(builder.freeze(Duration::from_millis(500), Duration::from_millis(50)))
        };
        let mut errors = [Vec::new(), Vec::new()];
        let mut open_p99 = Vec::new();
        for _ in 0..3 {
            let service = freezing_service();
            let Some(mut generator) = scene.generator(test, &service, 4) else { return };
            let open = generator.run(&slot(rate(2_000.0), 1_200)).unwrap();
            let account = service.stop();
            assert_agree(&open, &account);
            assert!(account.frozen.len() >= 2, "{account:?}");
            for (quantile, errors) in [0.95, 0.99].into_iter().zip(&mut errors) {
                let expected = expected_quantile(&open, &account.frozen, quantile);
                let latency = open.latency_ns.quantile(quantile).unwrap() as f64;
                errors.push((latency - expected) / (5e6 + 0.05 * expected));
            }
            open_p99.push(open.latency_ns.quantile(0.99).unwrap() as f64);
        }
        for errors in &errors {
            let median = stats::median(errors).unwrap();
            assert!(median.abs() <= 1.0, "{:?}: {errors:?} times the tolerance", scene.backend);
        }

        // The result of a closed-loop tool, which waits for each reply before the next request:
        // only one request meets each freeze.
        let service = freezing_service();
        let Some(mut generator) = scene.generator(test, &service, 1) else { return };
        let closed = generator.run(&slot(PacingMode::Window { outstanding: 1 }, 1_200)).unwrap();
        let (open, closed) = (stats::median(&open_p99).unwrap(), closed.latency_ns.quantile(0.99).unwrap());
        assert!(closed as f64 * 4.0 < open, "p99: {open} ns open loop, {closed} ns closed loop");
    });
}

#[test]
fn requested_rate_arrives_at_the_receiver() {
    let test = "requested_rate_arrives_at_the_receiver";
    with_each_backend(test, |scene| {
        let end = &scene.lab.links()[0].receiver;
        let attach = || XdpService::sink().shortest_payload(40).attach(&end.interface);
        let sink = match scene.lab.receiver().run(attach).unwrap() {
            Ok(sink) => sink,
            Err(why) if !rustix::process::geteuid().is_root() => return skip(test, why.to_string()),
            Err(why) => panic!("{why}"),
        };
        let Some(mut generator) = scene.start(test, scene.options((end.ipv4[0], 7).into(), 16)) else {
            return;
        };
        for per_second in [1_000.0, 10_000.0, 50_000.0] {
            let mut errors = Vec::new();
            while errors.len() < ATTEMPTS && !is_median_within(&errors, 0.001) {
                let before = sink.account().unwrap().received;
                let slot = LoadSlot { drain: Duration::from_millis(1), ..slot(rate(per_second), 400) };
                let outcome = generator.run(&slot).unwrap();
                let received = sink.account().unwrap().received - before;
                assert_eq!(received + outcome.self_watch.refused_by_link, outcome.sent, "{outcome:?}");
                assert!(outcome.bursts.max_requests >= outcome.bursts.median_requests);
                let expected = per_second * outcome.duration.as_secs_f64();
                errors.push((outcome.sent as f64 / expected - 1.0).abs());
            }
            assert!(
                is_median_within(&errors, 0.001),
                "{:?} at {per_second}/s: off by {errors:?}",
                scene.backend
            );
        }
    });
}
