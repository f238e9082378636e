//! A generator that records the number of requests sent and replies received over time.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_lab::LabHost;

/// Requests sent and replies received up to a time.
#[derive(Debug, Clone, Copy)]
struct SteadyLoadSample {
    unix_seconds: f64,
    sent: u64,
    answered: u64,
}

/// Sends requests at a steady rate until it is dropped.
pub(super) struct SteadyLoad {
    samples: Arc<Mutex<Vec<SteadyLoadSample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SteadyLoad {
    pub(super) fn start(host: &LabHost, server: &str, per_second: u32) -> Self {
        let socket = host.run(|| UdpSocket::bind("0.0.0.0:0")).expect("the host runs").expect("a socket");
        socket.connect(server).expect("an address");
        socket.set_nonblocking(true).expect("set");
        let (samples, stop) = (Arc::<Mutex<Vec<SteadyLoadSample>>>::default(), Arc::<AtomicBool>::default());
        let (shared_samples, stop_flag) = (Arc::clone(&samples), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut now = SteadyLoadSample { unix_seconds: unix_seconds(), sent: 0, answered: 0 };
            let mut next = Instant::now();
            while !stop_flag.load(Ordering::Relaxed) {
                // After a late request the next ones catch up.
                next += Duration::from_secs(1) / per_second;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                now.sent += u64::from(socket.send(b"steady").is_ok());
                while socket.recv(&mut [0; 64]).is_ok() {
                    now.answered += 1;
                }
                now.unix_seconds = unix_seconds();
                lock_samples(&shared_samples).push(now);
            }
        });
        Self { samples, stop, thread: Some(thread) }
    }

    /// One second after the first request, in seconds since 1970.
    pub(super) fn since(&self) -> f64 {
        lock_samples(&self.samples).first().map_or(f64::INFINITY, |first| first.unix_seconds + 1.0)
    }

    pub(super) fn sent_between(&self, from: f64, to: f64) -> u64 {
        self.difference(from, to, |sample| sample.sent)
    }

    pub(super) fn answered_between(&self, from: f64, to: f64) -> u64 {
        self.difference(from, to, |sample| sample.answered)
    }

    /// Whether requests were lost: more than `IN_FLIGHT` have no reply.
    pub(super) fn lost(&self) -> bool {
        const IN_FLIGHT: u64 = 10;
        lock_samples(&self.samples).last().is_some_and(|last| last.sent > last.answered + IN_FLIGHT)
    }

    fn difference(&self, from: f64, to: f64, count: fn(&SteadyLoadSample) -> u64) -> u64 {
        let samples = lock_samples(&self.samples);
        let at = |time: f64| {
            let before = samples.partition_point(|sample| sample.unix_seconds <= time);
            before.checked_sub(1).and_then(|index| samples.get(index)).map_or(0, count)
        };
        at(to) - at(from)
    }
}

impl Drop for SteadyLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock_samples(samples: &Mutex<Vec<SteadyLoadSample>>) -> MutexGuard<'_, Vec<SteadyLoadSample>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64()
}
