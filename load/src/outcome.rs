//! The outcome of one slot of load.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::{Latency, LatencyQuantiles};
use crate::seconds;

/// A request sent later than this after its intended time counts as late.
pub(crate) const LATE_NS: u64 = 1_000_000;

/// A queue grows if latency grows by more than this share of the slot.
pub(crate) const GROWTH: f64 = 0.02;

// Requests that may be in flight at the end of a slot of any length.
const FEW: f64 = 16.0;

/// The account of one slot. `sent == answered + lost`, always.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SlotOutcome {
    /// When it began, ns of `CLOCK_REALTIME`.
    pub started_realtime_ns: u64,
    /// Requests handed to the kernel.
    pub sent: u64,
    /// Requests whose intact reply came before the drain ended.
    pub answered: u64,
    pub lost: u64,
    /// Intact replies to requests that had been answered already.
    pub duplicate: u64,
    /// First replies that came after the reply to a later request of their flow; they count as answered, too.
    pub reordered: u64,
    /// Datagrams with a wrong checksum, length, layout or authenticator. Their requests are not answered by them.
    pub corrupt: u64,
    /// Intact datagrams of another run or another flow, or to a request never sent.
    pub unsolicited: u64,
    /// Replies to earlier slots, or to requests that are out of view.
    pub late: u64,
    /// Replies that came in fragments, which the XDP backend counts as lost.
    #[serde(default)]
    pub fragmented: u64,
    /// Requests that could not be sent.
    pub send_errors: SendErrors,
    /// The slot's length in seconds; shorter than requested if it was cancelled.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    /// The requested rate; `None` in window mode.
    pub requested_per_second: Option<f64>,
    /// The actual rate.
    pub offered_per_second: f64,
    /// Goodput: answers within the slot's duration, per second.
    pub answered_per_second: f64,
    /// From the intended send time to the reply's arrival in the kernel.
    pub latency_ns: Latency,
    /// Latency of the requests intended in the second half of the slot. Not in JSON.
    #[serde(skip)]
    pub second_half_ns: Latency,
    /// First replies by their code: DNS response codes, RADIUS packet types, NTP strata; empty for others.
    pub codes: Vec<CodeCount>,
    /// Replies that were matched and counted as answers, but came too fast for their authenticator to be checked.
    pub unverified: u64,
    /// How many requests left together.
    pub bursts: SendBursts,
    /// The slot in intervals of a second, or of [`Slot::interval`](crate::LoadSlot::interval).
    pub intervals: Vec<SlotInterval>,
    /// Shows whether a queue grew during the slot.
    pub queue: QueueMedians,
    /// Requests in flight at the same time: the rate of replies times the mean latency of the first
    /// half. This number is unanswered at the end of the slot without a queue.
    #[serde(default)]
    pub mean_in_flight: u64,
    /// How well the generator kept up.
    pub self_watch: SelfWatch,
    /// Whether the generator was the limit, so that rates are lower bounds.
    pub generator_bound: bool,
}

impl SlotOutcome {
    /// When sending started, seconds since 1970.
    pub fn started_unix_seconds(&self) -> u64 {
        self.started_realtime_ns / 1_000_000_000
    }

    /// Share of the requests sent that were lost; 1 when nothing could be sent.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 1.0 } else { self.lost as f64 / self.sent as f64 }
    }

    /// Share of the requests to be sent that did not leave.
    pub fn unsent_ratio(&self) -> f64 {
        let unsent = self.send_errors.unsent();
        unsent as f64 / (self.sent + unsent).max(1) as f64
    }

    /// Whether the queue grew, which a deep socket buffer hides from the loss of a short slot: the last quarter's
    /// median latency exceeds the first half's by more than 1 ms and more than this share of the slot, or more than
    /// 5 % of the requests (and more than 16) were answered after the slot's end, in addition to
    /// [`SlotOutcome::mean_in_flight`].
    ///
    /// A service that gets slightly more requests than it can answer answers later and later, by
    /// that excess times the elapsed time. A smaller share therefore detects a smaller excess.
    pub fn queue_grows_by(&self, share: f64) -> bool {
        self.latency_grows_by(share) || self.leaves_a_queue()
    }

    fn latency_grows_by(&self, share: f64) -> bool {
        let (Some(early), Some(late)) = (self.queue.first_half_ns, self.queue.last_quarter_ns) else {
            return false;
        };
        late.saturating_sub(early) as f64 > (self.duration.as_nanos() as f64 * share).max(1e6)
    }

    fn leaves_a_queue(&self) -> bool {
        let timely_replies = self.answered_per_second * self.duration.as_secs_f64();
        let late_replies = self.answered as f64 - timely_replies - self.mean_in_flight as f64;
        late_replies > FEW && late_replies > 0.05 * self.sent as f64
    }
}

