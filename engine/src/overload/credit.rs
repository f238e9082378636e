//! The number of requests that the guard may admit, from the rates of the workers.
//!
//! A limit of the wait is converted to a number of requests by the rate of a worker. Each worker measures its rate while it is
//! busy: from one batch to the next, or to an empty queue. Sleep does not count, because the rate says how fast waiting
//! requests are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sys::guard::MappedGuardState;
use crate::sys::stamp;

// A worker that took nothing for this long does not run, or its service is stuck. Requests that wait for it do not limit
// other workers.
const STUCK_NS: u64 = 20_000_000;

/// `took_ns` of a worker that waits for a request.
const WAITING: u64 = 0;

// Requests that may wait for a worker that has not served yet: a batch.
const FIRST_REQUESTS: u64 = 64;

// Weight of `FIRST_REQUESTS` in the first measurement, nanoseconds.
const FIRST_NS: f64 = 1e6;

// The rate is the mean over this much busy time to twice as much, nanoseconds.
const RATE_WINDOW_NS: f64 = 10e6;

// While one worker is overloaded, an idle worker keeps this part of its allowance.
const IDLE_PART: u64 = 8;

/// The state that the workers of a server share with the guard's program.
#[derive(Debug)]
pub(crate) struct AdmissionCredit {
    state: MappedGuardState,
    wait_ns: u64,
    /// Requests that the smallest receive buffer holds, and requests that all buffers hold
    /// together.
    room: u64,
    room_of_all: u64,
    workers: Box<[WorkerState]>,
}

/// The state of one worker, in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerState {
    // When it last took requests, nanoseconds.
    took_ns: AtomicU64,
    /// Requests that may wait for it.
    allowance: AtomicU64,
}

impl AdmissionCredit {
    pub(super) fn new(state: MappedGuardState, wait: Duration, rooms: &[u64], workers: usize) -> Self {
        let room = rooms.iter().copied().min().unwrap_or(1);
        let new_worker = || WorkerState {
            took_ns: AtomicU64::new(WAITING),
            allowance: AtomicU64::new(FIRST_REQUESTS.min(room)),
        };
        let credit = Self {
            state,
            wait_ns: u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX).max(1),
            room,
            room_of_all: rooms.iter().sum(),
            workers: (0..workers).map(|_| new_worker()).collect(),
        };
        // Not 0, from which the program starts, so that it counts from its first refusal.
        credit.state.taken.store(1, Relaxed);
        credit.reset();
        credit
    }

    pub(super) fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_ns)
    }

    /// Requests that may wait now.
    pub(super) fn limit(&self) -> u32 {
        u32::try_from(self.state.limit.load(Relaxed)).unwrap_or(u32::MAX)
    }

    /// Sets the number of requests that may wait; returns the new total of requests that may be admitted.
    fn set_limit(&self, limit: u64) -> u64 {
        let limit = limit.clamp(1, self.room_of_all.max(1));
        self.state.limit.store(limit, Relaxed);
        self.state.admitted.load(Relaxed).wrapping_add(limit)
    }

    fn allowances(&self) -> impl Iterator<Item = u64> {
        self.workers.iter().map(|worker| worker.allowance.load(Relaxed))
    }

    /// No request waits: forgets packets that were admitted and did not arrive.
    fn reset(&self) {
        self.state.granted.fetch_max(self.set_limit(self.allowances().sum()), Relaxed);
    }

    fn add_taken(&self, count: usize, limit: u64) {
        let ceiling = self.set_limit(limit);
        let _ = self.state.granted.fetch_update(Relaxed, Relaxed, |granted| {
            // Requests that arrived while the program passed everything were taken without being admitted.
            Some((granted.wrapping_add(count as u64)).min(ceiling).max(granted))
        });
    }
}

/// The rate at which a worker takes requests while it is busy.
#[derive(Debug)]
struct ServiceRate {
    requests: f64,
    busy_ns: f64,
    /// Start and size of the batch at hand.
    batch: Option<(u64, usize)>,
}

impl ServiceRate {
    fn new(wait_ns: u64) -> Self {
        Self { requests: FIRST_REQUESTS as f64 * FIRST_NS / wait_ns as f64, busy_ns: FIRST_NS, batch: None }
    }

    /// Records the end of the batch at hand.
    fn end_batch(&mut self, now_ns: u64) {
        let Some((since_ns, count)) = self.batch.take() else { return };
        self.requests += count as f64;
        self.busy_ns += now_ns.saturating_sub(since_ns).max(1) as f64;
        if self.busy_ns > 2.0 * RATE_WINDOW_NS {
            // One long batch has the same weight as several short ones of the same time.
            let kept_share = RATE_WINDOW_NS / self.busy_ns;
            self.requests *= kept_share;
            self.busy_ns *= kept_share;
        }
    }

