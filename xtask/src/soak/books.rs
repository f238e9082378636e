//! The fate of each request: losses by counter, and differences between counters on the path.

use std::fmt;
use std::ops::AddAssign;

use linerate_load::SlotOutcome;
use serde::Serialize;

use super::counted::PathCounters;
use super::event::SoakEvent;

/// Packets that a queue of a veth device holds, with those of one poll of it (drivers/net/veth.c of Linux 6.18: `VETH_RING_SIZE`;
/// `NAPI_POLL_WEIGHT`). `veth_close` frees them without counting.
const IN_A_QUEUE: i64 = 256 + 64;

/// A round as the generator saw it, in requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundLoad {
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// The queue behind the wire was full.
    pub(super) refused: u64,
}

impl RoundLoad {
    /// A slot's, with answers that came to requests of the slot before.
    pub(super) fn of(outcome: &SlotOutcome) -> Self {
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

/// What the server got that was not of the load.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ExtraRequests {
    pub(super) received: u64,
    pub(super) answered: u64,
}

/// Losses with a counter: the name in documents, and the description.
const NAMED: [(&str, &str); 11] = [
    ("wire-full", "refused by the wire (the queue behind it full)"),
    ("device", "lost by the device"),
    ("ip", "lost by IP"),
    ("no-socket", "no socket at the port"),
    ("receive-buffer", "receive buffer full"),
    ("udp", "lost by UDP"),
    ("panic", "with a worker's panic"),
    ("reply-not-sent", "reply not sent (the server's count)"),
    ("reply-discarded", "reply discarded by IP"),
    ("reply-unresolved", "reply without a link address to go to"),
    ("reply-wire-full", "reply refused by the wire"),
];

/// Differences between what one had and the next on the way.
const GAPS: [AccountingGap; 4] = [
    AccountingGap {
        name: "device-queue",
        what: "freed with the device's queue as it went down",
        when_down: IN_A_QUEUE,
        retried: false,
    },
    AccountingGap { name: "stack", what: "between the stack and the server", when_down: 0, retried: false },
    AccountingGap { name: "server", what: "within the server", when_down: 0, retried: false },
    AccountingGap {
        name: "replies",
        what: "replies freed as the interface went down",
        when_down: IN_A_QUEUE,
        retried: true,
    },
];

struct AccountingGap {
    name: &'static str,
    what: &'static str,
    /// The most that may be lost there without being counted, in each of a device's queues, when an interface goes down.
    /// With the link up it is nothing.
    when_down: i64,
    /// Whether what went down may have been counted twice by the stack, by each worker once: `sendmmsg` tells how many replies went
    /// before one that failed, and not why it did, so that the one is sent again to learn that.
    retried: bool,
}

/// Requests by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RequestFates {
    sent: u64,
    answered: u64,
    named: [u64; NAMED.len()],
    gaps: [i64; GAPS.len()],
}

/// Requests of the rounds in which the link was up, or of those in which it went down.
#[derive(Debug, Serialize)]
pub(super) struct RoundRequests {
    link: &'static str,
    pub(super) sent: u64,
    answered: u64,
    losses: Vec<RoundLoss>,
    uncounted: Vec<RoundLoss>,
}

/// Requests that were lost at one point of the path; negative if more left the point than came.
#[derive(Debug, Serialize)]
struct RoundLoss {
    name: &'static str,
    what: &'static str,
    requests: i64,
}

/// What became of all requests: in rounds in which the link was up, and in those in which it was not.
#[derive(Debug)]
pub(super) struct SoakAccounting {
    workers: u32,
    up: RequestFates,
    down: RequestFates,
    /// Rounds that did not balance, for a person.
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
        besides: ExtraRequests,
        before: &PathCounters,
        after: &PathCounters,
    ) {
        let went_down = event == SoakEvent::Flap;
        let fates = RequestFates::of(load, besides, before, after);
        let workers = if went_down { self.workers } else { 0 };
        if !fates.balance(went_down, workers) {
            self.wrong.push(format!("{event}: {fates}"));
        }
        let sum = if went_down { &mut self.down } else { &mut self.up };
        sum.add(&fates);
    }

    /// What became of requests, as documents have it.
    pub(super) fn requests(&self) -> Vec<RoundRequests> {
        let part = |link, fates: &RequestFates| RoundRequests {
            link,
            sent: fates.sent,
            answered: fates.answered,
            losses: fates.counted(),
            uncounted: fates.uncounted(),
        };
        vec![part("up", &self.up), part("down", &self.down)]
    }

    /// Rounds that did not balance, for a person.
    pub(super) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Whether every request of every round has a fate.
    pub(super) fn balanced(&self) -> bool {
        self.up.sent + self.down.sent > 0 && self.wrong.is_empty()
    }
}