// The requests of a slot that are in flight at the same time, by Little's law.
pub(crate) fn mean_in_flight(answered: u64, duration: Duration, first_half: &Latency) -> u64 {
    let longest_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let share_of_slot = first_half.mean_up_to(longest_ns) / (longest_ns.max(1) as f64);
    (answered as f64 * share_of_slot) as u64
}

/// How often a code was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeCount {
    pub code: u8,
    /// Its name in the protocol: `NOERROR`, `Access-Accept`.
    pub name: Option<String>,
    /// First replies with it.
    pub count: u64,
    /// Answers that were truncated (TC of DNS).
    #[serde(default)]
    pub truncated: u64,
}

/// Numbers of requests that left by one system call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendBursts {
    /// The median burst, requests.
    pub median_requests: u64,
    pub max_requests: u64,
}

/// An interval of a slot. Its latency is that of the replies that arrived in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotInterval {
    /// Counts up from 0.
    pub number: u32,
    /// Its beginning, from the slot's, s.
    pub begins_seconds: f64,
    /// Its length, s; the last may be shorter.
    pub seconds: f64,
    /// Requests meant to leave in it that left.
    pub sent: u64,
    /// First replies that arrived in it, to any request.
    pub received: u64,
    /// Answered requests of this interval; `None` before the end of the slot.
    pub answered: Option<u64>,
    /// Latency of the replies that arrived in it.
    pub latency_ns: LatencyQuantiles,
}

impl SlotInterval {
    /// Adds the counts of another generator in the same interval.
    pub fn join(&mut self, other: &SlotInterval) {
        self.sent += other.sent;
        self.received += other.received;
        self.answered = self.answered.zip(other.answered).map(|(a, b)| a + b);
        self.seconds = self.seconds.max(other.seconds);
        self.latency_ns = self.latency_ns.joined(&other.latency_ns);
    }
}

/// Requests that could not be sent, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendErrors {
    /// ECONNREFUSED: the destination port has no socket. Reported by an ICMP message to an earlier
    /// request.
    pub refused: u64,
    /// Other ICMP errors about earlier requests: a firewall or a router on the way rejected them.
    #[serde(default)]
    pub rejected: u64,
    /// ENETUNREACH, EHOSTUNREACH, ENETDOWN: no way there.
    pub unreachable: u64,
    /// EMSGSIZE: over the path MTU and not to be fragmented.
    pub too_long: u64,
    /// EPERM, EACCES: a filter on this host forbids it.
    pub forbidden: u64,
    /// ENOBUFS, ENOMEM: the kernel had no memory or queue space.
    pub no_buffers: u64,
    pub other: u64,
}

impl SendErrors {
    /// Requests that did not leave. Refused and rejected requests left: ICMP reports them to later
    /// ones.
    pub fn unsent(&self) -> u64 {
        self.unreachable + self.too_long + self.forbidden + self.no_buffers + self.other
    }

    /// The most frequent reason why requests did not leave; `None` if all left.
    pub fn unsent_reason(&self) -> Option<&'static str> {
        let reasons = [
            (self.forbidden, "a filter of this host forbids them"),
            (self.no_buffers, "this host had no memory or queue space for them"),
            (self.unreachable, "network or host unreachable, or the interface is down"),
            (self.too_long, "larger than the path MTU or the link allows"),
            (self.other, "the kernel reported another error"),
        ];
        let most_frequent = reasons.into_iter().max_by_key(|(count, _)| *count);
        most_frequent.filter(|(count, _)| *count > 0).map(|(_, reason)| reason)
    }

    /// Whether an ICMP message reported that the port has no socket.
    pub fn nobody_listens(&self) -> bool {
        self.refused > 0
    }

    /// Counts an error that an ICMP message to an earlier request caused.
    pub(crate) fn count_icmp(&mut self, error: &std::io::Error) {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => self.refused += 1,
            _ => self.rejected += 1,
        }
    }

    /// Counts a request that could not be sent.
    pub(crate) fn count(&mut self, error: &std::io::Error) {
        let counter = match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => &mut self.refused,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => &mut self.unreachable,
            Some(libc::EMSGSIZE) => &mut self.too_long,
            Some(libc::EPERM | libc::EACCES) => &mut self.forbidden,
            Some(libc::ENOBUFS | libc::ENOMEM) => &mut self.no_buffers,
            _ => &mut self.other,
        };
        *counter += 1;
    }

    pub(crate) fn add(&mut self, other: &SendErrors) {
        self.refused += other.refused;
        self.rejected += other.rejected;
        self.unreachable += other.unreachable;
        self.too_long += other.too_long;
        self.forbidden += other.forbidden;
        self.no_buffers += other.no_buffers;
        self.other += other.other;
    }
}

