//! `--search`: the highest paced rate that holds.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use linerate_host::{Host, netlink};
use linerate_load::capacity::{
    self, CapacitySample, ProbeVerdict, RepeatedCapacity, SearchEnd, SearchEvent, SearchOptions,
};
use linerate_load::report::{SearchMethod, SearchReport};
use linerate_load::{BoundReason, GeneratorDescription, SendMethod, stats};

use super::arguments::LimitArgs;
use super::run::{LoadRun, exit_code};
use super::slot::refusals_warning;
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
        let max_loss = bounds.max_loss.unwrap_or(DEFAULT_MAX_LOSS);
        let cancel = self.interrupt.flag();
        self.outputs.write_start(&self.generator.describe())?;
        self.outputs.live.note(PROBE_HEADER);
        let outputs = RefCell::new(&mut self.outputs);
        let observer = |event: SearchEvent<'_>| {
            if let SearchEvent::Offered(offered_probe) = event {
                let mut outputs = outputs.borrow_mut();
                outputs.live.note(&probe(offered_probe));
                outputs.event("probe", offered_probe);
            }
        };
        let options = SearchOptions {
            max_loss,
            max_p99: bounds.max_p99,
            growth: bounds.resolution / 2.0,
            slot: bounds.slot,
            lead_in: bounds.slot / 2,
            confirm_stretch: CONFIRM_STRETCH,
            excused: EXCUSED,
            drain: self.times.drain(),
            resolution: 1.0 + bounds.resolution,
            budget: bounds.time,
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
        let is_missed = |min_rate: &f64| capacity_rate < *min_rate && !capacity.is_unknown();
        let Some(min_rate) = self.min_rate.filter(is_missed) else {
            return Vec::new();
        };
        let (capacity_text, min_text) = (format::rate(capacity_rate), format::rate(min_rate));
        vec![if capacity.generator_bound || capacity.neighbourhood.ended == SearchEnd::Cancelled {
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
        let reasons: Vec<&BoundReason> = capacity.bound_because.iter().collect();
        // Next to a property of the path, the generator's own limit is a reason, too.
        let shown_reasons = match reasons[..] {
            [.., _, BoundReason::ServerDeliversReplies] => &reasons[reasons.len() - 2..],
            _ => &reasons[reasons.len().saturating_sub(1)..],
        };
        warnings.extend(shown_reasons.iter().map(|reason| match reason {
            BoundReason::NothingHigher | BoundReason::ServerDeliversReplies => {
                format!("capacity is a lower bound: {reason}")
            }
            reason => format!("the generator was the limit, capacity is a lower bound: {reason}"),
        }));
        if reasons.is_empty() {
            warnings.push("the generator was the limit, capacity is a lower bound".to_owned());
        }
    }
    warnings.extend(refusals_warning(&capacity.codes));
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
        warnings.push(format!("no rate holds: {}", no_rate_cause(&capacity.neighbourhood)));
    }
    warnings
}

/// Why no rate holds, by the last rate that was tried.
fn no_rate_cause(search: &CapacitySample) -> String {
    let Some(probe) = search.slots.last() else {
        return "the --time was over before the first request".to_owned();
    };
    let rate_text = format::rate(probe.requested_per_second);
    let errors = &probe.send_errors;
    let silence = |why: String| format!("nothing was answered: {why}");
    match errors.unsent_reason() {
        _ if probe.answered > 0 && search.ended == SearchEnd::OutOfTime => {
            format!("{rate_text}/s does not hold; a longer --time tries lower rates")
        }
        _ if probe.answered > 0 => {
            format!("even the lowest rate does not hold: {rate_text}/s; a longer --slot tries lower rates")
        }
        _ if errors.nobody_listens() => silence("connection refused, nobody listens".to_owned()),
        _ if errors.rejected > 0 => silence("requests were rejected on the way (ICMP)".to_owned()),
        Some(reason) if probe.sent == 0 => format!("no request could be sent: {reason}"),
        _ if probe.fragmented > 0 => {
            silence("replies came in fragments, which only --backend socket counts".to_owned())
        }
        _ if probe.corrupt > 0 => silence(format!(
            "{} datagrams were no valid replies (--workload)",
            format::grouped(probe.corrupt)
        )),
        _ => "nothing was answered".to_owned(),
    }
}

