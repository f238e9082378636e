//! `--search`: the highest paced rate that holds.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use linerate_host::{Host, netlink};
use linerate_load::capacity::{self, ProbeVerdict, RepeatedCapacity, SearchEnd, SearchEvent, SearchOptions};
use linerate_load::report::{SearchMethod, SearchReport};
use linerate_load::{BoundReason, GeneratorDescription, SendMethod, stats};

use super::arguments::LimitArgs;
use super::run::{LoadRun, exit_code, seconds};
use crate::origin;
use crate::render::format;
use crate::view::load::live::{PROBE_HEADER, probe};

const DEFAULT_MAX_LOSS: f64 = 0.001;

// Failures to ignore if something else on the machine may have caused them.
const EXCUSED: u32 = 5;

// A burst allowance hides less of a failure the longer the confirming step lasts.
const CONFIRM_STRETCH: u32 = 3;

impl LoadRun {
    pub(crate) fn search(&mut self) -> Result<ExitCode> {
        let bounds = self.bounds.clone();
        let slot = seconds("slot", bounds.slot)?;
        let max_loss = bounds.max_loss.unwrap_or(DEFAULT_MAX_LOSS);
        let cancel = self.interrupt.flag();
        self.outputs.write_start(&self.generator.describe())?;
        self.outputs.live_intervals().note(PROBE_HEADER);
        let outputs = RefCell::new(&mut self.outputs);
        let observer = |event: SearchEvent<'_>| {
            if let SearchEvent::Offered(offered_probe) = event {
                let mut outputs = outputs.borrow_mut();
                outputs.live_intervals().note(&probe(offered_probe));
                outputs.event("probe", offered_probe);
            }
        };
        let options = SearchOptions {
            max_loss,
            max_p99: bounds.max_p99,
            growth: bounds.resolution / 2.0,
            slot,
            lead_in: slot / 2,
            confirm_stretch: CONFIRM_STRETCH,
            excused: EXCUSED,
            drain: self.times.drain,
            resolution: 1.0 + bounds.resolution,
            budget: seconds("time", bounds.time)?,
            cancel: Some(&cancel),
            observer: Some(&observer),
            ..SearchOptions::default()
        };
        let started_unix_seconds = origin::unix_seconds();
        let mut capacity = capacity::search_repeatedly(&mut *self.generator, &options, bounds.searches)?;
        if capacity.send_method == SendMethod::Datagrams && sends_over_veth(&self.generator.describe()) {
            capacity.generator_bound = true;
            capacity.bound_because.push(BoundReason::ServerDeliversReplies);
        }
        let method = method(&options, bounds.searches);
        self.report(started_unix_seconds, capacity, method)
    }

    fn report(
        &mut self,
        started_unix_seconds: Option<u64>,
        capacity: RepeatedCapacity,
        method: SearchMethod,
    ) -> Result<ExitCode> {
        let mut warnings = warnings(&capacity, &method);
        let (overload, overload_warnings) = self.goodput(capacity.transactions_per_second.median)?;
        warnings.extend(overload_warnings);
        let missed = self.bounds.thresholds_missed_by_search(&capacity);
        let is_success = capacity.transactions_per_second.median > 0.0 && missed.is_empty();
        let generator = self.generator.describe();
        self.finish(
            started_unix_seconds,
            SearchReport { generator, method, capacity, overload, missed },
            warnings,
        )?;
        Ok(exit_code(is_success))
    }
}

/// Whether the first target is reached through a veth pair. Unknown counts as no.
fn sends_over_veth(generator: &GeneratorDescription) -> bool {
    let (host, source) = (Host::live(), generator.sources.first().copied());
    let path = generator.targets.first().and_then(|target| netlink::path_to(&host, target.ip(), source).ok());
    let state = path.and_then(|path| netlink::xdp_state(&host, &path.interface, path.index).ok());
    state.is_some_and(|state| state.driver.value().is_some_and(|driver| driver == "veth"))
}

