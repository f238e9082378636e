//! The fate of each request: losses by counter, and differences between counters on the path.

use std::fmt;
use std::ops::AddAssign;

use linerate_load::SlotOutcome;

use super::counters::PathCounters;
use super::event::SoakEvent;

// Packets that a queue of a veth device holds, including the packets of one poll
// (drivers/net/veth.c of Linux 6.18: `VETH_RING_SIZE`; `NAPI_POLL_WEIGHT`). `veth_close` frees them
// without counting.
const IN_A_QUEUE: i64 = 256 + 64;

/// Requests of a round, in their sender's counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundLoad {
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// Requests that were refused because the queue of the wire was full.
    pub(super) refused: u64,
}

impl RoundLoad {
    /// The counts of a slot, including late answers to the slot before.
    pub(super) fn from_outcome(outcome: &SlotOutcome) -> Self {
        Self {
            sent: outcome.sent,
            answered: outcome.answered + outcome.late,
            refused: outcome.self_watch.refused_by_link,
        }
    }
}

impl AddAssign for RoundLoad {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.refused += other.refused;
    }
}

/// Losses with a counter.
const NAMED: [&str; 11] = [
    "refused by the wire (the queue behind it full)",
    "lost by the device",
    "lost by IP",
    "no socket at the port",
    "receive buffer full",
    "lost by UDP",
    "with a worker's panic",
    "reply not sent (the server's count)",
    "reply discarded by IP",
    "reply without a link address to go to",
    "reply refused by the wire",
];

// Differences between consecutive counters on the path.
const GAPS: [AccountingGap; 4] = [
    AccountingGap {
        what: "freed with the device's queue as it went down",
        when_down: IN_A_QUEUE,
        retried: false,
    },
    AccountingGap { what: "between the stack and the server", when_down: 0, retried: false },
    AccountingGap { what: "within the server", when_down: 0, retried: false },
    AccountingGap { what: "replies freed as the interface went down", when_down: IN_A_QUEUE, retried: true },
];

struct AccountingGap {
    what: &'static str,
    // Largest number of uncounted losses per device queue when an interface goes down. It is 0
    // while the link is up.
    when_down: i64,
    // Whether the stack may count one reply per worker twice: `sendmmsg` returns the number of
    // replies before a failed reply without the reason, so the worker sends the failed reply again
    // to get the error.
    retried: bool,
}

// Requests by their fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RequestFates {
    sent: u64,
    answered: u64,
    named: [u64; NAMED.len()],
    gaps: [i64; GAPS.len()],
}

// The fates of all requests, separately for rounds with the link up and with the link down.
#[derive(Debug)]
pub(super) struct SoakAccounting {
    workers: u32,
    up: RequestFates,
    down: RequestFates,
    /// Rounds that did not balance, as messages.
    wrong: Vec<String>,
}

impl SoakAccounting {
    pub(super) fn new(workers: u32) -> Self {
        Self { workers, up: RequestFates::default(), down: RequestFates::default(), wrong: Vec::new() }
    }

    /// Adds a round.
    pub(super) fn add(
        &mut self,
        event: SoakEvent,
        load: RoundLoad,
        extra_requests: RoundLoad,
        before: &PathCounters,
        after: &PathCounters,
    ) {
        let is_link_down = event == SoakEvent::Flap;
        let request_fates = RequestFates::from_counters(load, extra_requests, before, after);
        let workers = if is_link_down { self.workers } else { 0 };
        if !request_fates.is_within_gaps(is_link_down, workers) {
            self.wrong.push(format!("{event}: {request_fates}"));
        }
        let total = if is_link_down { &mut self.down } else { &mut self.up };
        total.add(&request_fates);
    }

    /// Whether every request of every round has a fate.
    pub(super) fn is_balanced(&self) -> bool {
        self.up.sent + self.down.sent > 0 && self.wrong.is_empty()
    }
}

impl RequestFates {
    fn from_counters(
        load: RoundLoad,
        extra_requests: RoundLoad,
        before: &PathCounters,
        after: &PathCounters,
    ) -> Self {
        let increase = |figure: fn(&PathCounters) -> u64| figure(after).saturating_sub(figure(before));
        let received = increase(|counters| counters.server.received);
        let frames = increase(|counters| counters.server.frames);
        let replied = increase(|counters| counters.server.answered);
        let unsent = increase(|counters| counters.server.send_failed.total());
        let all_panicked = increase(|counters| counters.server.panicked);
        let stack = increase(|counters| counters.stack_received);
        let refused = load.refused;
        let device = increase(|counters| counters.device_lost);
        let ip = increase(|counters| counters.ip_lost);
        let no_port = increase(|counters| counters.no_port);
        let buffer_full = increase(|counters| counters.buffer_full);
        let udp = increase(|counters| counters.udp_errors);
        // The server counts replies that the stack refused to send.
        let discarded = increase(|counters| counters.replies_discarded).saturating_sub(unsent);
        let unresolved = increase(|counters| counters.unresolved);
        let wire = increase(|counters| counters.wire_full);
        // Extra requests without an answer made a worker panic.
        let panicked = all_panicked.saturating_sub(extra_requests.sent - extra_requests.answered);
        let counted_losses =
            [refused, device, ip, no_port, buffer_full, udp, panicked, unsent, discarded, unresolved, wire];
        let gaps = [
            difference(load.sent + extra_requests.sent, refused + device + frames + stack),
            difference(stack, ip + no_port + buffer_full + udp + received.saturating_sub(frames)),
            difference(received, replied + all_panicked + unsent),
            difference(replied, discarded + unresolved + wire + extra_requests.answered + load.answered),
        ];
        Self { sent: load.sent, answered: load.answered, named: counted_losses, gaps }
    }

