//! Swaps replies.

use std::collections::HashMap;

use socket2::SockAddr;

use crate::reflector::faults::FaultCounter;
use crate::reflector::outbox::PendingReply;

/// How long a reply waits for the second reply of its pair, ns.
const PATIENCE_NS: u64 = 100_000_000;

/// Swaps every n-th pair of replies per source: the first waits for the second and is sent after
/// it.
#[derive(Debug)]
pub(crate) struct PairSwapper {
    every: FaultCounter,
    sources: HashMap<SockAddr, SwapSource>,
}

#[derive(Debug)]
struct SwapSource {
    every: FaultCounter,
    /// Whether the next reply is the second of a pair.
    second: bool,
    held: Option<PendingReply>,
}

impl PairSwapper {
    pub(crate) fn new(every: FaultCounter) -> Self {
        PairSwapper { every, sources: HashMap::new() }
    }

    /// Accepts a reply, and passes the replies that can be sent now to `send`, in order. Returns
    /// whether a pair was swapped.
    pub(crate) fn push(&mut self, mut reply: PendingReply, mut send: impl FnMut(PendingReply)) -> bool {
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
        send(reply);
        let Some(mut first_reply) = source.held.take() else { return false };
        first_reply.due_ns = due_ns;
        send(first_reply);
        true
    }

    /// The earliest time at which a waiting reply is released without a partner.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.sources.values().filter_map(|source| Some(source.held.as_ref()?.due_ns)).min()
    }

    // Releases the replies that have waited too long for a partner at `now_ns`.
    pub(crate) fn release(&mut self, now_ns: u64, mut send: impl FnMut(PendingReply)) {
        for source in self.sources.values_mut() {
            if source.held.as_ref().is_some_and(|reply| reply.due_ns <= now_ns) {
                // The pair is over: the next reply is the first of a pair again.
                source.second = false;
                source.held.take().into_iter().for_each(&mut send);
            }
        }
    }
}
