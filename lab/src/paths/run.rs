//! A comparison of paths, from its configuration to its report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use linerate_host::Known;
use linerate_load::stats;

use super::path_lab::{PathError, PathLab, placement};
use super::recipe::{NetworkPath, PATHS};
use super::report::{PathCost, PathOverload, PathReport, PathsConfig, PathsReport};
use crate::ladder::config::{LadderConfig, RunTiming};
use crate::ladder::error::TestbedError;
use crate::ladder::run::{FIRST_SEARCH, OWN_BRACKET, bracket};
use crate::ladder::sampler::Sampler;
use crate::ladder::summary;
use crate::ladder::testbed::{ConfigurationSamples, SampleRequest, StepSample};

/// Progress of a run.
#[derive(Debug)]
pub enum PathsEvent<'a> {
    /// A path is about to be measured: its capacity, or, with a rate, its CPU time at that rate.
    Path { name: &'static str, at_rate: Option<f64> },
    /// A rate is about to be offered.
    Probe { per_second: f64 },
    /// The capacity of a path was measured, or the path was skipped.
    Done(&'a PathReport),
}

const SEARCH: Duration = Duration::from_millis(1500);
/// A search for a new path starts between these multiples of the capacity of `host`.
const PATH_BRACKET: (f64, f64) = (0.2, 1.25);
/// Share of the lowest capacity at which CPU time is measured.
const COMMON_SHARE: f64 = 0.5;

/// Capacities in alternation with `host`.
#[derive(Default)]
struct PathSamples {
    host: ConfigurationSamples,
    path: ConfigurationSamples,
}

struct PathsRunner<'a> {
    sampler: Sampler<'a>,
    linerate: &'a Path,
    observer: &'a mut dyn FnMut(&PathsEvent<'_>),
    sample_count: u32,
}