    /// Whether all losses are allowed. `retrying` workers sent while the link went down.
    fn is_within_gaps(&self, is_link_down: bool, retrying: u32) -> bool {
        GAPS.iter().zip(self.gaps).all(|(gap, value)| {
            let max_gap = if is_link_down { gap.when_down } else { 0 };
            let min_gap = if gap.retried { -i64::from(retrying) } else { 0 };
            (min_gap..=max_gap).contains(&value)
        })
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.named.iter_mut().zip(other.named).for_each(|(sum, count)| *sum += count);
        self.gaps.iter_mut().zip(other.gaps).for_each(|(sum, count)| *sum += count);
    }
}

fn difference(expected: u64, accounted: u64) -> i64 {
    expected.cast_signed() - accounted.cast_signed()
}

impl fmt::Display for SoakAccounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "with the link up: {}", self.up)?;
        writeln!(f, "when it went down and up: {}", self.down)?;
        self.wrong.iter().try_for_each(|message| writeln!(f, "does not balance: {message}"))
    }
}

impl fmt::Display for RequestFates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} answered", self.sent, self.answered)?;
        for (what, count) in NAMED.iter().zip(self.named).filter(|(_, count)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        // Differences that no counter explains; negative if more requests left a point than came.
        for (gap, count) in GAPS.iter().zip(self.gaps).filter(|(_, count)| *count != 0) {
            write!(f, ", {count} {}", gap.what)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: RoundLoad = RoundLoad { sent: 0, answered: 0, refused: 0 };

    fn counters(stack: u64, received: u64, answered: u64) -> PathCounters {
        let mut counters = PathCounters { stack_received: stack, ..PathCounters::default() };
        (counters.server.received, counters.server.answered) = (received, answered);
        counters
    }

    /// Whether a round with these requests and answers balances, and its description.
    fn judge(
        event: SoakEvent,
        [sent, answered]: [u64; 2],
        extra: RoundLoad,
        after: &PathCounters,
    ) -> (bool, String) {
        let mut accounting = SoakAccounting::new(2);
        let load = RoundLoad { sent, answered, refused: 0 };
        accounting.add(event, load, extra, &PathCounters::default(), after);
        (accounting.is_balanced(), accounting.to_string())
    }

    fn balances(event: SoakEvent, load: [u64; 2], after: &PathCounters) -> bool {
        judge(event, load, NONE, after).0
    }

    #[test]
    fn round_balances_only_if_every_request_is_answered_once() {
        use SoakEvent::{Flap, Nothing};
        assert!(balances(Nothing, [100, 100], &counters(100, 100, 100)));
        assert!(!balances(Nothing, [0, 0], &counters(0, 0, 0)));
        for after in
            [counters(99, 99, 99), counters(100, 99, 99), counters(100, 100, 99), counters(100, 100, 100)]
        {
            let (balanced, text) = judge(Nothing, [100, 99], NONE, &after);
            assert!(!balanced && text.contains("does not balance"), "{text}");
        }
        assert!(!balances(Nothing, [100, 101], &counters(100, 100, 100)));
        assert!(!balances(Flap, [100, 103], &counters(100, 100, 100)));
    }

    #[test]
    fn losses_with_a_counter_are_named() {
        let full = PathCounters { buffer_full: 3, ..counters(100, 97, 97) };
        let (balanced, text) = judge(SoakEvent::Nothing, [100, 97], NONE, &full);
        assert!(balanced && text.contains("3 receive buffer full"), "{text}");
        let unresolved = PathCounters { unresolved: 40, ..counters(100, 100, 100) };
        let (balanced, text) = judge(SoakEvent::Flap, [100, 60], NONE, &unresolved);
        assert!(balanced && text.contains("40 reply without a link address"), "{text}");
    }

    #[test]
    fn link_flap_allows_one_extra_discarded_reply_per_worker() {
        let balances_with_discarded = |event: SoakEvent, replies: u64| {
            let mut after = counters(100, 100, 60);
            after.server.send_failed.unreachable = 40;
            after.replies_discarded = replies;
            balances(event, [100, 60], &after)
        };
        assert!(
            balances_with_discarded(SoakEvent::Flap, 42)
                && !balances_with_discarded(SoakEvent::Flap, 43)
                && !balances_with_discarded(SoakEvent::Nothing, 42)
        );
    }

    #[test]
    fn link_flap_may_lose_at_most_the_device_queue() {
        let balances_with_lost = |count: u64| {
            let rest = 1_000 - count;
            balances(SoakEvent::Flap, [1_000, rest], &counters(rest, rest, rest))
        };
        assert!(balances_with_lost(320) && !balances_with_lost(321));
        // Between the stack and the server nothing may be lost.
        assert!(!balances(SoakEvent::Flap, [1_000, 999], &counters(1_000, 999, 999)));
    }

    #[test]
    fn event_requests_are_not_counted_as_load() {
        let mut poisoned = counters(101, 101, 90);
        poisoned.server.panicked = 11;
        let poison = RoundLoad { sent: 1, ..NONE };
        let (balanced, text) = judge(SoakEvent::Panic, [100, 90], poison, &poisoned);
        assert!(balanced && text.contains("10 with a worker's panic"), "{text}");
        let other_port = RoundLoad { sent: 1, answered: 1, ..NONE };
        assert!(judge(SoakEvent::Port, [100, 100], other_port, &counters(101, 101, 101)).0);
    }
}
