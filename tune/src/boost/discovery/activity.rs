//! Observes a server for a time: samples its threads, and traces the delivery of datagrams
//! meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_host::delivery::DeliveryReport;
use linerate_host::stage::socket::ServiceSockets;
use linerate_host::stage::thread::{ThreadSampling, ThreadSightings};
use linerate_host::{Host, Known};

use super::ObservationOptions;

/// Shortest time between two samples.
const SHORTEST: Duration = Duration::from_millis(5);

/// Samples use at most one part in this number of the time, whatever the number of threads.
const SHARE: u32 = 20;

/// Most ports whose datagrams are traced together.
const PORTS: usize = 16;

/// Time between two calls of `stop`.
const TICK: Duration = Duration::from_millis(20);

pub(super) struct ObservedActivity {
    pub(super) threads: Vec<ThreadSightings>,
    pub(super) samples: u32,
    pub(super) lasted: Duration,
    pub(super) delivery: Known<DeliveryReport>,
}

/// Observes for the duration in `options`, or until `stop` returns true. Takes at least one sample.
pub(super) fn observe(
    host: &Host,
    services: &[ServiceSockets],
    ports: &[u16],
    options: ObservationOptions,
    stop: &dyn Fn() -> bool,
) -> ObservedActivity {
    let start = Instant::now();
    let done = AtomicBool::new(false);
    let sample_until_done = || {
        let mut sampling = ThreadSampling::new(host, services);
        loop {
            let sample_start = Instant::now();
            sampling.take_sample();
            if done.load(Ordering::Relaxed) {
                return sampling;
            }
            // The end of the observation interrupts it.
            std::thread::park_timeout(SHORTEST.max(sample_start.elapsed() * (SHARE - 1)));
        }
    };
    // Samples are taken in another thread, because `stop` can be called only in this one.
    let (sampling, delivery) = std::thread::scope(|scope| {
        let sampling = scope.spawn(sample_until_done);
        let delivery = observe_delivery(host, ports, options, stop);
        while start.elapsed() < options.duration && !stop() {
            std::thread::sleep(TICK.min(options.duration.saturating_sub(start.elapsed())));
        }
        done.store(true, Ordering::Relaxed);
        sampling.thread().unpark();
        let sampling = sampling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sampling, delivery)
    });
    ObservedActivity {
        samples: sampling.samples(),
        threads: sampling.threads(),
        lasted: start.elapsed(),
        delivery,
    }
}

fn observe_delivery(
    host: &Host,
    ports: &[u16],
    options: ObservationOptions,
    stop: &dyn Fn() -> bool,
) -> Known<DeliveryReport> {
    match ports {
        _ if !options.datagrams => Known::unknown("the delivery of datagrams was not observed"),
        [] => Known::unknown("it has no UDP socket"),
        ports => {
            let ports = ports.get(..PORTS).unwrap_or(ports);
            DeliveryReport::observe(host, ports, options.duration, stop).into()
        }
    }
}
