//! Looking for a while: what the threads do, sampled, and meanwhile where datagrams land.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_host::landing::DeliveryReport;
use linerate_host::stage::socket::ServiceSockets;
use linerate_host::stage::thread::{ThreadSampling, ThreadSightings};
use linerate_host::{Host, Known};

use super::ObservationOptions;

/// Samples are at least this far apart.
const SHORTEST: Duration = Duration::from_millis(5);

/// They take at most one part in this many of the time, however many threads there are.
const SHARE: u32 = 20;

/// As many ports as are looked at together.
const PORTS: usize = 16;

/// How often it is asked whether to stop.
const TICK: Duration = Duration::from_millis(20);

pub(super) struct ObservedActivity {
    pub(super) threads: Vec<ThreadSightings>,
    pub(super) samples: u32,
    pub(super) lasted: Duration,
    pub(super) landings: Known<DeliveryReport>,
}

/// Looks for as long as `look` says, or until `stop`; at least one sample is taken.
pub(super) fn look(
    host: &Host,
    services: &[ServiceSockets],
    ports: &[u16],
    look: ObservationOptions,
    stop: &dyn Fn() -> bool,
) -> ObservedActivity {
    let began = Instant::now();
    let done = AtomicBool::new(false);
    let sampling = || {
        let mut sampling = ThreadSampling::new(host, services);
        loop {
            let at = Instant::now();
            sampling.take();
            if done.load(Ordering::Relaxed) {
                return sampling;
            }
            let pause =
                SHORTEST.max(at.elapsed() * (SHARE - 1)).min(look.duration.saturating_sub(began.elapsed()));
            std::thread::sleep(pause.max(Duration::from_micros(100)));
        }
    };
    // Only the datagrams are looked at by the calling thread, since `stop` is its own.
    let (sampling, landings) = std::thread::scope(|scope| {
        let sampling = scope.spawn(sampling);
        let landings = land(host, ports, look, stop);
        while began.elapsed() < look.duration && !stop() {
            std::thread::sleep(TICK.min(look.duration.saturating_sub(began.elapsed())));
        }
        done.store(true, Ordering::Relaxed);
        let sampling = sampling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sampling, landings)
    });
    ObservedActivity {
        samples: sampling.samples(),
        threads: sampling.threads(),
        lasted: began.elapsed(),
        landings,
    }
}

fn land(
    host: &Host,
    ports: &[u16],
    look: ObservationOptions,
    stop: &dyn Fn() -> bool,
) -> Known<DeliveryReport> {
    match ports {
        _ if !look.datagrams => Known::unknown("where datagrams land was not looked at"),
        [] => Known::unknown("it has no UDP socket"),
        ports => {
            let ports = ports.get(..PORTS).unwrap_or(ports);
            DeliveryReport::look(host, ports, look.duration, stop).into()
        }
    }
}