impl RequestFates {
    fn of(load: RoundLoad, besides: ExtraRequests, before: &PathCounters, after: &PathCounters) -> Self {
        let grown = |figure: fn(&PathCounters) -> u64| figure(after).saturating_sub(figure(before));
        let received = grown(|counted| counted.server.received);
        let frames = grown(|counted| counted.server.frames);
        let replied = grown(|counted| counted.server.answered);
        let unsent = grown(|counted| counted.server.send_failed.total());
        let all_panicked = grown(|counted| counted.server.panicked);
        let stack = grown(|counted| counted.stack_received);
        let refused = load.refused;
        let device = grown(|counted| counted.device_lost);
        let ip = grown(|counted| counted.ip_lost);
        let no_port = grown(|counted| counted.no_port);
        let full = grown(|counted| counted.buffer_full);
        let udp = grown(|counted| counted.udp_errors);
        // The server counts the replies whose send the stack refused.
        let discarded = grown(|counted| counted.replies_discarded).saturating_sub(unsent);
        let unresolved = grown(|counted| counted.unresolved);
        let wire = grown(|counted| counted.wire_full);
        // Other requests without an answer made a worker panic.
        let panicked = all_panicked.saturating_sub(besides.received - besides.answered);
        let named = [refused, device, ip, no_port, full, udp, panicked, unsent, discarded, unresolved, wire];
        let gaps = [
            difference(load.sent + besides.received, refused + device + frames + stack),
            difference(stack, ip + no_port + full + udp + received.saturating_sub(frames)),
            difference(received, replied + all_panicked + unsent),
            difference(replied, discarded + unresolved + wire + besides.answered + load.answered),
        ];
        Self { sent: load.sent, answered: load.answered, named, gaps }
    }

    /// Whether nothing is lost that might not be; `retrying` workers met a link that went down.
    fn balance(&self, went_down: bool, retrying: u32) -> bool {
        GAPS.iter().zip(self.gaps).all(|(gap, found)| {
            let most = if went_down { gap.when_down } else { 0 };
            let least = if gap.retried { -i64::from(retrying) } else { 0 };
            (least..=most).contains(&found)
        })
    }

    /// Losses with a counter.
    fn counted(&self) -> Vec<RoundLoss> {
        let all = NAMED.into_iter().zip(self.named).filter(|(_, count)| *count > 0);
        all.map(|((name, what), count)| RoundLoss { name, what, requests: count.cast_signed() }).collect()
    }

    /// Differences that no counter explains.
    fn uncounted(&self) -> Vec<RoundLoss> {
        let all = GAPS.iter().zip(self.gaps).filter(|(_, count)| *count != 0);
        all.map(|(gap, requests)| RoundLoss { name: gap.name, what: gap.what, requests }).collect()
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.named.iter_mut().zip(other.named).for_each(|(sum, count)| *sum += count);
        self.gaps.iter_mut().zip(other.gaps).for_each(|(sum, count)| *sum += count);
    }
}

fn difference(had: u64, accounted: u64) -> i64 {
    had.cast_signed() - accounted.cast_signed()
}

impl fmt::Display for SoakAccounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "with the link up: {}", self.up)?;
        writeln!(f, "when it went down and up: {}", self.down)?;
        self.wrong.iter().try_for_each(|wrong| writeln!(f, "does not balance: {wrong}"))
    }
}

