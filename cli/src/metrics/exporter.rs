//! Reads a host repeatedly.

use std::time::{Duration, Instant};

use linerate_host::{Diagnosis, Host, HostView, PacketPath, Scope};

use crate::metrics::families::{BUILD_INFO, COLLECTOR_UP, EXPORTER_CPU, FAMILIES, FOLDED, SCRAPE_SECONDS};
use crate::metrics::family::MetricFamily;
use crate::metrics::gather::{CounterReset, GatheredSamples, MetricSelection};
use crate::metrics::packet_tracers::{CostCollector, DropsCollector, HeadroomCollector, MetricCollector};
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
    pub(crate) max_series: u32,
}

/// Default of [`ExporterOptions::max_series`]: enough for 128 CPUs with six modes, and 512 queues.
pub(crate) const MOST_SERIES: u32 = 1024;

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
            max_series: MOST_SERIES,
        }
    }
}

/// A host whose metrics are exported.
#[derive(Debug)]
pub(crate) struct Exporter {
    host: Host,
    scope: Scope,
    selection: MetricSelection,
    tally: MetricTotals,
    before: Option<(Instant, PacketPath)>,
    collectors: Vec<OptionalCollector>,
}

// The name of a collector, and the collector or the reason why it cannot run.
type OptionalCollector = (&'static str, Result<Box<dyn MetricCollector>, String>);

impl Exporter {
    // Exports this host, in the network namespace of the calling thread. Scrapes must run in the
    // same namespace. [`Exporter::unavailable_collectors`] reports collectors of `options` that
    // cannot run.
    pub(crate) fn new(host: Host, options: &ExporterOptions) -> Self {
        let scope = Scope { interfaces: options.interfaces.clone(), ..Scope::default() };
        let selection =
            MetricSelection { ports: options.ports.iter().copied().collect(), pids: options.pids };
        let collectors = [
            options.drops.then(|| ("drops", started(DropsCollector::start(&host, &options.ports)))),
            options.cost.then(|| ("cost", started(CostCollector::start()))),
            options.headroom.then(|| ("headroom", started(HeadroomCollector::start(&options.ports)))),
        ];
        let collectors = collectors.into_iter().flatten().collect();
        let tally = MetricTotals::new(usize::try_from(options.max_series).unwrap_or(usize::MAX));
        Self { host, scope, selection, tally, before: None, collectors }
    }

    // Collectors of [`ExporterOptions`] that cannot run, each with the reason in one line.
    pub(crate) fn unavailable_collectors(&self) -> Vec<(&'static str, String)> {
        let collectors = self.collectors.iter();
        collectors.filter_map(|(name, state)| Some((*name, state.as_ref().err()?.clone()))).collect()
    }

    /// Reads the host, derives findings from this reading and the previous one, and records all
    /// counters.
    pub(crate) fn scrape(&mut self) -> Exposition {
        let begin = Instant::now();
        let ports: Vec<u16> = self.selection.ports.iter().copied().collect();
        let path = PacketPath::observe_ports(&self.host, &self.scope, &ports);
        let before = self.before.as_ref().filter(|(read_at, _)| read_at.elapsed() < LONG_AGO);
        let view = HostView { now: &path, before: before.map(|(_, path)| path) };
        let diagnosis = Diagnosis::of(&view);
        let mut samples = GatheredSamples::from_path(&path, &diagnosis, &self.selection);
        self.before = Some((begin, path));
        self.gather_traced(&mut samples);
        samples.add_gauge(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        let (mut exposition, folded_series) = self.tally.record_scrape(FAMILIES, &samples);
        let rows = folded_series.iter().map(|(family, series)| row(&[family], *series as f64)).collect();
        append_family(&mut exposition, &FOLDED, rows);
        append_family(&mut exposition, &SCRAPE_SECONDS, vec![row(&[], begin.elapsed().as_secs_f64())]);
        exposition
    }

    fn gather_traced(&mut self, samples: &mut GatheredSamples) {
        samples.add_source_counter(&EXPORTER_CPU, &[], (0, CounterReset::Never), process_ns());
        for (name, collector) in &mut self.collectors {
            if let Ok(running) = collector
                && let Err(reason) = running.gather(&self.host, samples)
            {
                *collector = Err(reason);
            }
            samples.add_gauge(&COLLECTOR_UP, &[name], f64::from(u8::from(collector.is_ok())));
        }
    }
}

fn started<C: MetricCollector + 'static, E: ToString>(
    start: Result<C, E>,
) -> Result<Box<dyn MetricCollector>, String> {
    start
        .map(|collector| -> Box<dyn MetricCollector> { Box::new(collector) })
        .map_err(|error| error.to_string())
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
