//! The plan of a slot, which both backends carry out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::options::GeneratorOptions;
use super::schedule::SendSchedule;
use super::{LoadSlot, PacingMode, clock};
use crate::error::GeneratorError;
use crate::outcome::SlotInterval;
use crate::workload::ReplyCode;

// Number of parts of the timeout. A place is released at most one part late.
pub(super) const TIMEOUT_PARTS: u64 = 8;

const LEAST_TIMEOUT_NS: u64 = 1_000_000;

/// Number and times of a slot; ns of the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlotSpan {
    /// Counts the slots of a generator.
    pub(super) epoch: u32,
    pub(super) start_ns: u64,
    /// The start by `CLOCK_REALTIME`.
    pub(super) start_realtime_ns: u64,
    pub(super) duration_ns: u64,
    /// 0 without intervals.
    pub(super) interval_ns: u64,
}

impl SlotSpan {
    /// Starts at the requested time, or as soon as `lead_ns` allows.
    pub(super) fn new(
        slot: &LoadSlot,
        epoch: u32,
        lead_ns: u64,
        cancel: &AtomicBool,
    ) -> Result<Self, GeneratorError> {
        let (start_ns, start_realtime_ns) = clock::slot_start(slot.start_at_realtime_ns, lead_ns, cancel)?;
        let duration_ns = clock::whole_ns(slot.duration);
        let interval_ns = slot.interval_length().map_or(0, clock::whole_ns);
        Ok(SlotSpan { epoch, start_ns, start_realtime_ns, duration_ns, interval_ns })
    }

    pub(super) fn interval_count(&self) -> usize {
        match self.interval_ns {
            0 => 0,
            interval_ns => usize::try_from(self.duration_ns.div_ceil(interval_ns)).unwrap_or(usize::MAX),
        }
    }

    /// The interval at a time; only with intervals.
    pub(super) fn interval_number(&self, at_ns: u64) -> usize {
        usize::try_from(at_ns.saturating_sub(self.start_ns) / self.interval_ns).unwrap_or(usize::MAX)
    }

    /// An interval without counts.
    pub(super) fn interval(&self, number: usize) -> SlotInterval {
        let begins_ns = self.interval_ns.saturating_mul(number as u64);
        let length_ns = self.interval_ns.min(self.duration_ns.saturating_sub(begins_ns));
        SlotInterval {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            begins_seconds: begins_ns as f64 / 1e9,
            seconds: length_ns as f64 / 1e9,
            ..SlotInterval::default()
        }
    }

    pub(super) fn half_ns(&self) -> u64 {
        self.start_ns + self.duration_ns / 2
    }

    pub(super) fn last_quarter_ns(&self) -> u64 {
        self.start_ns + self.duration_ns / 4 * 3
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.start_ns + self.duration_ns
    }
}

/// The work of one thread in a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotPlan {
    pub(super) span: SlotSpan,
    pub(super) drain: Duration,
    pub(super) whole_drain: bool,
    pub(super) timing: SendTiming,
    /// Whether requests leave as live frames.
    pub(super) live_frames: bool,
    pub(super) thread: usize,
    /// The number of this thread's flows.
    pub(super) flows: u64,
}

/// When the requests of a thread leave.
#[derive(Debug, Clone, Copy)]
pub(super) enum SendTiming {
    Paced(SendSchedule),
    /// A number of outstanding requests per flow.
    Window {
        outstanding: u64,
        /// The length of the parts of the timeout.
        part_ns: u64,
    },
    Flood,
}

impl SlotPlan {
    /// The plans of all threads of a generator, without live frames. `tick_ns` returns the tick of a
    /// thread for its rate.
    pub(super) fn for_threads(
        slot: &LoadSlot,
        span: SlotSpan,
        (flows, threads): (usize, usize),
        timeout: Duration,
        tick_ns: impl Fn(f64) -> u64,
    ) -> Vec<Self> {
        let timing = |thread: usize| match slot.mode {
            PacingMode::Rate { per_second } => {
                let tick_ns = tick_ns(per_second / threads as f64);
                let share = (thread as u64, threads as u64);
                SendTiming::Paced(SendSchedule::from_rate(&span, per_second, share, tick_ns))
            }
            PacingMode::Window { outstanding } => SendTiming::Window {
                outstanding: u64::from(outstanding),
                part_ns: clock::whole_ns(timeout).max(LEAST_TIMEOUT_NS).div_ceil(TIMEOUT_PARTS),
            },
            PacingMode::Flood => SendTiming::Flood,
        };
        let plan = |thread: usize| SlotPlan {
            span,
            drain: slot.drain,
            whole_drain: slot.whole_drain,
            timing: timing(thread),
            live_frames: false,
            thread,
            flows: (flows - thread).div_ceil(threads) as u64,
        };
        (0..threads).map(plan).collect()
    }
}

impl SendTiming {
    pub(super) fn schedule(&self) -> Option<&SendSchedule> {
        match self {
            SendTiming::Paced(schedule) => Some(schedule),
            SendTiming::Window { .. } | SendTiming::Flood => None,
        }
    }
}

/// Facts of a slot that the reports of its threads do not have.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotFacts<'a> {
    pub(super) slot: &'a LoadSlot,
    pub(super) span: SlotSpan,
    pub(super) plans: &'a [SlotPlan],
    pub(super) cancelled: bool,
    pub(super) code: Option<ReplyCode>,
    /// Distinct tags of all flows together; `None` if tags do not repeat soon.
    pub(super) tags: Option<u64>,
}

impl<'a> SlotFacts<'a> {
    /// At the end of the slot.
    pub(super) fn new(
        slot: &'a LoadSlot,
        span: SlotSpan,
        plans: &'a [SlotPlan],
        options: &GeneratorOptions,
    ) -> Self {
        SlotFacts {
            slot,
            span,
            plans,
            cancelled: options.cancel.load(Ordering::Relaxed),
            code: options.workload.code(),
            tags: options.workload.narrow_tags(options.flows),
        }
    }

    /// The longest delay of a request by design, ns.
    pub(super) fn tick_ns(&self) -> u64 {
        let schedule = self.plans.first().and_then(|plan| plan.timing.schedule());
        schedule.map_or(0, SendSchedule::max_delay_ns)
    }
}
