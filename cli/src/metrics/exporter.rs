//! Reads a host repeatedly.

use std::time::{Duration, Instant};

use linerate_host::{Diagnosis, Host, HostView, PacketPath, Scope};

use crate::metrics::families::{BUILD_INFO, COLLECTOR_UP, EXPORTER_CPU, FAMILIES, FOLDED, SCRAPE_SECONDS};
use crate::metrics::family::MetricFamily;
use crate::metrics::gather::{CounterReset, GatheredSamples, MetricSelection};
use crate::metrics::packet_tracers::{CostCollector, DropsCollector, HeadroomCollector};
use crate::metrics::totals::{ExposedSeries, Exposition, MetricTotals, MetricValue};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExporterOptions {
    /// Interfaces by name. Empty: as [`Scope`] chooses.
    pub(crate) interfaces: Vec<String>,
    /// Services on these ports. Empty: all services that are not on the loopback.
    pub(crate) ports: Vec<u16>,
    /// Whether threads are distinguished by their ids.
    pub(crate) pids: bool,
    // Whether to count the places where the kernel drops packets.
    pub(crate) drops: bool,
    /// Whether to measure the CPU time of packet processing.
    pub(crate) cost: bool,
    /// Whether to estimate the headroom of the ports.
    pub(crate) headroom: bool,
    // Maximum number of series per family. The excess series become one.
    pub(crate) most_series: usize,
    /// Version of the program.
    pub(crate) version: String,
}

// Default of the most series of a family: enough for 128 CPUs with six modes, and 512 queues.
const MOST_SERIES: usize = 1024;

// Two readings further apart than this are judged each by itself, because their difference
// describes a time long past.
const LONG_AGO: Duration = Duration::from_secs(600);

impl Default for ExporterOptions {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            ports: Vec::new(),
            pids: false,
            drops: false,
            cost: false,
            headroom: false,
            most_series: MOST_SERIES,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// A host whose metrics are exported.
#[derive(Debug)]
pub(crate) struct Exporter {
    host: Host,
    scope: Scope,
    wanted: MetricSelection,
    version: String,
    tally: MetricTotals,
    before: Option<(Instant, PacketPath)>,
    // The optional collectors, or the reason why one cannot run.
    drops: Option<Result<DropsCollector, String>>,
    cost: Option<Result<CostCollector, String>>,
    headroom: Option<Result<HeadroomCollector, String>>,
}

impl Exporter {
    // Exports this host, in the network namespace of the calling thread. Scrapes must run in the
    // same namespace. [`Exporter::unavailable_collectors`] reports collectors of `options` that
    // cannot run.
    #[must_use]
    pub(crate) fn new(host: Host, options: &ExporterOptions) -> Self {
        // A scope has one port. With several ports, all services are read and filtered later.
        let port = if let [port] = options.ports.as_slice() { Some(*port) } else { None };
        let scope = Scope { interfaces: options.interfaces.clone(), port, pid: None };
        let selection =
            MetricSelection { ports: options.ports.iter().copied().collect(), pids: options.pids };
        let drops = options
            .drops
            .then(|| DropsCollector::start(&host, &options.ports).map_err(|error| error.to_string()));
        let cost = options.cost.then(|| CostCollector::start().map_err(|error| error.to_string()));
        let headroom = options.headroom.then(|| HeadroomCollector::start(&options.ports));
        let (version, totals) = (options.version.clone(), MetricTotals::new(options.most_series));
        Self { host, scope, wanted: selection, version, tally: totals, before: None, drops, cost, headroom }
    }

    // Collectors of [`ExporterOptions`] that cannot run, each with the reason in one line.
    #[must_use]
    pub(crate) fn unavailable_collectors(&self) -> Vec<(&'static str, String)> {
        let drops = self.drops.as_ref().and_then(|drops| drops.as_ref().err());
        let cost = self.cost.as_ref().and_then(|cost| cost.as_ref().err());
        let headroom = self.headroom.as_ref().and_then(|headroom| headroom.as_ref().err());
        let pairs = [("drops", drops), ("cost", cost), ("headroom", headroom)];
        pairs.into_iter().filter_map(|(name, reason)| Some((name, reason?.clone()))).collect()
    }

    /// Reads the host, derives findings from this reading and the previous one, and records all
    /// counters.
    pub(crate) fn scrape(&mut self) -> Exposition {
        let begin = Instant::now();
        let path = PacketPath::observe(&self.host, &self.scope);
        let before = self.before.as_ref().filter(|(read_at, _)| read_at.elapsed() < LONG_AGO);
        let view = HostView { now: &path, before: before.map(|(_, path)| path) };
        let diagnosis = Diagnosis::of(&view);
        let mut samples = GatheredSamples::from_path(&path, &diagnosis, &self.wanted);
        self.before = Some((begin, path));
        self.gather_traced(&mut samples);
        samples.add_gauge(&BUILD_INFO, &[&self.version], 1.0);
        let (mut exposition, folded_series) = self.tally.record_scrape(FAMILIES, &samples);
        let rows = folded_series.iter().map(|(family, series)| row(&[family], *series as f64)).collect();
        append_family(&mut exposition, &FOLDED, rows);
        append_family(&mut exposition, &SCRAPE_SECONDS, vec![row(&[], begin.elapsed().as_secs_f64())]);
        exposition
    }

    fn gather_traced(&mut self, samples: &mut GatheredSamples) {
        samples.add_source_counter(&EXPORTER_CPU, &[], (0, CounterReset::Never), process_ns());
        let host = &self.host;
        let drops = self
            .drops
            .as_mut()
            .map(|drops| ("drops", gather_with(drops, |drops| drops.gather(host, samples))));
        let cost = self.cost.as_mut().map(|cost| ("cost", gather_with(cost, |cost| cost.gather(samples))));
        let headroom = self
            .headroom
            .as_mut()
            .map(|headroom| ("headroom", gather_with(headroom, |headroom| headroom.gather(samples))));
        for (collector, is_up) in [drops, cost, headroom].into_iter().flatten() {
            samples.add_gauge(&COLLECTOR_UP, &[collector], f64::from(u8::from(is_up)));
        }
    }
}

/// Gathers with a collector. Returns whether the collector works.
fn gather_with<T>(
    collector: &mut Result<T, String>,
    gather: impl FnOnce(&mut T) -> Result<(), String>,
) -> bool {
    if let Ok(running) = collector
        && let Err(reason) = gather(running)
    {
        *collector = Err(reason);
    }
    collector.is_ok()
}

fn row(labels: &[&str], value: f64) -> ExposedSeries {
    ExposedSeries {
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        number: MetricValue::Real(value),
    }
}

/// Appends a family whose values are known only at the end of a scrape.
fn append_family(exposition: &mut Exposition, family: &'static MetricFamily, rows: Vec<ExposedSeries>) {
    if !rows.is_empty() {
        exposition.families.push((family, rows));
    }
}

// CPU time of this process, ns.
fn process_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
