//! Numbers of requests that left by one system call.

use std::collections::BTreeMap;

use crate::outcome::SendBursts;

/// Number of calls by the number of requests that left.
#[derive(Debug, Clone, Default)]
pub(super) struct BurstLengths(BTreeMap<u64, u64>);

impl BurstLengths {
    pub(super) fn add(&mut self, length: u64, count: u64) {
        if length > 0 && count > 0 {
            *self.0.entry(length).or_default() += count;
        }
    }

    pub(super) fn merge(&mut self, other: &BurstLengths) {
        for (length, count) in &other.0 {
            *self.0.entry(*length).or_default() += count;
        }
    }

    /// Median and maximum; 0 without bursts.
    pub(super) fn summary(&self) -> SendBursts {
        let total: u64 = self.0.values().sum();
        let mut cumulative_count = 0;
        let median = self.0.iter().find(|(_, count)| {
            cumulative_count += **count;
            cumulative_count * 2 >= total
        });
        SendBursts {
            median_requests: median.map_or(0, |(length, _)| *length),
            max_requests: self.0.keys().next_back().copied().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_median_and_maximum_of_all_bursts() {
        let mut bursts = BurstLengths::default();
        assert_eq!(bursts.summary(), SendBursts::default());
        for length in [1, 1, 100, 4, 4, 4] {
            bursts.add(length, 1);
        }
        assert_eq!(bursts.summary(), SendBursts { median_requests: 4, max_requests: 100 });
        let mut other = BurstLengths::default();
        (0..10).for_each(|_| other.add(1, 1));
        bursts.merge(&other);
        assert_eq!(bursts.summary(), SendBursts { median_requests: 1, max_requests: 100 });
    }
}
