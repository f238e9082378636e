//! Replies that change places.

use std::collections::HashMap;

use socket2::SockAddr;

use crate::reflector::faults::FaultCounter;
use crate::reflector::outbox::PendingReply;

/// How long a reply waits for the one it changes places with, ns.
const PATIENCE_NS: u64 = 100_000_000;

/// Swaps every n-th pair of each source: the first waits for the second and leaves behind it.
#[derive(Debug)]
pub(crate) struct PairSwapper {
    every: FaultCounter,
    sources: HashMap<SockAddr, SwapSource>,
}

#[derive(Debug)]
struct SwapSource {
    every: FaultCounter,
    /// Whether the next is the second of a pair.
    second: bool,
    held: Option<PendingReply>,
}

impl PairSwapper {
    pub(crate) fn new(every: FaultCounter) -> Self {
        PairSwapper { every, sources: HashMap::new() }
    }

    /// Takes a reply; passes replies that may leave to `leave`, in their order. Returns whether a
    /// pair was swapped.
    pub(crate) fn pass(&mut self, mut reply: PendingReply, mut leave: impl FnMut(PendingReply)) -> bool {
        let source = self.sources.entry(reply.to.clone()).or_insert_with(|| SwapSource {
            every: self.every.clone(),
            second: false,
            held: None,
        });
        let second = source.second;
        source.second = !second;
        if !second && source.every.is_due() {
            reply.due_ns += PATIENCE_NS;
            source.held = Some(reply);
            return false;
        }
        let due_ns = reply.due_ns;
        leave(reply);
        let Some(mut held) = source.held.take() else { return false };
        held.due_ns = due_ns;
        leave(held);
        true
    }

    /// When the first reply that waits will have waited long enough.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.sources.values().filter_map(|source| Some(source.held.as_ref()?.due_ns)).min()
    }

    // Releases replies that have waited too long at `now_ns`, without a partner.
    pub(crate) fn release(&mut self, now_ns: u64, mut leave: impl FnMut(PendingReply)) {
        for source in self.sources.values_mut() {
            if source.held.as_ref().is_some_and(|held| held.due_ns <= now_ns) {
                // The pair is over: the next is a first again.
                source.second = false;
                source.held.take().into_iter().for_each(&mut leave);
            }
        }
    }
}