fn method(options: &SearchOptions<'_>, searches: u32) -> SearchMethod {
    let confirm_slot = (options.slot + options.lead_in) * options.confirm_stretch;
    SearchMethod {
        max_loss_ratio: options.max_loss,
        max_p99_ns: options.max_p99.map(nanoseconds),
        resolution_ratio: options.resolution - 1.0,
        slot_seconds: options.slot.as_secs_f64(),
        lead_in_seconds: options.lead_in.as_secs_f64(),
        confirm_slot_seconds: confirm_slot.as_secs_f64(),
        searches_wanted: searches,
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl LimitArgs {
    /// The thresholds that the search missed or could not reach.
    fn thresholds_missed_by_search(&self, capacity: &RepeatedCapacity) -> Vec<String> {
        let capacity_rate = capacity.transactions_per_second.median;
        let Some(min_rate) = self.min_rate.filter(|min_rate| capacity_rate < *min_rate) else {
            return Vec::new();
        };
        let (capacity_text, min_text) = (format::rate(capacity_rate), format::rate(min_rate));
        vec![if capacity.generator_bound {
            format!(
                "at least {capacity_text}/s hold, and --min-rate {min_text}/s was not shown (see the warning)"
            )
        } else {
            format!("{capacity_text}/s hold, under --min-rate {min_text}/s")
        }]
    }
}

fn warnings(capacity: &RepeatedCapacity, method: &SearchMethod) -> Vec<String> {
    let mut warnings = Vec::new();
    if capacity.generator_bound {
        let bound_reason = capacity.bound_because.last();
        warnings.push(match bound_reason {
            Some(bound_reason @ (BoundReason::NothingHigher | BoundReason::ServerDeliversReplies)) => {
                format!("capacity is a lower bound: {bound_reason}")
            }
            bound_reason => {
                let reason_text = bound_reason.map_or_else(String::new, |reason| format!(": {reason}"));
                format!("the generator was the limit, capacity is a lower bound{reason_text}")
            }
        });
    }
    if let Some(late_ratio) =
        late_ratio_of_failed_probes(capacity).filter(|late_ratio| *late_ratio > LATE_MATTERS)
    {
        let late_text = format::percent(late_ratio);
        warnings.push(format!(
            "the machine was busy: {late_text} of the requests left late where rates did not hold, so capacity may be higher"
        ));
    }
    let (completed, requested) = (capacity.searches.len(), method.searches_wanted);
    let searches = || capacity.searches.iter().chain([&capacity.neighbourhood]);
    let has_ended = |end_reason: SearchEnd| searches().any(|search| search.ended == end_reason);
    if has_ended(SearchEnd::Cancelled) {
        warnings.push(format!("interrupted after {completed} of {requested} searches"));
    } else if capacity.transactions_per_second.median > 0.0 && capacity.confirmed < requested as usize {
        let confirmed = capacity.confirmed;
        warnings.push(format!("{confirmed} of {requested} searches were confirmed: set a longer --time"));
    }
    if capacity.transactions_per_second.median == 0.0 && !has_ended(SearchEnd::Cancelled) {
        let last_slot = capacity.neighbourhood.slots.last();
        let cause = match last_slot.filter(|probe| probe.answered > 0) {
            Some(probe) => {
                let lowest_text = format::rate(probe.requested_per_second);
                format!(
                    "even the lowest rate does not hold: {lowest_text}/s; a longer --slot tries lower rates"
                )
            }
            None => "nothing was answered".to_owned(),
        };
        warnings.push(format!("no rate holds: {cause}"));
    }
    warnings
}

// If this share of requests left late in the failed steps, the search may have been misled.
const LATE_MATTERS: f64 = 0.1;

/// The median share of late requests over all rates that did not hold, without the coarse search.
fn late_ratio_of_failed_probes(capacity: &RepeatedCapacity) -> Option<f64> {
    let probes = capacity.searches.iter().flat_map(|search| &search.slots);
    let failed_probes = probes.filter(|probe| probe.verdict != ProbeVerdict::Holds);
    stats::median(&failed_probes.map(|probe| probe.late_ratio).collect::<Vec<_>>())
}
