//! State that outlives a reading: totals of counters whose sources come and go, and the set of
//! exported series.
//!
//! A counter's total is the sum of its sources' increases. When a source such as a socket goes, the
//! total stays. A new source adds its full count; a source that starts at zero again adds its count
//! since then. A source whose labels change, such as a thread, may have been hidden before: if it is
//! first seen after the first scrape of its family, it adds only its later growth. Therefore a
//! series never shrinks while the exporter runs. A family with too many series keeps the first ones;
//! the others become one series, whose total is the sum of their increases.

use std::collections::{BTreeMap, HashMap};

use crate::metrics::family::{MetricFamily, MetricKind, OTHER, SeriesFold};
use crate::metrics::gather::{CounterReset, GatheredSamples, MetricReading};

// Number of scrapes after which an absent source or series is forgotten. If it returns later, it
// starts at zero.
const REMEMBERED: u64 = 240;

// Groups that folded series may form, for example one per interface; in the excess groups every
// label is `other`.
const GROUPS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct MetricTotals {
    families: BTreeMap<&'static str, FamilyTotals>,
    most: usize,
    scrape: u64,
}

#[derive(Debug, Default)]
struct FamilyTotals {
    first_scrape: Option<u64>,
    sources: HashMap<(Vec<String>, u64), SeriesSource>,
    series: BTreeMap<Vec<String>, SeriesTotal>,
    others: BTreeMap<Vec<String>, SeriesTotal>,
}

#[derive(Debug)]
struct SeriesSource {
    last: u64,
    seen: u64,
}

#[derive(Debug, Default)]
struct SeriesTotal {
    total: u64,
    seen: u64,
}

/// All exported families, in the order of the table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Exposition {
    /// Families with at least one series, and their series.
    pub(crate) families: Vec<(&'static MetricFamily, Vec<ExposedSeries>)>,
}

/// A series and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExposedSeries {
    /// Values of the family's labels, in their order.
    pub(crate) labels: Vec<String>,
    pub(crate) number: MetricValue,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MetricValue {
    Whole(u64),
    Real(f64),
}

impl MetricValue {
    /// The value as a float.
    #[cfg(test)]
    #[expect(clippy::cast_precision_loss, reason = "Prometheus keeps all values as floats")]
    pub(crate) fn value(self) -> f64 {
        match self {
            MetricValue::Whole(count) => count as f64,
            MetricValue::Real(value) => value,
        }
    }
}

impl MetricTotals {
    // `max_series`: series per family, plus one for each group of the excess.
    pub(crate) fn new(max_series: usize) -> Self {
        Self { most: max_series, ..Self::default() }
    }

