//! Counters of received datagrams by kind.

use crate::generator::plan::SlotSpan;
use crate::latency::Latency;
use crate::outcome::SendErrors;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramKind {
    Corrupt,
    Unsolicited,
    Late,
    Duplicate,
    /// The first intact reply to a request.
    First {
        // Intended send time of the request, ns of the monotonic clock.
        intended_ns: u64,
        /// A later request of the flow had been answered before.
        reordered: bool,
        /// The reply's code, if the workload has one.
        code: Option<u8>,
    },
}

#[derive(Debug, Clone)]
pub(super) struct ReceivedTotals {
    pub(super) counts: DatagramCounts,
    pub(super) codes: [u64; 256],
    pub(super) errors: SendErrors,
    pub(super) latency: Latency,
    pub(super) first_half: Latency,
    pub(super) last_quarter: Latency,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DatagramCounts {
    pub(super) answered: u64,
    pub(super) answered_in_time: u64,
    pub(super) duplicate: u64,
    pub(super) reordered: u64,
    pub(super) corrupt: u64,
    pub(super) unsolicited: u64,
    pub(super) late: u64,
}

impl Default for ReceivedTotals {
    fn default() -> Self {
        ReceivedTotals {
            counts: DatagramCounts::default(),
            codes: [0; 256],
            errors: SendErrors::default(),
            latency: Latency::new(),
            first_half: Latency::new(),
            last_quarter: Latency::new(),
        }
    }
}

impl ReceivedTotals {
    /// Resets all counters without freeing memory.
    pub(super) fn clear(&mut self) {
        self.counts = DatagramCounts::default();
        self.codes.fill(0);
        self.errors = SendErrors::default();
        self.latency.clear();
        self.first_half.clear();
        self.last_quarter.clear();
    }

    /// Counts a datagram that arrived at `received_ns`; returns the times of a first reply: intended and received.
    pub(super) fn record_datagram(
        &mut self,
        judgement: DatagramKind,
        received_ns: impl FnOnce() -> u64,
        span: &SlotSpan,
    ) -> Option<(u64, u64)> {
        match judgement {
            DatagramKind::Corrupt => self.counts.corrupt += 1,
            DatagramKind::Unsolicited => self.counts.unsolicited += 1,
            DatagramKind::Late => self.counts.late += 1,
            DatagramKind::Duplicate => self.counts.duplicate += 1,
            DatagramKind::First { intended_ns, reordered, code } => {
                self.counts.answered += 1;
                self.counts.reordered += u64::from(reordered);
                if let Some(code) = code {
                    self.codes[usize::from(code)] += 1;
                }
                let received_ns = received_ns();
                self.record_latency(intended_ns, received_ns, span);
                return Some((intended_ns, received_ns));
            }
        }
        None
    }

    fn record_latency(&mut self, intended_ns: u64, received_ns: u64, span: &SlotSpan) {
        let latency_ns = received_ns.saturating_sub(intended_ns);
        self.latency.record(latency_ns);
        if intended_ns < span.half_ns() {
            self.first_half.record(latency_ns);
        } else if intended_ns >= span.last_quarter_ns() {
            self.last_quarter.record(latency_ns);
        }
        self.counts.answered_in_time += u64::from(received_ns <= span.end_ns());
    }
}
