//! From a reading of the packet path to samples of the families.

mod findings;
mod host;
mod interfaces;
mod sockets;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use linerate_host::{Diagnosis, PacketPath};

use crate::metrics::exporter::ExporterOptions;
use crate::metrics::family::MetricFamily;

/// Samples by family.
#[derive(Debug, Default)]
pub(crate) struct GatheredSamples {
    readings: BTreeMap<&'static str, Vec<MetricReading>>,
}

/// The value of one source for a family.
#[derive(Debug, Default)]
pub(crate) struct MetricReading {
    pub(crate) labels: Vec<String>,
    /// Identifies the source among all sources of the same series, or of the same family if
    /// `labels_change`; see [`source_id`].
    pub(crate) source: u64,
    /// Whether the source may move to another series of the family.
    pub(crate) labels_change: bool,
    pub(crate) count: u64,
    pub(crate) restart: CounterReset,
    pub(crate) value: f64,
}

/// The meaning of a counter that is less than before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CounterReset {
    /// The counter restarted at zero.
    #[default]
    Restarted,
    /// The counter, or one of those whose sum it is, is 32 bits wide and wrapped. Below half of its
    /// range, it restarted at zero.
    At32Bits,
    // The counter cannot be reset: the kernel's sums of idle time shrink a little at times.
    Never,
}

impl GatheredSamples {
    /// All values of stages and rules.
    pub(crate) fn from_path(path: &PacketPath, diagnosis: &Diagnosis, options: &ExporterOptions) -> Self {
        let mut samples = Self::default();
        host::machine(path, &mut samples);
        interfaces::link(path, &mut samples);
        interfaces::rss(path, &mut samples);
        interfaces::irq(path, &mut samples);
        host::softirq(path, &mut samples);
        host::filter(path, &mut samples);
        host::route(path, &mut samples);
        sockets::services(path, options, &mut samples);
        sockets::thread(path, options, &mut samples);
        interfaces::transmit(path, &mut samples);
        findings::gather(diagnosis, &mut samples);
        samples
    }

    pub(crate) fn readings(&self, family: &MetricFamily) -> &[MetricReading] {
        self.readings.get(family.name).map_or(&[], Vec::as_slice)
    }

    /// Adds a counter of one of the sources of a series, such as one of several sockets. As the other
    /// functions, it adds nothing if the value is unknown.
    pub(crate) fn add_source_counter(
        &mut self,
        family: &'static MetricFamily,
        labels: &[&str],
        (source, restart): (u64, CounterReset),
        count: impl Into<Option<u64>>,
    ) {
        let Some(count) = count.into() else { return };
        self.add(family, labels, MetricReading { source, count, restart, ..MetricReading::default() });
    }

    /// As [`Self::add_source_counter`], for a source that restarts at zero, and that may be in another
    /// series of the family at each reading. A series gets only the increase while the source is in
    /// it.
    pub(crate) fn add_moving_counter(
        &mut self,
        family: &'static MetricFamily,
        labels: &[&str],
        source: u64,
        count: u64,
    ) {
        let reading = MetricReading { source, labels_change: true, count, ..MetricReading::default() };
        self.add(family, labels, reading);
    }

    // Adds a counter that restarts at zero with its source.
    pub(crate) fn add_counter(
        &mut self,
        family: &'static MetricFamily,
        labels: &[&str],
        count: impl Into<Option<u64>>,
    ) {
        self.add_source_counter(family, labels, (0, CounterReset::Restarted), count);
    }

    /// Adds a gauge. The family's fold combines several values of one series.
    pub(crate) fn add_gauge(
        &mut self,
        family: &'static MetricFamily,
        labels: &[&str],
        value: impl Into<Option<f64>>,
    ) {
        let Some(value) = value.into() else { return };
        self.add(family, labels, MetricReading { value, ..MetricReading::default() });
    }

    /// Adds a gauge with a whole number.
    #[expect(clippy::cast_precision_loss, reason = "Prometheus keeps all values as floats")]
    pub(crate) fn add_integer_gauge(
        &mut self,
        family: &'static MetricFamily,
        labels: &[&str],
        value: impl Into<Option<u64>>,
    ) {
        self.add_gauge(family, labels, value.into().map(|value| value as f64));
    }

    fn add(&mut self, family: &'static MetricFamily, labels: &[&str], mut reading: MetricReading) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        reading.labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.readings.entry(family.name).or_default().push(reading);
    }
}

// Distinguishes sources of one series, for example by an inode or an interface's index.
pub(crate) fn source_id(parts: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}
