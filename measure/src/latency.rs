//! Latency as a mergeable histogram.

use std::fmt;

use crate::outcome::Quantiles;
use hdrhistogram::Histogram;
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// The longest latency told apart, ns; longer ones are counted as this.
const LONGEST_NS: u64 = 60_000_000_000;

/// A distribution of latencies, 1 ns to 60 s with three significant digits.
///
/// Serialized as `count`, `p50`, `p90`, `p99`, `p999` and `max` in nanoseconds; the quantiles are null when empty.
#[derive(Clone, PartialEq)]
pub struct Latency(Histogram<u64>);

impl Latency {
    /// Without samples.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .expect("constant bounds: high is more than twice low, and the digits are within 0..=5");
        Latency(histogram)
    }

    /// Adds one latency, ns.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns);
    }

    /// Adds all of another distribution.
    pub fn merge(&mut self, other: &Latency) {
        // Both have the same constant bounds, so that there is nothing to refuse.
        let merged = self.0.add(&other.0);
        debug_assert!(merged.is_ok());
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency, ns, that the share `quantile` (0 to 1) of the samples does not exceed; none without samples.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile).min(self.0.max()))
    }

    /// The usual quantiles.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max(),
        }
    }

    /// The median, ns.
    pub fn median(&self) -> Option<u64> {
        self.quantile(0.5)
    }

    /// The longest, ns.
    pub fn max(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.max())
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Latency", 6)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("p50", &self.quantile(0.5))?;
        fields.serialize_field("p90", &self.quantile(0.9))?;
        fields.serialize_field("p99", &self.quantile(0.99))?;
        fields.serialize_field("p999", &self.quantile(0.999))?;
        fields.serialize_field("max", &self.max())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_is_as_if_recorded_together() {
        let (mut a, mut b, mut both) = (Latency::new(), Latency::new(), Latency::new());
        for ns in 1..1_000u64 {
            a.record(ns * 1_000);
            b.record(ns * 3_000_000);
            both.record(ns * 1_000);
            both.record(ns * 3_000_000);
        }
        a.merge(&b);
        assert_eq!(a, both);
    }

    #[test]
    fn empty_is_null_not_zero() {
        let json = serde_json::to_value(Latency::new()).unwrap();
        assert_eq!(json["count"], 0);
        assert!(json["p50"].is_null() && json["max"].is_null());
    }

    #[test]
    fn beyond_the_range_counts_as_the_longest() {
        let mut latency = Latency::new();
        latency.record(u64::MAX);
        latency.record(0);
        assert_eq!(latency.count(), 2);
        assert!(latency.max().unwrap() >= LONGEST_NS);
    }
}
