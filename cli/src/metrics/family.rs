//! Families of metrics: their kind, scope and labels.

use linerate_host::StageName;

/// A family of metrics, as it is in the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MetricFamily {
    /// The name without the suffix `_total` of counters. It ends with the unit.
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    /// The unit in OpenMetrics, such as `seconds` or `packets`; empty for numbers without a unit.
    pub(crate) unit: &'static str,
    /// The labels of each series of the family, in order.
    pub(crate) labels: &'static [&'static str],
    pub(crate) of: MetricScope,
    /// The HELP text: one sentence.
    pub(crate) help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MetricKind {
    /// The value only grows. The factor converts a count of the source to the unit: ticks of
    /// `USER_HZ` are 0.01 s.
    Counter(f64),
    /// The value grows and shrinks. The fold combines several values.
    Gauge(SeriesFold),
}

// How the excess series become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesFold {
    /// The series are added up.
    Sum,
    Highest,
    /// The series are left out, because a combined value means nothing.
    Omit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricScope {
    /// A stage of the packet path.
    Stage(StageName),
    Path,
    /// Findings of doctor's rules.
    Findings,
    /// Packets seen by tracing, with `--with drops`.
    Drops,
    /// CPU time of packet processing, with `--with cost`.
    Cost,
    /// Estimates of capacity, with `--with headroom`.
    Headroom,
    Exporter,
}

// Labels whose values become `other` in the excess series. Other labels, such as an interface or a
// mode, stay.
const FOLDED: [&str; 5] = ["queue", "cpu", "port", "pid", "tid"];

impl MetricFamily {
    /// The name of the series: counters end with `_total`.
    pub(crate) fn series(&self) -> String {
        match self.kind {
            MetricKind::Counter(_) => format!("{}_total", self.name),
            MetricKind::Gauge(_) => self.name.to_owned(),
        }
    }

    /// `counter` or `gauge`.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter(_) => "counter",
            MetricKind::Gauge(_) => "gauge",
        }
    }

    /// The labels of the series into which these labels are folded: a queue becomes `other`, its
    /// interface stays.
    pub(crate) fn folded_labels(&self, labels: &[String]) -> Vec<String> {
        let pairs = self.labels.iter().zip(labels);
        pairs
            .map(|(name, value)| if FOLDED.contains(name) { OTHER.to_owned() } else { value.clone() })
            .collect()
    }
}

/// The value of a label in a folded series.
pub(crate) const OTHER: &str = "other";

impl MetricScope {
    /// Its heading in the documentation.
    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        match self {
            MetricScope::Stage(stage) => stage.name(),
            MetricScope::Path => "path",
            MetricScope::Findings => "findings",
            MetricScope::Drops => "--with drops",
            MetricScope::Cost => "--with cost",
            MetricScope::Headroom => "--with headroom",
            MetricScope::Exporter => "exporter",
        }
    }
}
