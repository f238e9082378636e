//! The end of a slot: the wait for late replies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clock;

// After the last reply, the wait for a duplicate.
const AFTERMATH: Duration = Duration::from_millis(5);

// While replies are missing, the shortest silence that ends a drain.
const SILENCE: Duration = Duration::from_millis(50);

// A wait for stragglers; times in ns of the monotonic clock.
pub(super) struct DrainWait<'a> {
    drain_ns: u64,
    deadline_ns: u64,
    active_ns: u64,
    /// Whether only the deadline ends the wait for missing replies.
    is_whole: bool,
    /// Ends the wait when set; `None` if it ended the sending of requests before.
    cancel: Option<&'a AtomicBool>,
}

impl<'a> DrainWait<'a> {
    pub(super) fn new(drain: Duration, is_whole: bool, cancel: &'a AtomicBool) -> Self {
        let (now_ns, drain_ns) = (clock::now_ns(), clock::whole_ns(drain));
        // After a cancellation nobody waits for slow replies.
        let is_cancelled = cancel.load(Ordering::Relaxed);
        DrainWait {
            drain_ns,
            deadline_ns: now_ns + drain_ns,
            active_ns: now_ns,
            is_whole: is_whole && !is_cancelled,
            cancel: (!is_cancelled).then_some(cancel),
        }
    }

    /// Records an arrival; returns whether the time is over.
    pub(super) fn note_arrival(&mut self) -> bool {
        self.active_ns = clock::now_ns();
        self.active_ns > self.deadline_ns
    }

    // The end of the wait unless a datagram arrives before; 0 once it is cancelled. `slowest_ns`: the
    // longest latency, 0 without replies.
    pub(super) fn until_ns(&self, is_complete: bool, slowest_ns: u64) -> u64 {
        if self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return 0;
        }
        let patience_ns = if is_complete {
            clock::whole_ns(AFTERMATH).min(self.drain_ns)
        } else if self.is_whole || slowest_ns == 0 {
            // The latency may be longer than the slot.
            self.drain_ns
        } else {
            // A service that was slow before may be slow again.
            clock::whole_ns(SILENCE)
                .max(self.drain_ns / 10)
                .max(slowest_ns.saturating_mul(2).min(self.drain_ns / 4))
                .min(self.drain_ns)
        };
        self.deadline_ns.min(self.active_ns + patience_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cancellation_after_the_last_request_ends_a_drain() {
        let cancel = AtomicBool::new(false);
        let wait = DrainWait::new(Duration::from_secs(1), true, &cancel);
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(wait.until_ns(false, 0), 0);
        // In-flight requests of a slot that was cancelled are not lost.
        let wait = DrainWait::new(Duration::from_secs(1), true, &cancel);
        assert_eq!(wait.until_ns(false, 0), wait.deadline_ns);
    }

    #[test]
    fn a_silence_ends_a_drain_with_missing_replies_unless_it_is_whole() {
        let (drain, slowest_ns, cancel) = (Duration::from_secs(1), 600_000_000, AtomicBool::new(false));
        for (is_whole, is_complete, expected_ms) in
            [(false, false, 250), (true, false, 1_000), (true, true, 5)]
        {
            let wait = DrainWait::new(drain, is_whole, &cancel);
            let wait_ns = wait.until_ns(is_complete, slowest_ns) - wait.active_ns;
            assert_eq!(wait_ns, expected_ms * 1_000_000);
        }
    }
}
