//! The known benefit of a change, and the order of changes by benefit.

use std::cmp::Reverse;

use linerate_host::stats::ComparisonVerdict;
use linerate_host::{Setting, SettingValue, diagnosis};
use serde::{Deserialize, Serialize};

use super::draft::rank;
use super::{PlannedChange, TunePlan};
use crate::journal::RecordedTune;

/// What is known of the benefit of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeBenefit {
    /// A tune of this host made the change, and its service was measured.
    Here {
        tune: u64,
        verdict: ComparisonVerdict,
        /// The figures that differed.
        summary: String,
        /// Other settings that the same tune changed.
        others: usize,
    },
    /// Throughput with the change in published cases, in percent of that without it.
    Published { percent: u64 },
    #[default]
    Unmeasured,
}

impl ChangeBenefit {
    /// The benefit of changes to these settings for these findings. `tunes` are the tunes of this
    /// host's journal.
    pub fn of<'a>(
        changes: impl IntoIterator<Item = (&'a Setting, &'a SettingValue)>,
        findings: impl IntoIterator<Item = &'a str>,
        tunes: &[RecordedTune],
    ) -> Self {
        let changes: Vec<_> = changes.into_iter().collect();
        let has_made_any = |tune: &&RecordedTune| {
            let is_applied = |(setting, to): &(&Setting, &SettingValue)| {
                tune.tracked(setting).is_some_and(|tracked| tracked.applied.as_ref() == Some(to))
            };
            changes.iter().any(is_applied)
        };
        let latest = tunes.iter().rev().filter(|tune| tune.measured.is_some()).find(has_made_any);
        if let Some((tune, (verdict, summary))) =
            latest.and_then(|tune| Some((tune, tune.measured.as_ref()?)))
        {
            let changed = tune.tracked.iter().filter(|tracked| tracked.wanted.is_some()).count();
            let (verdict, summary) = (*verdict, summary.clone());
            return Self::Here { tune: tune.begun.tune, verdict, summary, others: changed.saturating_sub(1) };
        }
        let ratios = findings.into_iter().filter_map(|id| diagnosis::rule(id)?.published_ratio);
        match ratios.reduce(f64::max) {
            Some(ratio) => Self::Published { percent: (ratio * 100.0).round() as u64 },
            None => Self::Unmeasured,
        }
    }

    /// Greater for changes that should be made earlier.
    fn order(&self) -> (u8, u64) {
        match self {
            Self::Here { verdict: ComparisonVerdict::Better, .. } => (4, 0),
            Self::Published { percent } => (3, *percent),
            Self::Unmeasured => (2, 0),
            Self::Here { verdict: ComparisonVerdict::NoDifferenceShown, .. } => (1, 0),
            Self::Here { verdict: ComparisonVerdict::Worse, .. } => (0, 0),
        }
    }
}

impl TunePlan {
    /// Sets the benefit of each change, and sorts changes with a proven benefit first. Changes that
    /// reset a link stay before all others, and changes of a server's sockets and threads after
    /// them.
    pub fn order_by_benefit(&mut self, tunes: &[RecordedTune]) {
        let held_back = self.held_back.iter_mut().flat_map(|held_back| &mut held_back.changes);
        for change in self.changes.iter_mut().chain(held_back) {
            let findings = change.findings.iter().map(String::as_str);
            change.benefit = ChangeBenefit::of([(&change.setting, &change.to)], findings, tunes);
        }
        self.changes
            .sort_by_key(|change| (phase(change), Reverse(change.benefit.order()), rank(&change.setting)));
    }
}

/// Changes of one phase do not depend on each other.
fn phase(change: &PlannedChange) -> u8 {
    match rank(&change.setting) {
        first @ 0..=1 => first,
        last @ 11.. => last,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysctl(name: &str, finding: &str) -> PlannedChange {
        let setting = serde_json::from_value(serde_json::json!({ "sysctl": name })).expect("a setting");
        let findings = vec![finding.to_owned()];
        let (from, to) = (SettingValue::new("0"), SettingValue::new("1"));
        PlannedChange { findings, ..PlannedChange::new(setting, from, to, "A test.") }
    }

    fn names(plan: &TunePlan) -> Vec<String> {
        plan.changes.iter().map(|change| change.setting.to_string()).collect()
    }

    #[test]
    fn published_benefits_sort_by_size_before_unmeasured_changes() {
        let mut rules: Vec<_> = diagnosis::rules().filter(|rule| rule.published_ratio.is_some()).collect();
        rules.sort_by(|left, right| {
            left.published_ratio.partial_cmp(&right.published_ratio).expect("numbers")
        });
        let (least, most) = (rules[0], rules[rules.len() - 1]);
        let mut plan = TunePlan::new("a test");
        plan.changes = vec![
            sysctl("net.core.netdev_budget", "a.finding"),
            sysctl("net.core.netdev_max_backlog", least.id),
            sysctl("net.core.rmem_max", most.id),
        ];
        plan.order_by_benefit(&[]);
        assert_eq!(
            names(&plan),
            ["net.core.rmem_max", "net.core.netdev_max_backlog", "net.core.netdev_budget"]
        );
        assert_eq!(plan.changes[2].benefit, ChangeBenefit::Unmeasured);
    }

    #[test]
    fn changes_measured_better_sort_first_and_worse_sort_last() {
        let measured_here =
            |verdict| ChangeBenefit::Here { tune: 1, verdict, summary: String::new(), others: 0 };
        let mut order = [
            measured_here(ComparisonVerdict::Worse),
            ChangeBenefit::Published { percent: 120 },
            measured_here(ComparisonVerdict::NoDifferenceShown),
            ChangeBenefit::Unmeasured,
            measured_here(ComparisonVerdict::Better),
            ChangeBenefit::Published { percent: 300 },
        ];
        order.sort_by_key(|benefit| Reverse(benefit.order()));
        assert_eq!(order[0], measured_here(ComparisonVerdict::Better));
        assert_eq!(
            order[1..4],
            [
                ChangeBenefit::Published { percent: 300 },
                ChangeBenefit::Published { percent: 120 },
                ChangeBenefit::Unmeasured,
            ]
        );
        assert_eq!(order[5], measured_here(ComparisonVerdict::Worse));
    }
}
