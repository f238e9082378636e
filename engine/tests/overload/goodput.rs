//! Goodput far above capacity, with an overload policy and without it, in a lab.
//!
//! Each request costs the service a fixed CPU time, and the softirqs run on the same CPU. Without
//! the policy, requests wait in the receive buffer for longer than the client waits for a reply; a
//! slower machine makes the wait longer. With the policy, few requests wait. Therefore both results
//! also hold on a busy machine, and they show the effect of the policy.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_engine::{
    Action, OverloadPolicy, Request, RunningServer, Server, Service, WorkerPinning, XdpGuard,
};
use linerate_lab::Lab;
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

use crate::guard::{client_at, lab};
use crate::support::{EngineTestResult, cpus, on_cpu, skip};

/// CPU time of the worker per request.
const COST: Duration = Duration::from_micros(50);

/// The client discards replies that take longer than this.
const DEADLINE: Duration = Duration::from_millis(200);

/// The longest wait of a request with the policy: as long as the client may lose its CPU on a busy
/// machine.
const WAIT: Duration = Duration::from_millis(20);

/// Receive buffer, in bytes, of the server without a policy. It holds more requests than the server
/// answers in five deadlines: the kernel doubles the size and accounts about 770 bytes per short
/// request.
const BUFFER: usize = 8 << 20;

/// Outstanding requests while the capacity is measured: enough that the worker hardly ever sleeps,
/// and few enough that a default receive buffer holds their replies.
const WINDOW: usize = 200;

const ROUNDS: usize = 4;

/// Uses [`COST`] of CPU time per request. Counts the requests answered within [`DEADLINE`] and
/// later.
#[derive(Debug, Clone)]
struct CostlyService {
    /// The origin of the send times in requests.
    began: Instant,
    in_time: Arc<AtomicU64>,
    late: Arc<AtomicU64>,
    /// Time from sending each request until the service processed it.
    waits: Arc<Mutex<Vec<Duration>>>,
}

impl Service for CostlyService {
    fn answer(&mut self, request: &Request<'_>, _: &mut [u8]) -> Action {
        let begun = cpu_time();
        while cpu_time() < begun + COST {
            std::hint::spin_loop();
        }
        let Some(sent) = request.payload().first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)) else {
            return Action::Drop;
        };
        let wait = self.began.elapsed().saturating_sub(Duration::from_nanos(sent));
        if wait <= DEADLINE { &self.in_time } else { &self.late }.fetch_add(1, Relaxed);
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
        Action::Echo
    }
}

impl CostlyService {
    /// The median wait since the previous call.
    fn median_wait(&self) -> Duration {
        let mut waits = std::mem::take(&mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner));
        waits.sort_unstable();
        waits.get(waits.len() / 2).copied().unwrap_or_default()
    }

    /// A request that contains the current time.
    fn request(&self) -> [u8; 8] {
        (self.began.elapsed().as_nanos() as u64).to_ne_bytes()
    }

    /// Requests answered in time per second, measured for the time `during`.
    fn rate(&self, during: Duration) -> f64 {
        let (begun, before) = (Instant::now(), self.in_time.load(Relaxed));
        std::thread::sleep(during);
        (self.in_time.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The results for one server, in requests per second.
#[derive(Debug)]
struct GoodputSample {
    /// Answered in time at a closed loop: each reply triggers the next request.
    capacity: f64,
    /// Sent in a flood, which does not wait for replies.
    offered_load: f64,
    /// Answered in time during the flood.
    goodput: f64,
    /// The median wait of a processed request during the flood.
    wait: Duration,
}

struct GoodputTestbed<'a> {
    lab: &'a Lab,
    /// The CPU of the client, and the CPU of the server and its softirqs.
    cpus: [u32; 2],
}

impl GoodputTestbed<'_> {
    /// Sets RPS so that the server's CPU processes the received packets.
    fn steer(&self) -> EngineTestResult {
        let interface = &self.lab.links()[0].receiver.interface;
        let queue = self.lab.receiver().sys_path()?.join("class/net").join(interface).join("queues/rx-0");
        std::fs::write(queue.join("rps_cpus"), format!("{:x}", 1u32 << self.cpus[1]))?;
        Ok(())
    }

    fn serve(
        &self,
        service: &CostlyService,
        overload: OverloadPolicy,
    ) -> Result<RunningServer, Box<dyn std::error::Error>> {
        let mut builder = Server::builder()
            .bind((self.lab.links()[0].receiver.ipv4[0], 0).into())
            .workers(1)
            .cpus([self.cpus[1]])
            .pinning(WorkerPinning::Own);
        if overload == OverloadPolicy::default() {
            builder = builder.receive_buffer(BUFFER);
        }
        let builder = builder.overload(overload);
        let service = service.clone();
        Ok(self.lab.receiver().run(move || builder.start(move |_| service.clone()))??)
    }

    fn measure(&self, overload: OverloadPolicy) -> Result<GoodputSample, Box<dyn std::error::Error>> {
        let service = CostlyService {
            began: Instant::now(),
            in_time: Arc::default(),
            late: Arc::default(),
            waits: Arc::default(),
        };
        let running = self.serve(&service, overload)?;
        prefer(running.thread_ids()[0])?;
        let client = client_at(self.lab, 0)?;
        client.connect(running.local_addr())?;
        let capacity = self.measure_during(
            |over| ask_in_turn(&client, &service, over),
            || {
                service.rate(Duration::from_millis(50));
                service.rate(Duration::from_millis(300))
            },
        )?;
        let sent = AtomicU64::new(0);
        let (offered_load, goodput, wait) = self.measure_during(
            |over| flood(&client, &service, &sent, over),
            || {
                // Wait until the receive buffer is full and its oldest request is late.
                service.rate(DEADLINE * 7 / 4);
                service.median_wait();
                let (begun, before) = (Instant::now(), sent.load(Relaxed));
                let goodput = service.rate(Duration::from_millis(400));
                let offered_load = (sent.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
                (offered_load, goodput, service.median_wait())
            },
        )?;
        running.stop()?;
        Ok(GoodputSample { capacity, offered_load, goodput, wait })
    }

    /// Runs `load` on the client's CPU while `measure` runs. Then sets the flag `over`, which ends
    /// `load`.
    fn measure_during<T>(
        &self,
        load: impl FnOnce(&AtomicBool) + Send,
        measure: impl FnOnce() -> T,
    ) -> std::io::Result<T> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| on_cpu(self.cpus[0], || load(&over)));
            let result = measure();
            over.store(true, Relaxed);
            sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(result)
        })
    }
}