    // Requests that the worker takes in this time.
    fn requests_in(&self, wait_ns: u64) -> u64 {
        (self.requests * wait_ns as f64 / self.busy_ns).round() as u64
    }
}

#[derive(Debug)]
pub(crate) struct WorkerCredit {
    credit: Arc<AdmissionCredit>,
    worker: usize,
    rate: ServiceRate,
}

impl WorkerCredit {
    pub(crate) fn new(credit: Arc<AdmissionCredit>, worker: usize) -> Self {
        let rate = ServiceRate::new(credit.wait_ns);
        Self { credit, worker, rate }
    }

    /// The worker took `count` requests; `took_all`: none are left in its socket.
    pub(super) fn record_taken(&mut self, count: usize, took_all: bool) {
        let now_ns = stamp::precise_ns().max(1);
        self.rate.end_batch(now_ns);
        if count > 0 {
            self.rate.batch = Some((now_ns, count));
        }
        let Self { credit, worker, rate } = self;
        let Some(own_state) = credit.workers.get(*worker) else { return };
        own_state.took_ns.store(now_ns, Relaxed);
        // The replies of a batch leave together, so the batch at hand counts, too.
        let requests_in_wait = rate.requests_in(credit.wait_ns);
        let allowance =
            requests_in_wait.saturating_sub(count as u64).max(requests_in_wait / 2).clamp(1, credit.room);
        own_state.allowance.store(allowance, Relaxed);
        credit.state.taken.fetch_add(count as u64, Relaxed);
        // Otherwise requests may wait for another worker, which must not be forgotten.
        if took_all && !self.other_workers(now_ns).any(|(is_taking, _)| is_taking) {
            self.credit.reset();
            return;
        }
        // More requests wait for this worker: it must not use up the allowance of idle workers.
        let others = self.other_workers(now_ns).map(|(is_taking, allowance)| match is_taking || took_all {
            true => allowance,
            false => allowance.div_ceil(IDLE_PART),
        });
        let limit = allowance + others.sum::<u64>();
        self.credit.add_taken(count, limit);
    }

    /// The worker is about to wait for a request.
    pub(super) fn mark_waiting(&mut self) {
        if self.rate.batch.is_some() {
            self.rate.end_batch(stamp::precise_ns());
        }
        if let Some(own_state) = self.credit.workers.get(self.worker) {
            own_state.took_ns.store(WAITING, Relaxed);
        }
    }

    /// Whether each other worker takes requests, and its allowance.
    fn other_workers(&self, now_ns: u64) -> impl Iterator<Item = (bool, u64)> {
        let others = self.credit.workers.iter().enumerate().filter(|(worker, _)| *worker != self.worker);
        others.map(move |(_, worker)| {
            let is_taking = match worker.took_ns.load(Relaxed) {
                WAITING => false,
                last_ns => now_ns.saturating_sub(last_ns) < STUCK_NS,
            };
            (is_taking, worker.allowance.load(Relaxed))
        })
    }
}

impl Drop for WorkerCredit {
    /// Also of a worker that panicked.
    fn drop(&mut self) {
        self.mark_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_NS: u64 = 5_000_000;

    /// The allowance of a worker after this work, in batches of this duration.
    fn requests(rate: &mut ServiceRate, batches: u64, count: usize, each_ns: u64) -> u64 {
        for batch in 0..batches {
            rate.batch = Some((batch * each_ns * 10, count));
            rate.end_batch(batch * each_ns * 10 + each_ns);
        }
        rate.requests_in(WAIT_NS)
    }

    #[test]
    fn allowance_equals_requests_served_within_the_wait() {
        // A request in 2, 25 and 1000 us, however long the worker slept in between.
        for (cost_ns, expected) in [(2_000, 2500), (25_000, 200), (1_000_000, 5)] {
            let mut rate = ServiceRate::new(WAIT_NS);
            let allowance = requests(&mut rate, 64_000_000 / (cost_ns * 64) + 1, 64, cost_ns * 64);
            assert!(allowance.abs_diff(expected) <= 1 + expected / 5, "{cost_ns} ns: {allowance}");
        }
    }

    #[test]
    fn new_workers_get_the_initial_allowance() {
        assert_eq!(ServiceRate::new(WAIT_NS).requests_in(WAIT_NS), FIRST_REQUESTS);
    }

    #[test]
    fn allowance_drops_within_4_batches_and_recovers_within_400() {
        let mut rate = ServiceRate::new(WAIT_NS);
        requests(&mut rate, 1000, 64, 128_000);
        let slow = requests(&mut rate, 4, 64, 64_000_000);
        assert!(slow <= 10, "{slow}");
        let fast = requests(&mut rate, 400, 64, 128_000);
        assert!((2000..=2500).contains(&fast), "{fast}");
    }
}
