//! How many requests the guard may admit: what workers tell it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sys::guard::Mapped;
use crate::sys::stamp;

/// Who took nothing for so long does not run, or is stuck in its service: what waits for it does not keep others from theirs.
const STUCK_NS: u64 = 20_000_000;

/// A worker that waits for a request.
const WAITING: u64 = 0;

/// What all workers of a server tell its guard's program.
#[derive(Debug)]
pub(crate) struct Credit {
    state: Mapped,
    limit: u64,
    /// When each worker last took requests, in nanoseconds.
    taking: Box<[Taking]>,
}

/// Of one worker, apart from the others'.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Taking(AtomicU64);

impl Credit {
    /// At the start `limit` may wait for so many workers.
    pub(super) fn new(state: Mapped, limit: u32, workers: usize) -> Self {
        let taking = (0..workers).map(|_| Taking::default()).collect();
        let credit = Self { state, limit: limit.into(), taking };
        credit.start_anew();
        credit
    }

    /// How many may wait.
    pub(super) fn limit(&self) -> u32 {
        u32::try_from(self.limit).unwrap_or(u32::MAX)
    }

    fn ceiling(&self) -> u64 {
        self.state.admitted.load(Relaxed).wrapping_add(self.limit)
    }

    /// Nothing waits: packets that were admitted and did not arrive are forgotten.
    fn start_anew(&self) {
        self.state.granted.fetch_max(self.ceiling(), Relaxed);
    }

    fn taken(&self, count: usize) {
        let ceiling = self.ceiling();
        let _ = self.state.granted.fetch_update(Relaxed, Relaxed, |granted| {
            // What came while the program let everything through was taken without having been admitted.
            Some((granted.wrapping_add(count as u64)).min(ceiling).max(granted))
        });
    }
}

/// One worker's part of it.
#[derive(Debug)]
pub(crate) struct Till {
    credit: Arc<Credit>,
    worker: usize,
}

impl Till {
    pub(crate) fn new(credit: Arc<Credit>, worker: usize) -> Self {
        Self { credit, worker }
    }

    /// The worker took so many requests, all there were for it if `all`.
    pub(super) fn took(&self, count: usize, all: bool) {
        let now_ns = stamp::monotonic_ns().max(1);
        self.note(now_ns);
        // Else another worker's requests may wait, which are not to be forgotten.
        if all && !self.others_take(now_ns) {
            self.credit.start_anew();
        } else {
            self.credit.taken(count);
        }
    }

    /// The worker is about to wait for a request.
    pub(super) fn waits(&self) {
        self.note(WAITING);
    }

    fn note(&self, what: u64) {
        if let Some(Taking(own)) = self.credit.taking.get(self.worker) {
            own.store(what, Relaxed);
        }
    }

    fn others_take(&self, now_ns: u64) -> bool {
        let takes = |taking: &Taking| match taking.0.load(Relaxed) {
            WAITING => false,
            last => now_ns.saturating_sub(last) < STUCK_NS,
        };
        let others = self.credit.taking.iter().enumerate().filter(|(worker, _)| *worker != self.worker);
        others.map(|(_, taking)| taking).any(takes)
    }
}

impl Drop for Till {
    /// Also of a worker that panicked.
    fn drop(&mut self) {
        self.waits();
    }
}