impl fmt::Display for RequestFates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} answered", self.sent, self.answered)?;
        for loss in self.counted().into_iter().chain(self.uncounted()) {
            write!(f, ", {} {}", loss.requests, loss.what)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(stack: u64, received: u64, answered: u64) -> PathCounters {
        let mut counted = PathCounters { stack_received: stack, ..PathCounters::default() };
        counted.server.received = received;
        counted.server.answered = answered;
        counted
    }

    fn books(
        event: SoakEvent,
        sent: u64,
        answered: u64,
        besides: ExtraRequests,
        after: &PathCounters,
    ) -> SoakAccounting {
        let load = RoundLoad { sent, answered, refused: 0 };
        let mut books = SoakAccounting::new(2);
        books.add(event, load, besides, &PathCounters::default(), after);
        books
    }

    #[test]
    fn what_is_answered_needs_no_fate() {
        assert!(
            books(SoakEvent::Nothing, 100, 100, ExtraRequests::default(), &counted(100, 100, 100)).balanced()
        );
        assert!(!books(SoakEvent::Nothing, 0, 0, ExtraRequests::default(), &counted(0, 0, 0)).balanced());
    }

    #[test]
    fn a_loss_that_nobody_counted_is_wrong() {
        for after in
            [counted(99, 99, 99), counted(100, 99, 99), counted(100, 100, 99), counted(100, 100, 100)]
        {
            let books = books(SoakEvent::Nothing, 100, 99, ExtraRequests::default(), &after);
            assert!(!books.balanced(), "{books}");
            assert!(books.to_string().contains("does not balance"), "{books}");
        }
    }

    #[test]
    fn a_loss_that_somebody_counted_is_right() {
        let full = PathCounters { buffer_full: 3, ..counted(100, 97, 97) };
        let books = books(SoakEvent::Nothing, 100, 97, ExtraRequests::default(), &full);
        assert!(books.balanced() && books.to_string().contains("3 receive buffer full"), "{books}");
    }

    #[test]
    fn replies_may_wait_in_vain_for_an_address_to_go_to() {
        let lost = PathCounters { unresolved: 40, ..counted(100, 100, 100) };
        let books = books(SoakEvent::Flap, 100, 60, ExtraRequests::default(), &lost);
        assert!(books.balanced() && books.to_string().contains("40 reply without a link address"), "{books}");
    }

    #[test]
    fn nothing_is_answered_twice() {
        assert!(
            !books(SoakEvent::Nothing, 100, 101, ExtraRequests::default(), &counted(100, 100, 100))
                .balanced()
        );
        assert!(
            !books(SoakEvent::Flap, 100, 103, ExtraRequests::default(), &counted(100, 100, 100)).balanced()
        );
    }

    #[test]
    fn each_worker_may_try_a_reply_twice_as_the_link_goes_down() {
        let refused = |tried: u64| {
            let mut after = counted(100, 100, 60);
            after.server.send_failed.unreachable = 40;
            after.replies_discarded = tried;
            after
        };
        assert!(books(SoakEvent::Flap, 100, 60, ExtraRequests::default(), &refused(42)).balanced());
        assert!(!books(SoakEvent::Flap, 100, 60, ExtraRequests::default(), &refused(43)).balanced());
        assert!(!books(SoakEvent::Nothing, 100, 60, ExtraRequests::default(), &refused(42)).balanced());
    }

    #[test]
    fn a_device_that_goes_down_frees_what_it_holds_and_no_more() {
        let freed = |count: u64| {
            books(SoakEvent::Flap, 1_000, 1_000 - count, ExtraRequests::default(), &{
                counted(1_000 - count, 1_000 - count, 1_000 - count)
            })
        };
        assert!(freed(320).balanced());
        assert!(!freed(321).balanced());
        // Between the stack and the server nothing may be lost, whatever happens.
        assert!(
            !books(SoakEvent::Flap, 1_000, 999, ExtraRequests::default(), &counted(1_000, 999, 999))
                .balanced()
        );
    }

    #[test]
    fn poison_and_other_ports_are_none_of_the_load() {
        let mut poisoned = counted(101, 101, 90);
        poisoned.server.panicked = 11;
        let poison = ExtraRequests { received: 1, answered: 0 };
        let books_of_panic = books(SoakEvent::Panic, 100, 90, poison, &poisoned);
        assert!(books_of_panic.balanced(), "{books_of_panic}");
        assert!(books_of_panic.to_string().contains("10 with a worker's panic"), "{books_of_panic}");
        let asked = ExtraRequests { received: 1, answered: 1 };
        assert!(books(SoakEvent::Port, 100, 100, asked, &counted(101, 101, 101)).balanced());
    }
}