/// Median latencies of an early and a late part of a slot; `None` without answers there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueMedians {
    /// Of the requests intended in the first half, ns.
    pub first_half_ns: Option<u64>,
    /// Of those intended in the last quarter, ns.
    pub last_quarter_ns: Option<u64>,
}

/// How well the generator kept up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SelfWatch {
    /// Requests that left more than 1 ms after their intended time.
    pub late_sends: u64,
    /// The worst of all, ns.
    pub worst_lag_ns: u64,
    /// The length of a tick, ns: how far a request may leave behind its intended time by design, which its latency
    /// includes. 0 in window mode.
    pub tick_ns: u64,
    /// How requests left this host.
    #[serde(default)]
    pub send_method: SendMethod,
    /// Share of the wall clock each thread spent on a CPU.
    pub thread_cpu_ratio: Vec<f64>,
    /// Replies the generator's own sockets dropped for want of buffer space.
    pub receive_drops: u64,
    /// Of the lost, those that the queueing discipline of this host's interface dropped (socket
    /// backend: `SndbufErrors` of the network namespace, without full socket buffers).
    #[serde(default)]
    pub send_drops: u64,
    /// Of the lost, those that the link refused because the receiving end's queue was full: a veth pair hands frames to
    /// the receiver's queue itself.
    pub refused_by_link: u64,
    /// Window mode: requests that gave their place back after the timeout.
    pub timed_out: u64,
    /// Why the generator was the limit; empty if it was not.
    pub bound_because: Vec<BoundReason>,
}

/// How requests leave the generator's host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum SendMethod {
    #[default]
    #[strum(serialize = "through sockets")]
    Datagrams,
    /// As XDP frames that a program made, in calls that last.
    #[strum(serialize = "as live frames")]
    LiveFrames,
    /// As clones of a socket buffer that a program made, in calls for those due.
    #[strum(serialize = "as clones")]
    Clones,
    /// Several generators together, not all in the same way.
    #[strum(serialize = "in several ways")]
    Mixed,
}

/// Why a rate is a lower bound of what the service can do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum BoundReason {
    /// It offered less than 99 % of the requested rate.
    OfferedTooLittle {
        /// Share of the requested rate.
        ratio: f64,
    },
    /// More than 1 % of its requests left over 1 ms late.
    SentLate {
        /// Share of the requests.
        ratio: f64,
    },
    /// A thread had no CPU time to spare in window mode.
    ThreadBusy {
        /// The busiest thread's share of a CPU.
        cpu_ratio: f64,
    },
    /// Its own sockets dropped more than 0.1 % of the replies.
    RepliesDropped {
        /// Share of the requests.
        ratio: f64,
    },
    /// The queue of its own interface dropped more than 0.1 % of the requests.
    RequestsDropped {
        /// Share of the requests.
        ratio: f64,
    },
    /// More than 0.1 % of the replies came after their requests' tags were used again: the protocol
    /// has few tags per flow.
    TagsUsedUp {
        /// Share of the requests.
        ratio: f64,
    },
    /// A search: at the rate that held requests left in another way than at the one that did not.
    SentAnotherWay {
        sustained: SendMethod,
        /// Where it did not.
        failed: SendMethod,
    },
    /// A search: it ended before a rate above the one that held was judged.
    NothingHigher,
    /// Requests left through sockets and a veth pair. The CPU that sends a reply over veth runs the
    /// whole receive path of the other end, so the server works for the generator, too.
    ServerDeliversReplies,
}

// Up to this share of late requests, the medians of latency cannot grow because of them.
const LATE_MATTERS: f64 = 0.1;

impl BoundReason {
    pub(crate) fn exceeds_late_limit(&self) -> bool {
        matches!(self, BoundReason::SentLate { ratio } if *ratio > LATE_MATTERS)
    }

