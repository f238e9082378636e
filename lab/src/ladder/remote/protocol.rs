//! The protocol: one JSON object per line on the remote program's standard input and output.

use linerate_load::report::LoadReport;
use linerate_load::{GeneratorDescription, LoadSlot, PacingMode, SlotInterval};
use serde::{Deserialize, Serialize};

/// Schema of the lines, part of [`RemoteAnswer::Ready`].
pub(super) const SCHEMA: &str = "linerate.load-on-demand/3";

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
    /// Starts by the clock of the remote host.
    pub(super) slot: LoadSlot,
}

/// A line of the remote side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum RemoteAnswer {
    /// The first line.
    Ready(Box<ReadyGenerator>),
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

/// A generator that waits for orders.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadyGenerator {
    pub(super) schema: String,
    pub(super) version: String,
    pub(super) generator: GeneratorDescription,
    /// CPUs that the program may use.
    pub(super) cpus: usize,
}

impl SlotOrder {
    /// An order for one of `shares` equal parts of `slot`.
    pub(super) fn new(number: u64, slot: &LoadSlot, shares: usize, begin_realtime_ns: u64) -> Self {
        let mode = match slot.mode {
            PacingMode::Rate { per_second } => {
                PacingMode::Rate { per_second: per_second / shares.max(1) as f64 }
            }
            mode @ (PacingMode::Window { .. } | PacingMode::Flood) => mode,
        };
        SlotOrder { number, slot: LoadSlot { mode, start_at_realtime_ns: Some(begin_realtime_ns), ..*slot } }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            let mut parsed_slot = slot_order.slot;
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