/// Gives a thread real-time priority, so that other threads on its CPU do not affect the goodput.
fn prefer(thread: i32) -> EngineTestResult {
    let output = Command::new("chrt").args(["--fifo", "--pid", "1", &thread.to_string()]).output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

/// Keeps [`WINDOW`] requests outstanding.
fn ask_in_turn(client: &UdpSocket, service: &CostlyService, over: &AtomicBool) {
    let _ = client.set_read_timeout(Some(Duration::from_millis(100)));
    while !over.load(Relaxed) {
        for _ in 0..WINDOW {
            let _ = client.send(&service.request());
        }
        while !over.load(Relaxed) && client.recv(&mut [0; 16]).is_ok() {
            let _ = client.send(&service.request());
        }
    }
}

fn flood(client: &UdpSocket, service: &CostlyService, sent: &AtomicU64, over: &AtomicBool) {
    while !over.load(Relaxed) {
        if client.send(&service.request()).is_ok() {
            sent.fetch_add(1, Relaxed);
        }
    }
}

/// The sum of `of` over all rounds, divided by the sum of their capacities.
fn by_capacity(all: &[GoodputSample], of: fn(&GoodputSample) -> f64) -> f64 {
    all.iter().map(of).sum::<f64>() / all.iter().map(|sample| sample.capacity).sum::<f64>()
}

#[test]
fn overload_policy_preserves_goodput_at_twice_the_capacity() -> EngineTestResult {
    let test = "overload_policy_preserves_goodput_at_twice_the_capacity";
    let Some(lab) = lab(test, 1) else { return Ok(()) };
    // An RPS mask has 32 CPUs per word; this test writes one word.
    let cpus: Vec<u32> = cpus()?.into_iter().filter(|cpu| *cpu < 32).collect();
    let &[first, second, ..] = cpus.as_slice() else {
        skip(test, "requires two CPUs");
        return Ok(());
    };
    let testbed = GoodputTestbed { lab: &lab, cpus: [first, second] };
    if let Err(error) = testbed.steer() {
        skip(test, format!("RPS: {error}"));
        return Ok(());
    }
    if let Err(error) =
        on_cpu(second, || prefer(gettid().as_raw_nonzero().get()).map_err(|error| error.to_string()))?
    {
        skip(test, format!("real-time scheduling: {error}"));
        return Ok(());
    }
    let guard = XdpGuard { wait: WAIT, ..XdpGuard::default() };
    let policy = OverloadPolicy { shed_after: DEADLINE, guard: Some(guard), ..OverloadPolicy::protect() };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(testbed.measure(OverloadPolicy::default())?);
        with.push(testbed.measure(policy.clone())?);
    }
    let load = [&with, &without].map(|all| by_capacity(all, |sample| sample.offered_load));
    let [protected, unprotected] = [&with, &without].map(|all| by_capacity(all, |sample| sample.goodput));
    let summary = format!(
        "{protected:.2} of capacity at {:.1} times that {with:.0?}, without a policy {unprotected:.2} at {:.1} times {without:.0?}",
        load[0], load[1]
    );
    println!("{summary}");
    assert!(load.iter().all(|times| *times >= 2.0), "the offered load is hardly above capacity: {summary}");
    // On an idle machine, the server answers its full capacity in time.
    assert!(protected >= 0.7, "goodput with the policy is too low: {summary}");
    assert!(protected >= 2.0 * unprotected, "the policy gains too little: {summary}");
    // The guard limits the wait, whatever a request costs. A fixed limit of 1024 requests would be
    // a wait of 51 ms here.
    let mut waits: Vec<Duration> = with.iter().map(|sample| sample.wait).collect();
    waits.sort_unstable();
    let wait = waits[waits.len() / 2];
    assert!(wait <= 2 * WAIT, "requests wait too long: {wait:?} of {summary}");
    Ok(())
}
