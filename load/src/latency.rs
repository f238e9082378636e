//! Latency as a mergeable histogram.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as HistogramReader, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

// Longer latencies are counted as this, ns.
const LONGEST_NS: u64 = 60_000_000_000;

/// A distribution of latencies, 1 ns to 60 s with three significant digits.
///
/// Serialized as `count`, `p50`, `p90`, `p99`, `p999` and `max` in nanoseconds, null when empty,
/// and as `histogram`: the whole distribution as HdrHistogram's compressed V2 encoding in base64,
/// which its tools can read, too. Only `histogram` is read back, so that distributions can be
/// merged exactly.
#[derive(Clone, PartialEq)]
pub struct Latency(Histogram<u64>);

impl Latency {
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

    // Adds the same latency `count` times, ns.
    pub(crate) fn record_many(&mut self, latency_ns: u64, count: u64) {
        self.0.saturating_record_n(latency_ns, count);
    }

    /// Adds all samples of another distribution.
    pub fn merge(&mut self, other: &Latency) {
        // Both have the same constant bounds, so the addition cannot fail.
        let merged = self.0.add(&other.0);
        debug_assert!(merged.is_ok());
    }

    /// The samples without those of `part`, which are some of them.
    pub(crate) fn without(&self, part: &Latency) -> Latency {
        let mut rest = self.clone();
        let subtracted = rest.0.subtract(&part.0);
        debug_assert!(subtracted.is_ok());
        rest
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency, ns, that the share `quantile` (0 to 1) of the samples does not exceed. `None`
    /// without samples.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile).min(self.0.max()))
    }

    pub fn quantiles(&self) -> LatencyQuantiles {
        LatencyQuantiles {
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max(),
        }
    }

    fn encode(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(|error| error.to_string())?;
        Ok(BASE64.encode(bytes))
    }

    fn decode(text: &str) -> Result<Self, String> {
        let read_error = |why: &dyn fmt::Display| format!("the histogram cannot be read: {why}");
        let bytes = BASE64.decode(text).map_err(|error| read_error(&error))?;
        let histogram: Histogram<u64> =
            HistogramReader::new().deserialize(&mut bytes.as_slice()).map_err(|error| read_error(&error))?;
        // Recorded again, so that all distributions have the same bounds, independent of the bounds
        // in the text.
        let mut latency = Latency::new();
        for entry in histogram.iter_recorded() {
            latency.0.saturating_record_n(entry.value_iterated_to(), entry.count_at_value());
        }
        Ok(latency)
    }

    /// The median, ns.
    pub fn median(&self) -> Option<u64> {
        self.quantile(0.5)
    }

    // The mean, ns, in which longer latencies count as `longest_ns`; 0 without samples.
    pub(crate) fn mean_up_to(&self, longest_ns: u64) -> f64 {
        let entries = self.0.iter_recorded();
        let sum: f64 = entries
            .map(|entry| entry.value_iterated_to().min(longest_ns) as f64 * entry.count_at_value() as f64)
            .sum();
        sum / self.count().max(1) as f64
    }

    /// The longest latency, ns.
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

#[derive(Serialize, Deserialize)]
struct EncodedLatency {
    count: u64,
    #[serde(flatten, skip_deserializing)]
    quantiles: LatencyQuantiles,
    histogram: String,
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let histogram = self.encode().map_err(S::Error::custom)?;
        EncodedLatency { count: self.count(), quantiles: self.quantiles(), histogram }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let EncodedLatency { count, histogram, .. } = EncodedLatency::deserialize(deserializer)?;
        let latency = Latency::decode(&histogram).map_err(D::Error::custom)?;
        if latency.count() != count {
            let actual_count = latency.count();
            return Err(D::Error::custom(format!(
                "the histogram holds {actual_count} latencies, not {count}"
            )));
        }
        Ok(latency)
    }
}

/// The quantiles of a distribution of latencies, ns; `None` without samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyQuantiles {
    pub p50: Option<u64>,
    /// Nine tenths are not longer.
    pub p90: Option<u64>,
    /// 99 % are not longer.
    pub p99: Option<u64>,
    /// 99.9 % are not longer.
    pub p999: Option<u64>,
    pub max: Option<u64>,
}

impl LatencyQuantiles {
    // Of two distributions only the common maximum is known, unless one is empty.
    pub(crate) fn joined(&self, other: &LatencyQuantiles) -> LatencyQuantiles {
        match (self.max, other.max) {
            (_, None) => *self,
            (None, _) => *other,
            (a, b) => LatencyQuantiles { max: a.max(b), ..LatencyQuantiles::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_without_a_part_are_the_rest() {
        let (mut all, mut part, mut rest) = (Latency::new(), Latency::new(), Latency::new());
        for ns in [1_000, 2_000, u64::MAX] {
            all.record(ns);
            part.record(ns);
        }
        for ns in [2_000, 3_000] {
            all.record(ns);
            rest.record(ns);
        }
        assert_eq!(all.without(&part), rest);
        assert_eq!(all.without(&Latency::new()), all);
        assert_eq!(all.without(&all), Latency::new());
    }

    #[test]
    fn quantiles_without_latencies_are_null() {
        let json = serde_json::to_value(Latency::new()).unwrap();
        assert_eq!(json["count"], 0);
        assert!(json["p50"].is_null() && json["max"].is_null());
    }

    #[test]
    fn latencies_round_trip_through_json() {
        let mut latency = Latency::new();
        for ns in [0, 1, 999, 1_234_567, 98_765_432_101, u64::MAX] {
            latency.record(ns);
        }
        for latency in [latency, Latency::new()] {
            let text = serde_json::to_string(&latency).unwrap();
            assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
        }
    }

    #[test]
    fn parsing_refuses_a_broken_or_miscounted_histogram() {
        let error = |text: &str| serde_json::from_str::<Latency>(text).unwrap_err().to_string();
        assert!(error(r#"{"count": 1}"#).starts_with("missing field `histogram`"));
        for histogram in ["?", "", "AAAA", "HISTFAAAAAB4nJNp"] {
            let text = format!(r#"{{"count": 0, "histogram": "{histogram}"}}"#);
            assert!(error(&text).starts_with("the histogram cannot be read: "), "{histogram}");
        }
        let empty = serde_json::to_string(&Latency::new()).unwrap().replace(r#""count":0"#, r#""count":7"#);
        assert!(error(&empty).starts_with("the histogram holds 0 latencies, not 7"));
    }

    #[test]
    fn latencies_beyond_the_range_count_as_the_longest() {
        let mut latency = Latency::new();
        latency.record(u64::MAX);
        assert_eq!(latency.count(), 1);
        assert!(latency.max().unwrap() >= LONGEST_NS);
    }
}
