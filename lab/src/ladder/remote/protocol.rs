//! The protocol: one JSON object per line on the remote program's standard input and output.

use std::time::Duration;

use linerate_load::report::LoadReport;
use linerate_load::{GeneratorDescription, LoadSlot, PacingMode, SlotInterval};
use serde::{Deserialize, Serialize};

/// Schema of the lines, part of [`RemoteAnswer::Ready`].
pub(super) const SCHEMA: &str = "linerate.load-on-demand/2";

/// A line of the local side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub(super) enum RemoteOrder {
    Slot(SlotOrder),
    /// Asks for the time; also a sign of life.
    Ping {
        /// Repeated in the answer.
        number: u64,
    },
    /// Ends the current slot.
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SlotOrder {
    /// Repeated in the answers.
    pub(super) number: u64,
    pub(super) pace: RemotePace,
    pub(super) duration_ns: u64,
    pub(super) drain_ns: u64,
    pub(super) interval_ns: Option<u64>,
    /// Whether a paced rate may leave as live frames.
    #[serde(default)]
    pub(super) live_frames: bool,
    /// Start by `CLOCK_REALTIME` of the remote host.
    pub(super) begin_realtime_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RemotePace {
    RatePerSecond(f64),
    /// Outstanding requests per flow.
    Window(u32),
    Flood,
}

/// A line of the remote side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum RemoteAnswer {
    /// The first line: the generator is ready.
    Ready {
        schema: String,
        version: String,
        generator: Box<GeneratorDescription>,
        /// CPUs that the program may use.
        cpus: usize,
    },
    /// The immediate answer to a ping.
    Pong {
        number: u64,
        /// `CLOCK_REALTIME` of the remote host.
        realtime_ns: u64,
    },
    /// An interval of a slot is over.
    Interval { slot: u64, interval: SlotInterval },
    /// The result of a slot.
    Done { slot: u64, report: Box<LoadReport> },
    /// A slot could not be run.
    Failed {
        slot: u64,
        /// It was stopped before anything was sent.
        cancelled: bool,
        why: String,
    },
}

impl SlotOrder {
    /// An order for one of `shares` equal parts of `slot`.
    pub(super) fn new(number: u64, slot: &LoadSlot, shares: usize, begin_realtime_ns: u64) -> Self {
        let pace = match slot.mode {
            PacingMode::Rate { per_second } => RemotePace::RatePerSecond(per_second / shares.max(1) as f64),
            PacingMode::Window { outstanding } => RemotePace::Window(outstanding),
            PacingMode::Flood => RemotePace::Flood,
        };
        SlotOrder {
            number,
            pace,
            duration_ns: whole_ns(slot.duration),
            drain_ns: whole_ns(slot.drain),
            interval_ns: slot.interval.map(whole_ns),
            live_frames: slot.live_frames,
            begin_realtime_ns,
        }
    }

    /// The slot for the remote generator.
    pub(super) fn slot(&self) -> LoadSlot {
        let mode = match self.pace {
            RemotePace::RatePerSecond(per_second) => PacingMode::Rate { per_second },
            RemotePace::Window(outstanding) => PacingMode::Window { outstanding },
            RemotePace::Flood => PacingMode::Flood,
        };
        LoadSlot {
            drain: Duration::from_nanos(self.drain_ns),
            interval: self.interval_ns.map(Duration::from_nanos),
            live_frames: self.live_frames,
            start_at_realtime_ns: Some(self.begin_realtime_ns),
            ..LoadSlot::new(mode, Duration::from_nanos(self.duration_ns))
        }
    }
}

fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn serialized_slot_orders_parse_to_the_same_slot(
            rate in 0.001_f64..1e9, milliseconds in 1_u64..100_000, interval in proptest::option::of(10_u64..5_000),
            shares in 1_usize..9, window in 1_u32..65_536, paced in any::<bool>(), begin in any::<u64>(),
        ) {
            let duration = Duration::from_millis(milliseconds);
            let slot = if paced { LoadSlot::rate(rate, duration) } else { LoadSlot::window(window, duration) };
            let slot = LoadSlot { interval: interval.map(Duration::from_millis), ..slot };
            let order = RemoteOrder::Slot(SlotOrder::new(7, &slot, shares, begin));
            let text = serde_json::to_string(&order).expect("JSON");
            prop_assert!(!text.contains('\n'));
            let Ok(RemoteOrder::Slot(slot_order)) = serde_json::from_str::<RemoteOrder>(&text) else { panic!("{text}") };
            let mut parsed_slot = slot_order.slot();
            prop_assert_eq!(parsed_slot.start_at_realtime_ns.take(), Some(begin));
            if let (PacingMode::Rate { per_second: all }, PacingMode::Rate { per_second: part }) = (slot.mode, &mut parsed_slot.mode) {
                prop_assert!((*part * shares as f64 - all).abs() <= all * 1e-12);
                *part = all;
            }
            prop_assert_eq!(parsed_slot, slot);
        }

        #[test]
        fn parsing_arbitrary_text_never_panics(text in "\\PC*") {
            let _ = serde_json::from_str::<RemoteOrder>(&text);
            let _ = serde_json::from_str::<RemoteAnswer>(&text);
        }
    }
}