// If this share of requests left late in the failed steps, the search may have been misled.
const LATE_MATTERS: f64 = 0.1;

/// The median share of late requests over all rates that did not hold, without the coarse search.
fn late_ratio_of_failed_probes(capacity: &RepeatedCapacity) -> Option<f64> {
    let probes = capacity.searches.iter().flat_map(|search| &search.slots);
    let failed_probes = probes.filter(|probe| probe.verdict != ProbeVerdict::Holds);
    stats::median(&failed_probes.map(|probe| probe.late_ratio).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use clap::FromArgMatches as _;
    use linerate_load::capacity::ProbeResult;
    use linerate_load::generator::GeneratorOptions;
    use linerate_load::{Latency, SendErrors};

    use super::*;

    fn probe() -> ProbeResult {
        ProbeResult {
            requested_per_second: 40.0,
            offered_per_second: 40.0,
            answered_per_second: 0.0,
            sent: 20,
            answered: 0,
            loss_ratio: 1.0,
            steady_loss_ratio: None,
            codes: Vec::new(),
            corrupt: 0,
            fragmented: 0,
            send_errors: SendErrors::default(),
            late_ratio: 0.0,
            latency_ns: Latency::new(),
            verdict: ProbeVerdict::NothingAnswered,
            send_method: SendMethod::Datagrams,
            bound_because: Vec::new(),
        }
    }

    #[test]
    fn a_search_that_was_interrupted_at_its_begin_misses_no_threshold() {
        let cancel = AtomicBool::new(true);
        let options = SearchOptions { cancel: Some(&cancel), ..SearchOptions::default() };
        let target = "127.0.0.1:9".parse().expect("an address");
        let mut generator = GeneratorOptions::new(vec![target]).start_socket().expect("a generator");
        let capacity = capacity::search_repeatedly(&mut *generator, &options, 3).expect("a result");
        let arguments = ["linerate", "load", "127.0.0.1:9", "--search", "--min-rate", "10"];
        let matches = crate::tree().try_get_matches_from(arguments).expect("arguments");
        let limits = matches.subcommand_matches("load").map(LimitArgs::from_arg_matches).expect("load");
        let limits = limits.expect("limits");
        assert!(limits.thresholds_missed_by_search(&capacity).is_empty());
        let neighbourhood =
            CapacitySample { ended: SearchEnd::NothingHolds, ..capacity.neighbourhood.clone() };
        let silent = RepeatedCapacity { neighbourhood, ..capacity };
        assert_eq!(limits.thresholds_missed_by_search(&silent).len(), 1);
    }

    #[test]
    fn the_reason_why_no_rate_holds_is_named() {
        // The budget is zero, so nothing is sent.
        let options = SearchOptions { budget: Duration::ZERO, ..SearchOptions::default() };
        let target = "127.0.0.1:9".parse().expect("an address");
        let generator = GeneratorOptions::new(vec![target]).start_socket();
        let empty = capacity::search(&mut *generator.expect("a generator"), &options).expect("a result");
        assert!(no_rate_cause(&empty).starts_with("the --time was over before"));
        let errors = |errors| ProbeResult { send_errors: errors, ..probe() };
        for (last_probe, expected) in [
            (probe(), "nothing was answered"),
            (errors(SendErrors { refused: 3, ..SendErrors::default() }), "nobody listens"),
            (errors(SendErrors { rejected: 3, ..SendErrors::default() }), "rejected on the way"),
            (
                ProbeResult { sent: 0, ..errors(SendErrors { forbidden: 3, ..SendErrors::default() }) },
                "no request could be sent: a filter of this host",
            ),
            (ProbeResult { corrupt: 1_200, ..probe() }, "1,200 datagrams were no valid replies"),
            (ProbeResult { fragmented: 5, ..probe() }, "fragments"),
            (ProbeResult { answered: 5, ..probe() }, "/s does not hold; a longer --time"),
        ] {
            let search = CapacitySample { slots: vec![last_probe], ..empty.clone() };
            assert!(no_rate_cause(&search).contains(expected), "{}", no_rate_cause(&search));
        }
        let lowest = CapacitySample {
            slots: vec![ProbeResult { answered: 5, ..probe() }],
            ended: SearchEnd::NothingHolds,
            ..empty
        };
        assert!(no_rate_cause(&lowest).contains("a longer --slot tries lower rates"));
    }
}