/// Measures the paths of `config` in labs. `linerate` is the program that contains the relays.
/// Requires root.
///
/// # Errors
/// If `host` cannot be measured. A path that this machine does not support is reported as skipped,
/// and so are all paths after the run was cancelled.
pub fn run(
    config: &PathsConfig,
    linerate: &Path,
    cancel: &Arc<AtomicBool>,
    observer: &mut dyn FnMut(&PathsEvent<'_>),
) -> Result<PathsReport, PathError> {
    let started = Instant::now();
    let mut ladder = LadderConfig {
        payload_bytes: config.payload_bytes,
        flows: config.flows,
        ..LadderConfig::new(Vec::new(), RunTiming::LAB)
    };
    ladder.resolve_cpus()?;
    let sampler = Sampler { config: &ladder, cancel: Arc::clone(cancel) };
    let mut runner = PathsRunner { sampler, linerate, observer, sample_count: 0 };
    let mut paths = Vec::new();
    let generator;
    {
        let mut host = runner.start(NetworkPath::HOST)?;
        generator = host.generator.describe();
        paths.push(runner.host(&mut host, config.samples)?);
        let is_selected = |path: &&NetworkPath| config.paths.iter().any(|name| name == path.name);
        for path in PATHS[1..].iter().filter(is_selected) {
            paths.push(runner.compare(path, &mut host, config.samples));
        }
    }
    let rates = paths.iter().filter_map(|path| path.transactions_per_second.map(|rate| rate.median));
    let common_rate = rates.min_by(f64::total_cmp).map(|rate| rate * COMMON_SHARE);
    if let Some(rate) = common_rate {
        for report in paths.iter_mut().filter(|path| path.transactions_per_second.is_some()) {
            runner.measure_cost(report, rate);
        }
    }
    Ok(PathsReport {
        elapsed_seconds: started.elapsed().as_secs_f64(),
        config: config.clone(),
        shares_cpus: placement(&ladder.cpus).shared,
        cpus: ladder.cpus.clone(),
        generator: Some(generator),
        common_rate_per_second: common_rate,
        paths,
    })
}

impl PathsRunner<'_> {
    fn start(&mut self, path: &'static NetworkPath) -> Result<PathLab, PathError> {
        self.sampler.check_cancelled()?;
        (self.observer)(&PathsEvent::Path { name: path.name, at_rate: None });
        self.lab(path)
    }

    fn lab(&self, path: &'static NetworkPath) -> Result<PathLab, PathError> {
        PathLab::start(path, self.sampler.config, self.linerate, &self.sampler.cancel)
    }

    /// Measures `host` alone, so that the other paths have a rate to start from.
    fn host(&mut self, lab: &mut PathLab, sample_count: u32) -> Result<PathReport, PathError> {
        let mut samples = ConfigurationSamples::default();
        for _ in 0..sample_count {
            samples.0.push(self.sample(lab, samples.median().map(|rate| (rate, OWN_BRACKET)))?);
        }
        let mut report = empty_report(lab.path);
        report.bridge_netfilter = lab.bridge_netfilter();
        fill(&mut report, &samples);
        (self.observer)(&PathsEvent::Done(&report));
        Ok(report)
    }

    fn compare(&mut self, path: &'static NetworkPath, host: &mut PathLab, sample_count: u32) -> PathReport {
        let mut report = empty_report(path);
        let samples = self.start(path).and_then(|mut lab| {
            report.bridge_netfilter = lab.bridge_netfilter();
            self.alternate(&mut lab, host, sample_count)
        });
        match samples {
            Ok(samples) => {
                fill(&mut report, &samples.path);
                let comparison = stats::compare(&samples.host.rates(), &samples.path.rates());
                report.versus_host =
                    comparison.ok().map(|ratio| summary::versus(NetworkPath::HOST.name, &ratio));
            }
            Err(error) => report.skipped_because = Some(error.to_string()),
        }
        (self.observer)(&PathsEvent::Done(&report));
        report
    }

    /// Samples in the order A B B A, where A is `host`.
    fn alternate(
        &mut self,
        lab: &mut PathLab,
        host: &mut PathLab,
        sample_count: u32,
    ) -> Result<PathSamples, PathError> {
        let mut samples = PathSamples::default();
        for _ in 0..sample_count.div_ceil(2) {
            for is_path in [false, true, true, false] {
                let host_bracket = if is_path { PATH_BRACKET } else { OWN_BRACKET };
                let host_hint = samples.host.median().map(|rate| (rate, host_bracket));
                let path_hint = samples.path.median().filter(|_| is_path).map(|rate| (rate, OWN_BRACKET));
                let hint = path_hint.or(host_hint);
                if is_path {
                    samples.path.0.push(self.sample(lab, hint)?);
                } else {
                    samples.host.0.push(self.sample(host, hint)?);
                }
            }
        }
        Ok(samples)
    }

    /// One capacity, expected near a rate.
    fn sample(
        &mut self,
        lab: &mut PathLab,
        expected_rate: Option<(f64, (f64, f64))>,
    ) -> Result<StepSample, TestbedError> {
        self.sampler.check_cancelled()?;
        self.sample_count += 1;
        let hint = expected_rate.map(|(rate, multiples)| bracket(rate, multiples, self.sample_count));
        let observer = &mut *self.observer;
        let mut on_probe = |per_second| observer(&PathsEvent::Probe { per_second });
        let mut search = |hint, budget| {
            let mut request = SampleRequest { hint, budget, on_probe: &mut on_probe };
            self.sampler.sample(&mut *lab.generator, &mut request, Vec::new())
        };
        let first_sample = search(hint, if hint.is_some() { SEARCH } else { FIRST_SEARCH })?;
        let sample = if first_sample.transactions_per_second > 0.0 {
            first_sample
        } else {
            search(None, FIRST_SEARCH)?
        };
        if sample.transactions_per_second > 0.0 {
            return Ok(sample);
        }
        let loss = self.sampler.config.max_loss_ratio * 100.0;
        Err(TestbedError::Unanswered(format!(
            "no rate held: even at the lowest rate more than {loss} % of the requests were lost, or the machine was busy"
        )))
    }

    fn measure_cost(&mut self, report: &mut PathReport, rate: f64) {
        let (Some(path), Some(capacity)) = (NetworkPath::find(&report.name), report.transactions_per_second)
        else {
            return;
        };
        let lab = self.sampler.check_cancelled().map_err(PathError::from).and_then(|()| {
            (self.observer)(&PathsEvent::Path { name: path.name, at_rate: Some(rate) });
            self.lab(path)
        });
        match lab {
            Ok(mut lab) => {
                report.cost = known(PathCost::measure(&mut lab, rate, &self.sampler.config.cpus));
                report.overload = known(PathOverload::measure(&mut lab, capacity.median));
            }
            Err(error) => {
                (report.cost, report.overload) =
                    (Known::unknown(error.to_string()), Known::unknown(error.to_string()));
            }
        }
    }
}

fn known<T>(measured: Result<Known<T>, TestbedError>) -> Known<T> {
    measured.unwrap_or_else(|error| Known::unknown(error.to_string()))
}

fn empty_report(path: &NetworkPath) -> PathReport {
    PathReport {
        name: path.name.to_owned(),
        about: path.about.to_owned(),
        recipe: path.recipe(),
        skipped_because: None,
        transactions_per_second: None,
        generator_bound: None,
        versus_host: None,
        bridge_netfilter: Known::unknown("not measured"),
        cost: Known::unknown("not measured"),
        overload: Known::unknown("not measured"),
    }
}

fn fill(report: &mut PathReport, samples: &ConfigurationSamples) {
    report.transactions_per_second = summary::estimate(&samples.rates());
    report.generator_bound = samples.0.iter().find_map(|sample| sample.generator_bound.clone());
}
