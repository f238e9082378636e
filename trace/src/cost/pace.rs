//! The part of the time for which programs are attached.
//!
//! With many short softirqs the program calls alone use some percent of a CPU. Programs are then
//! attached only in windows, and the windows are extrapolated. The windows are so rare that the
//! measurement stays below [`BUDGET`] of each CPU.

use std::time::Duration;

use crate::call::USUAL_RUN_NS;

// Limit of the measurement's share of the busiest CPU.
pub(super) const BUDGET: f64 = 0.01;

/// Length of the period that contains one window.
pub(super) const PERIOD: Duration = Duration::from_millis(500);

// From attaching programs to counting. Afterwards the context of a CPU is known: softirqs that
// began before have ended. NET_RX, the longest, ends after `netdev_budget_usecs`, two ticks by
// default (8 ms at 250 Hz; net/core/hotdata.c and `net_rx_action` of net/core/dev.c, Linux 6.18).
// The rest of a longer softirq counts as its thread's own time.
pub(super) const LEAD_IN: Duration = Duration::from_millis(10);

// A window is one in this many parts of the period. The largest window within the budget is used;
// windows below the smallest would be too uncertain.
const PARTS: [u32; 5] = [2, 4, 8, 16, 32];

// Share of the budget that more attached time may use, so that the pace does not go back and forth.
const SURE: f64 = 0.7;

/// The part of the time for which programs are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TracePace {
    Always,
    /// Windows of one in `one_in` parts of the time. `with_irqs`: for interrupt programs as well.
    Windows {
        one_in: u32,
        with_irqs: bool,
    },
}

/// Program runs per second on a CPU while they are attached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProgramRates {
    /// Without runs of interrupt programs.
    pub(super) often: f64,
    pub(super) irqs: f64,
    pub(super) ns_a_run: Option<f64>,
}

impl TracePace {
    pub(super) fn for_rates(self, rates: &ProgramRates) -> Self {
        let share = |runs: f64| runs * rates.ns_a_run.unwrap_or(USUAL_RUN_NS) / 1e9;
        let (often, irqs) = (share(rates.often), share(rates.irqs));
        let pace = Self::for_shares(often, irqs, 1.0);
        // A slower pace at once; a faster one only with budget to spare.
        if pace.part() > self.part() { Self::for_shares(often, irqs, SURE).at_least(self) } else { pace }
    }

    fn for_shares(often: f64, irqs: f64, budget_part: f64) -> Self {
        let budget = BUDGET * budget_part;
        if often + irqs <= budget {
            return Self::Always;
        }
        let with_irqs = irqs > budget / 4.0;
        let (switched_share, constant_share) = if with_irqs { (often + irqs, 0.0) } else { (often, irqs) };
        let lead_in = LEAD_IN.as_secs_f64() / PERIOD.as_secs_f64();
        let fits_budget =
            |one_in: &&u32| switched_share * (1.0 / f64::from(**one_in) + lead_in) + constant_share <= budget;
        let one_in = PARTS.iter().find(fits_budget).copied().unwrap_or(PARTS[PARTS.len() - 1]);
        Self::Windows { one_in, with_irqs }
    }

    fn at_least(self, other: Self) -> Self {
        if self.part() < other.part() { other } else { self }
    }

    /// The counted part of the time.
    pub(super) fn part(self) -> f64 {
        match self {
            Self::Always => 1.0,
            Self::Windows { one_in, .. } => 1.0 / f64::from(one_in),
        }
    }

    /// The length of a window without its lead-in.
    pub(super) fn window(self) -> Duration {
        PERIOD.mul_f64(self.part())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rates(often: f64, irqs: f64) -> ProgramRates {
        ProgramRates { often, irqs, ns_a_run: Some(100.0) }
    }

    #[test]
    fn few_program_runs_are_always_traced() {
        assert_eq!(TracePace::Always.for_rates(&rates(50e3, 40e3)), TracePace::Always);
    }

    #[test]
    fn trace_windows_shrink_with_the_run_rate() {
        let pace = |often| TracePace::Always.for_rates(&rates(often, 1e3));
        assert_eq!(pace(150e3), TracePace::Windows { one_in: 2, with_irqs: false });
        assert_eq!(pace(800e3), TracePace::Windows { one_in: 16, with_irqs: false });
        assert_eq!(pace(9e6), TracePace::Windows { one_in: 32, with_irqs: false });
    }

    #[test]
    fn frequent_interrupts_are_traced_in_windows_too() {
        let pace = TracePace::Always.for_rates(&rates(1e3, 300e3));
        assert!(matches!(pace, TracePace::Windows { with_irqs: true, .. }), "{pace:?}");
    }

    #[test]
    fn pace_changes_with_hysteresis_at_the_rate_limit() {
        let below = rates(90e3, 0.0);
        let windows = TracePace::Windows { one_in: 2, with_irqs: false };
        assert_eq!(TracePace::Always.for_rates(&below), TracePace::Always);
        assert_eq!(windows.for_rates(&below), windows);
        assert_eq!(windows.for_rates(&rates(60e3, 0.0)), TracePace::Always);
    }

    proptest! {
        #[test]
        fn pace_keeps_the_budget_unless_windows_are_shortest(
            often in 0.0..5e6_f64,
            irqs in 0.0..1e6_f64,
            before in 0..6_usize,
        ) {
            let one_in = PARTS.get(before).copied();
            let before = one_in.map_or(TracePace::Always, |one_in| TracePace::Windows { one_in, with_irqs: true });
            let pace = before.for_rates(&rates(often, irqs));
            let lead_in = LEAD_IN.as_secs_f64() / PERIOD.as_secs_f64();
            let (switched, stays) = match pace {
                TracePace::Windows { with_irqs: false, .. } => (often, irqs),
                _ => (often + irqs, 0.0),
            };
            let lead_in = if pace == TracePace::Always { 0.0 } else { lead_in };
            let share = (switched * (pace.part() + lead_in) + stays) * 100.0 / 1e9;
            let shortest = TracePace::Windows { one_in: 32, with_irqs: true }.part();
            prop_assert!(share <= BUDGET * 1.0001 || pace.part() <= shortest, "{:?} {}", pace, share);
        }
    }
}