    /// Whether the figures of a slot may be worse than those of the service because of it. A flood
    /// and a window always keep a thread busy.
    pub fn distorts_figures(&self) -> bool {
        match self {
            BoundReason::SentLate { .. } => self.exceeds_late_limit(),
            BoundReason::ThreadBusy { .. } => false,
            _ => true,
        }
    }
}

impl fmt::Display for BoundReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoundReason::OfferedTooLittle { ratio } => {
                write!(f, "the generator offered only {:.1} % of the rate asked for", ratio * 100.0)
            }
            BoundReason::SentLate { ratio } => {
                write!(f, "{:.1} % of the requests left more than 1 ms late", ratio * 100.0)
            }
            BoundReason::ThreadBusy { cpu_ratio } => {
                write!(f, "a generator thread used {:.0} % of its CPU", cpu_ratio * 100.0)
            }
            BoundReason::RepliesDropped { ratio } => {
                write!(f, "the generator's own sockets dropped {:.2} % of the replies", ratio * 100.0)
            }
            BoundReason::RequestsDropped { ratio } => {
                write!(f, "queues of this host dropped up to {:.2} % of the requests", ratio * 100.0)
            }
            BoundReason::TagsUsedUp { ratio } => write!(
                f,
                "the replies to {:.2} % of the requests came after their tags were used again; use more --flows",
                ratio * 100.0
            ),
            BoundReason::NothingHigher => f.write_str("no higher rate was judged"),
            BoundReason::ServerDeliversReplies => f.write_str(
                "over a veth pair the server's CPU also delivers its replies to the generator's sockets; --backend xdp avoids that",
            ),
            BoundReason::SentAnotherWay { sustained, failed } => {
                write!(f, "requests left {sustained} where a rate held, and {failed} where it did not")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The outcome of a slot with a request every 100 us, each with the latency that `latency_ms`
    // returns for its number and time, ms.
    fn outcome(duration_ms: u64, latency_ms: impl Fn(u64, f64) -> f64) -> SlotOutcome {
        let sent = duration_ms * 10;
        let mut parts = [Latency::new(), Latency::new(), Latency::new()];
        let mut timely = 0;
        for number in 0..sent {
            let at_ms = number as f64 / 10.0;
            let part = match 4 * number / sent {
                0 | 1 => 0,
                quarter => quarter as usize - 1,
            };
            parts[part].record((latency_ms(number, at_ms) * 1e6) as u64);
            timely += u64::from(at_ms + latency_ms(number, at_ms) <= duration_ms as f64);
        }
        let duration = Duration::from_millis(duration_ms);
        SlotOutcome {
            sent,
            answered: sent,
            duration,
            requested_per_second: Some(10e3),
            offered_per_second: 10e3,
            answered_per_second: timely as f64 / duration.as_secs_f64(),
            queue: QueueMedians { first_half_ns: parts[0].median(), last_quarter_ns: parts[2].median() },
            mean_in_flight: mean_in_flight(sent, duration, &parts[0]),
            ..SlotOutcome::default()
        }
    }

    #[test]
    fn a_queue_grows_only_beyond_the_latency() {
        for duration_ms in [80, 120, 190, 750] {
            for latency_ms in [0.1, 1.0, 5.0, 10.0, 37.0, 50.0, 100.0, 200.0] {
                let steady = outcome(duration_ms, |_, _| latency_ms);
                assert!(!steady.queue_grows_by(0.02), "{latency_ms} ms in {duration_ms} ms: {steady:?}");
                // One reply in ten is slow, as from a resolver that has to ask others.
                let uneven = |number, _| if number % 10 == 0 { latency_ms * 4.0 } else { 0.1 };
                assert!(!outcome(duration_ms, uneven).queue_grows_by(0.02), "{latency_ms} ms");
                // 5 % more requests than the service answers.
                let growing = outcome(duration_ms, |_, at_ms| latency_ms + 0.05 * at_ms);
                assert!(growing.queue_grows_by(0.02), "{latency_ms} ms in {duration_ms} ms: {growing:?}");
            }
            // One of four workers gets twice the requests that it answers. No median shows it.
            let one_worker = outcome(duration_ms, |number, at_ms| if number % 4 == 0 { at_ms } else { 0.1 });
            assert!(one_worker.queue_grows_by(0.02), "{one_worker:?}");
        }
    }
}
