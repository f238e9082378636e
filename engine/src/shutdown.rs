//! The end of a server: the request to stop, and what a worker does from then on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The request to stop, which all workers share.
#[derive(Debug)]
pub(crate) struct StopSignal {
    requested: AtomicBool,
    drain: Duration,
}

impl StopSignal {
    pub(crate) fn new(drain: Duration) -> Self {
        // 136 years: the deadline of a longer time could not be an `Instant`.
        Self { requested: AtomicBool::new(false), drain: drain.min(Duration::from_secs(u32::MAX.into())) }
    }

    /// Requests the stop. Shut down the sockets to wake workers that receive, and unpark those that wait for a restart.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Release);
    }

    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Waits for `pause` or the request to stop; returns whether there is one.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let deadline = Instant::now() + pause;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if self.is_requested() || remaining.is_zero() {
                return self.is_requested();
            }
            thread::park_timeout(remaining);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerPhase {
    /// Wait for requests and answer them.
    Serve,
    /// Answer the queued requests, without waiting.
    Drain,
    /// Return.
    End,
}

/// One worker's view of [`StopSignal`].
pub(crate) struct Shutdown<'a> {
    stop: &'a StopSignal,
    /// The end of draining; set when it begins.
    deadline: Option<Instant>,
    empty: bool,
}

impl<'a> Shutdown<'a> {
    pub(crate) fn new(stop: &'a StopSignal) -> Self {
        Self { stop, deadline: None, empty: false }
    }

    /// The next phase. A load and a branch while serving.
    #[inline]
    pub(crate) fn phase(&mut self) -> WorkerPhase {
        if self.deadline.is_none() && !self.stop.is_requested() {
            return WorkerPhase::Serve;
        }
        self.drain()
    }

    // Runs once per worker, so it stays out of the loop.
    #[cold]
    fn drain(&mut self) -> WorkerPhase {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.stop.drain);
        if self.empty || now > deadline { WorkerPhase::End } else { WorkerPhase::Drain }
    }

    /// The socket was shut down.
    #[cold]
    pub(crate) fn on_wake(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + self.stop.drain);
    }

    /// The queue is empty. While serving, this is a receive timeout that the owner of the socket set (`SO_RCVTIMEO`).
    #[cold]
    pub(crate) fn on_empty(&mut self) {
        self.empty = self.deadline.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_drain_limit_drains() {
        let stop = StopSignal::new(Duration::MAX);
        stop.request();
        assert_eq!(Shutdown::new(&stop).phase(), WorkerPhase::Drain);
    }
}
