//! Reads a host repeatedly.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use linerate_host::{Diagnosis, Host, HostView, PacketPath, Scope};

use crate::metrics::families::{BUILD_INFO, COLLECTOR_UP, EXPORTER_CPU, FAMILIES, FOLDED, SCRAPE_SECONDS};
use crate::metrics::gather::{CounterReset, GatheredSamples};
use crate::metrics::packet_tracers::{CostCollector, DropsCollector, HeadroomCollector, MetricCollector};
use crate::metrics::totals::{ExposedSeries, Exposition, MetricTotals, MetricValue};

// What an exporter reads.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct ExporterOptions {
    /// Network interface; repeatable [default: all with a device]
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    pub(crate) interfaces: Vec<String>,
    /// UDP port of a service; repeatable [default: all services outside the loopback]
    #[arg(short = 'p', long = "port", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ports: Vec<u16>,
    /// Additional metrics, by tracing or per thread
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub(crate) with: Vec<OptionalMetrics>,
    /// Series per metric; further ones are added up in one labeled "other"
    #[arg(long, value_name = "N", default_value_t = MOST_SERIES, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_series: u32,
}

/// Optional metrics that require tracing or create many series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptionalMetrics {
    /// Dropped UDP packets by the kernel's reason; requires CAP_BPF and CAP_PERFMON, and counts
    /// every packet
    Drops,
    /// CPU time that packets take, by victim; requires the same, and at most 1 % of a CPU
    Cost,
    /// Unused part of the capacity of each --port, estimated once a minute; requires the same
    Headroom,
    /// CPU time per serving thread; creates many series
    Pids,
}

/// Default of [`ExporterOptions::max_series`]: enough for 128 CPUs with six modes, and 512 queues.
const MOST_SERIES: u32 = 1024;

// Two readings further apart than this are judged each by itself, because their difference
// describes a time long past.
const LONG_AGO: Duration = Duration::from_secs(600);

impl Default for ExporterOptions {
    fn default() -> Self {
        Self { interfaces: Vec::new(), ports: Vec::new(), with: Vec::new(), max_series: MOST_SERIES }
    }
}

/// A host whose metrics are exported.
#[derive(Debug)]
pub(crate) struct Exporter {
    host: Host,
    options: ExporterOptions,
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
    pub(crate) fn new(host: Host, options: ExporterOptions) -> Self {
        let has = |metrics| options.with.contains(&metrics);
        let ports = &options.ports;
        let collectors = [
            has(OptionalMetrics::Drops).then(|| ("drops", started(DropsCollector::start(&host, ports)))),
            has(OptionalMetrics::Cost).then(|| ("cost", started(CostCollector::start()))),
            has(OptionalMetrics::Headroom).then(|| ("headroom", started(HeadroomCollector::start(ports)))),
        ];
        let collectors = collectors.into_iter().flatten().collect();
        let tally = MetricTotals::new(usize::try_from(options.max_series).unwrap_or(usize::MAX));
        Self { host, options, tally, before: None, collectors }
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
        let scope = Scope { interfaces: self.options.interfaces.clone(), ..Scope::default() };
        let path = PacketPath::observe_ports(&self.host, &scope, &self.options.ports);
        let before = self.before.as_ref().filter(|(read_at, _)| read_at.elapsed() < LONG_AGO);
        let view = HostView { now: &path, before: before.map(|(_, path)| path) };
        let diagnosis = Diagnosis::of(&view);
        let mut samples = GatheredSamples::from_path(&path, &diagnosis, &self.options);
        self.before = Some((begin, path));
        self.gather_traced(&mut samples);
        samples.add_gauge(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        let (mut exposition, folded_series) = self.tally.record_scrape(FAMILIES, &samples);
        // These are known only at the end of a scrape.
        if !folded_series.is_empty() {
            let rows = folded_series.iter().map(|(family, series)| row(&[family], *series as f64)).collect();
            exposition.families.push((&FOLDED, rows));
        }
        exposition.families.push((&SCRAPE_SECONDS, vec![row(&[], begin.elapsed().as_secs_f64())]));
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

// CPU time of this process, ns.
fn process_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