    /// Records the samples, family by family in the order of `all_families`. Returns the number of folded
    /// series per family.
    pub(crate) fn record_scrape(
        &mut self,
        all_families: &[&'static MetricFamily],
        samples: &GatheredSamples,
    ) -> (Exposition, Vec<(&'static str, usize)>) {
        self.scrape += 1;
        let mut families = Vec::new();
        let mut folded = Vec::new();
        for family in all_families.iter().copied() {
            let readings = samples.readings(family);
            if readings.is_empty() && !self.families.contains_key(family.name) {
                continue;
            }
            let family_totals = self.families.entry(family.name).or_default();
            family_totals.first_scrape.get_or_insert(self.scrape);
            let (rows, folded_count) =
                family_totals.record_readings(family, readings, self.most, self.scrape);
            if folded_count > 0 {
                folded.push((family.name, folded_count));
            }
            if !rows.is_empty() {
                families.push((family, rows));
            }
        }
        (Exposition { families }, folded)
    }
}

impl FamilyTotals {
    fn record_readings(
        &mut self,
        family: &MetricFamily,
        readings: &[MetricReading],
        max_series: usize,
        scrape: u64,
    ) -> (Vec<ExposedSeries>, usize) {
        self.sources.retain(|_, source| source.seen + REMEMBERED > scrape);
        // An absent series keeps its place for the same time, so that folded series do not come and
        // go with it.
        self.series.retain(|_, series| series.seen + REMEMBERED > scrape);
        let mut gauges: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        let mut excess_labels = std::collections::BTreeSet::new();
        for reading in readings {
            let is_listed = self.series.contains_key(&reading.labels) || self.series.len() < max_series;
            let labels = if is_listed {
                reading.labels.clone()
            } else {
                excess_labels.insert(&reading.labels);
                self.group(family.folded_labels(&reading.labels))
            };
            let increase = match family.kind {
                MetricKind::Counter(_) => self.count_increase(reading, scrape),
                MetricKind::Gauge(fold) => {
                    if is_listed || fold != SeriesFold::Omit {
                        join(gauges.entry(labels.clone()).or_insert(f64::NAN), reading.value, fold);
                    }
                    0
                }
            };
            let series_map = if is_listed { &mut self.series } else { &mut self.others };
            let series = series_map.entry(labels).or_default();
            series.total = series.total.wrapping_add(increase);
            series.seen = scrape;
        }
        let rows = match family.kind {
            MetricKind::Counter(scale) => self.totals(scale, scrape),
            MetricKind::Gauge(_) => gauges
                .into_iter()
                .map(|(labels, value)| ExposedSeries { labels, number: MetricValue::Real(value) })
                .collect(),
        };
        (rows, excess_labels.len())
    }

    /// The group that a folded series is in.
    fn group(&self, labels: Vec<String>) -> Vec<String> {
        if self.others.contains_key(&labels) || self.others.len() < GROUPS {
            labels
        } else {
            vec![OTHER.to_owned(); labels.len()]
        }
    }

    /// The growth of a reading's source since the previous scrape.
    fn count_increase(&mut self, reading: &MetricReading, scrape: u64) -> u64 {
        let count = reading.count;
        let labels = if reading.labels_change { Vec::new() } else { reading.labels.clone() };
        let key = (labels, reading.source);
        match self.sources.get_mut(&key) {
            None => {
                self.sources.insert(key, SeriesSource { last: count, seen: scrape });
                let was_hidden = reading.labels_change && self.first_scrape != Some(scrape);
                if was_hidden { 0 } else { count }
            }
            Some(source) => {
                let (last, has_shrunk) = (source.last, count < source.last);
                source.seen = scrape;
                source.last = if has_shrunk && reading.restart == CounterReset::Never { last } else { count };
                let growth_32 = count.wrapping_sub(last) % (1 << 32);
                match reading.restart {
                    _ if !has_shrunk => count - last,
                    CounterReset::At32Bits if last >= 1 << 31 && growth_32 < 1 << 31 => growth_32,
                    CounterReset::At32Bits | CounterReset::Restarted => count,
                    CounterReset::Never => 0,
                }
            }
        }
    }

    /// Counters that have a source in this scrape, and all folded counters.
    fn totals(&self, scale: f64, scrape: u64) -> Vec<ExposedSeries> {
        let now = self.series.iter().filter(|(_, series)| series.seen == scrape);
        let row = |(labels, series): (&Vec<String>, &SeriesTotal)| ExposedSeries {
            labels: labels.clone(),
            number: scaled(series.total, scale),
        };
        now.chain(&self.others).map(row).collect()
    }
}

fn scaled(total: u64, scale: f64) -> MetricValue {
    #[expect(clippy::float_cmp, reason = "it is the constant itself")]
    #[expect(clippy::cast_precision_loss, reason = "Prometheus keeps all values as floats")]
    if scale == 1.0 { MetricValue::Whole(total) } else { MetricValue::Real(total as f64 * scale) }
}

// Adds a gauge's reading to `value`, which starts as NaN.
fn join(value: &mut f64, addend: f64, fold: SeriesFold) {
    *value = match fold {
        _ if value.is_nan() => addend,
        SeriesFold::Sum => *value + addend,
        SeriesFold::Highest => value.max(addend),
        SeriesFold::Omit => addend,
    };
}

#[cfg(test)]
mod tests;
