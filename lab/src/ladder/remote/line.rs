//! What is said over the connection: one JSON object a line, on the far program's standard input and output.

use std::time::Duration;

use linerate_load::{GeneratorDescription, LoadSlot, PacingMode, SlotInterval};
use serde::{Deserialize, Serialize};

/// The schema of the lines, as [`Answer::Ready`] tells it.
pub(super) const SCHEMA: &str = "linerate.load-on-demand/1";

/// What the near side says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub(super) enum RemoteOrder {
    Slot(SlotOrder),
    /// Say what time it is; also a sign of life.
    Ping {
        /// To know the answer by.
        number: u64,
    },
    /// End the slot that is under way.
    Stop,
}

/// A slot that is to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SlotOrder {
    /// To know the answers by.
    pub(super) number: u64,
    pub(super) pace: RemotePace,
    pub(super) duration_ns: u64,
    pub(super) drain_ns: u64,
    pub(super) interval_ns: Option<u64>,
    /// Whether a paced rate may leave as live frames.
    #[serde(default)]
    pub(super) live_frames: bool,
    /// When to begin, `CLOCK_REALTIME` of the far host.
    pub(super) begin_realtime_ns: u64,
}

/// How requests are timed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RemotePace {
    RatePerSecond(f64),
    /// Requests outstanding a flow.
    Window(u32),
    Flood,
}

/// What the far side says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum RemoteAnswer {
    /// The first line: the generator is made.
    Ready {
        schema: String,
        version: String,
        generator: Box<GeneratorDescription>,
        /// CPUs the program may run on.
        cpus: usize,
    },
    /// To a ping, at once.
    Pong {
        number: u64,
        /// `CLOCK_REALTIME` of the far host.
        realtime_ns: u64,
    },
    /// An interval of a slot is over.
    Interval { slot: u64, interval: SlotInterval },
    /// A slot is over: its account, a `linerate.load/1` document.
    Done { slot: u64, document: serde_json::Value },
    /// A slot could not be run.
    Failed {
        slot: u64,
        /// It was stopped before anything was sent.
        cancelled: bool,
        why: String,
    },
}

impl SlotOrder {
    /// `slot`, of which this generator offers one of `shares` equal parts.
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

    /// As the far generator takes it.
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
        fn a_slot_crosses_the_connection_as_it_is(
            rate in 0.001_f64..1e9, milliseconds in 1_u64..100_000, interval in proptest::option::of(10_u64..5_000),
            shares in 1_usize..9, window in 1_u32..65_536, paced in any::<bool>(), begin in any::<u64>(),
        ) {
            let duration = Duration::from_millis(milliseconds);
            let slot = if paced { LoadSlot::rate(rate, duration) } else { LoadSlot::window(window, duration) };
            let slot = LoadSlot { interval: interval.map(Duration::from_millis), ..slot };
            let order = RemoteOrder::Slot(SlotOrder::new(7, &slot, shares, begin));
            let text = serde_json::to_string(&order).expect("JSON");
            prop_assert!(!text.contains('\n'));
            let Ok(RemoteOrder::Slot(read)) = serde_json::from_str::<RemoteOrder>(&text) else { panic!("{text}") };
            let mut its = read.slot();
            prop_assert_eq!(its.start_at_realtime_ns.take(), Some(begin));
            if let (PacingMode::Rate { per_second: all }, PacingMode::Rate { per_second: part }) = (slot.mode, &mut its.mode) {
                prop_assert!((*part * shares as f64 - all).abs() <= all * 1e-12);
                *part = all;
            }
            prop_assert_eq!(its, slot);
        }

        #[test]
        fn any_line_is_an_order_or_an_error(text in "\\PC*") {
            let _ = serde_json::from_str::<RemoteOrder>(&text);
            let _ = serde_json::from_str::<RemoteAnswer>(&text);
        }
    }
}
