//! One slot of load, and its outcome.

use std::process::ExitCode;

use anyhow::{Result, bail};
use linerate_load::generator::MAX_INTERVALS;
use linerate_load::report::{ClockOffset, LoadReport};
use linerate_load::{CodeCount, PacingMode, SlotOutcome};

use super::arguments::LimitArgs;
use super::run::{LoadRun, exit_code};
use crate::render::format;
use crate::view::load::code_name;

impl LoadRun {
    /// Offers load once, and reports it.
    pub(crate) fn slot(&mut self, mode: PacingMode) -> Result<ExitCode> {
        let mut slot = self.whole_slot(mode);
        if let PacingMode::Rate { per_second } = mode {
            slot = slot.permit_live_frames(per_second, self.generator.describe().threads);
        }
        slot.check()?;
        self.outputs.write_start(&self.generator.describe())?;
        let outputs = &mut self.outputs;
        let outcome = self.generator.watch(&slot, &mut |interval| outputs.interval(interval))?;
        if outcome.sent == 0 {
            bail!(no_requests_reason(&outcome, &self.targets()));
        }
        let mut warnings = warnings(&outcome);
        if let Some(length) = slot.interval_length().filter(|length| Some(*length) > slot.interval) {
            let seconds = length.as_secs_f64();
            warnings.push(format!(
                "each interval has {seconds:.2} s, because a result has at most {MAX_INTERVALS} intervals"
            ));
        }
        if outcome.duration < slot.duration {
            let (sent_seconds, requested_seconds) =
                (outcome.duration.as_secs_f64(), slot.duration.as_secs_f64());
            warnings.push(format!("interrupted: sent for {sent_seconds:.1} s of {requested_seconds} s"));
        } else if self.interrupt.is_raised() && outcome.lost > 0 {
            let text = "interrupted: did not wait for all replies, so some requests may not be lost";
            warnings.push(text.to_owned());
        }
        let no_reply = self.times.no_reply;
        let missed = self.bounds.missed_thresholds(&outcome);
        let is_success = (outcome.answered > 0 || no_reply) && missed.is_empty();
        let started_unix_seconds = Some(outcome.started_unix_seconds());
        let generator = self.generator.describe();
        let clock = slot.start_at_realtime_ns.and_then(|_| ClockOffset::from_kernel());
        let window_requests = match mode {
            PacingMode::Window { outstanding } => Some(outstanding),
            PacingMode::Rate { .. } | PacingMode::Flood => None,
        };
        let report = LoadReport {
            generator,
            outcome,
            window_requests,
            no_reply,
            missed,
            clock,
            ..LoadReport::default()
        };
        self.finish(started_unix_seconds, report, warnings)?;
        Ok(exit_code(is_success))
    }

    /// The destinations, for an error message.
    pub(crate) fn targets(&self) -> String {
        format::comma_list(self.generator.describe().targets)
    }
}

impl LimitArgs {
    /// The thresholds that an outcome misses, one line each.
    pub(crate) fn missed_thresholds(&self, outcome: &SlotOutcome) -> Vec<String> {
        let mut missed = self.missed_limits(outcome);
        missed.extend(self.missed_rate(replies_per_second(outcome)));
        missed
    }

    /// The limits of loss and latency that an outcome misses.
    pub(crate) fn missed_limits(&self, outcome: &SlotOutcome) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(max_loss) = self.max_loss
            && outcome.unsent_ratio() > max_loss
        {
            let (unsent_text, max_loss_text) =
                (format::percent(outcome.unsent_ratio()), format::percent(max_loss));
            missed.push(format!(
                "{unsent_text} of the requests could not be sent, so --max-loss {max_loss_text} was not shown"
            ));
        }
        if let Some(max_loss) = self.max_loss
            && outcome.loss_ratio() > max_loss
        {
            let (loss_text, max_loss_text) =
                (format::percent(outcome.loss_ratio()), format::percent(max_loss));
            missed.push(format!("{loss_text} of the requests were lost, over --max-loss {max_loss_text}"));
        }
        if let Some(max_p99) = self.max_p99 {
            let max_p99_ns = u64::try_from(max_p99.as_nanos()).unwrap_or(u64::MAX);
            let max_p99_text = format::time_span(max_p99_ns as f64);
            match outcome.latency_ns.quantile(0.99) {
                Some(p99) if p99 <= max_p99_ns => {}
                Some(p99) => {
                    let p99 = format::time_span(p99 as f64);
                    missed.push(format!("99 % were answered within {p99}, over --max-p99 {max_p99_text}"));
                }
                None => missed.push(format!("nothing was answered, so not within --max-p99 {max_p99_text}")),
            }
        }
        missed
    }

    /// The miss of `--min-rate`, if any.
    pub(crate) fn missed_rate(&self, answered_per_second: f64) -> Option<String> {
        let min_rate = self.min_rate.filter(|min_rate| answered_per_second < *min_rate)?;
        let (answered_text, min_rate_text) = (format::rate(answered_per_second), format::rate(min_rate));
        Some(format!("{answered_text}/s were answered, under --min-rate {min_rate_text}/s"))
    }
}

/// The rate for --min-rate. At a paced rate, all replies count, because those to the last requests
/// come after the end.
pub(crate) fn replies_per_second(outcome: &SlotOutcome) -> f64 {
    let Some(requested) = outcome.requested_per_second else { return outcome.answered_per_second };
    let rate = outcome.offered_per_second * (1.0 - outcome.loss_ratio());
    // A schedule has whole requests.
    let one_request = 1.0 / outcome.duration.as_secs_f64().max(1e-9);
    if rate + one_request > requested { rate.max(requested) } else { rate }
}

/// Why nothing was sent.
pub(crate) fn no_requests_reason(outcome: &SlotOutcome, targets: &str) -> String {
    let errors = &outcome.send_errors;
    if errors.nobody_listens() {
        format!("nobody listens on {targets}: connection refused")
    } else if errors.unreachable > 0 {
        format!("no way to {targets}: network or host unreachable")
    } else if let Some(reason) = errors.unsent_reason() {
        format!("nothing could be sent to {targets}: {} requests failed: {reason}", errors.unsent())
    } else {
        format!("nothing was sent to {targets}: interrupted before the first request")
    }
}

pub(crate) fn warnings(outcome: &SlotOutcome) -> Vec<String> {
    let mut warnings: Vec<String> = outcome
        .self_watch
        .bound_because
        .iter()
        .map(|reason| format!("the generator was the limit, rates are lower bounds: {reason}"))
        .collect();
    if outcome.send_errors.rejected > 0 {
        let rejected = format::grouped(outcome.send_errors.rejected);
        warnings.push(format!(
            "a firewall or router on the path rejected {rejected} requests (ICMP); they may exceed its MTU"
        ));
    }
    if outcome.fragmented > 0 {
        let fragmented = format::grouped(outcome.fragmented);
        warnings.push(format!(
            "{fragmented} replies came in fragments, which the XDP backend counts as lost: use --backend socket"
        ));
    }
    warnings.extend(refusals_warning(&outcome.codes));
    if outcome.send_errors.nobody_listens() {
        warnings.push(format!("connection refused {} times: nobody listened", outcome.send_errors.refused));
    }
    if let Some(reason) = outcome.send_errors.unsent_reason() {
        let unsent = format::grouped(outcome.send_errors.unsent());
        warnings.push(format!("{unsent} requests could not be sent: {reason}"));
    }
    if outcome.self_watch.refused_by_link > 0 {
        warnings.push(format!(
            "{} requests found the link's receiving queue full; they count as lost",
            format::grouped(outcome.self_watch.refused_by_link)
        ));
    }
    if outcome.unverified > 0 {
        warnings.push(format!(
            "{} replies came too fast for their authenticator to be checked",
            format::grouped(outcome.unverified)
        ));
    }
    if outcome.unsolicited > 0 {
        warnings
            .push(format!("{} datagrams were no answers to this run", format::grouped(outcome.unsolicited)));
    }
    warnings
}

// Codes of replies that a service gives to requests that it serves.
const SERVED_CODES: [&str; 7] =
    ["NOERROR", "NXDOMAIN", "Access-Accept", "Access-Challenge", "primary", "secondary", "unsynchronized"];

/// Replies count as answers whatever their code. Returns a warning if 1 % of them or more are
/// refusals or failures.
pub(crate) fn refusals_warning(codes: &[CodeCount]) -> Option<String> {
    let refusals: Vec<&CodeCount> = codes
        .iter()
        .filter(|code| code.name.as_deref().is_some_and(|name| !SERVED_CODES.contains(&name)))
        .collect();
    let total: u64 = codes.iter().map(|code| code.count).sum();
    let refused: u64 = refusals.iter().map(|code| code.count).sum();
    let names = format::comma_list(refusals.iter().map(|code| code_name(code)));
    (refused * 100 >= total && refused > 0).then(|| {
        let share = format::percent(refused as f64 / total as f64);
        format!("{share} of the replies were {names}: they count as answers")
    })
}

#[cfg(test)]
mod tests {
    use linerate_load::SendErrors;

    use super::*;
    use crate::render::load_fixtures;
    use std::time::Duration;

    fn limits() -> LimitArgs {
        LimitArgs {
            max_loss: None,
            max_p99: None,
            min_rate: None,
            overload: Vec::new(),
            searches: 3,
            resolution: 0.01,
            slot: Duration::from_millis(500),
            time: Duration::from_secs(300),
        }
    }

    #[test]
    fn min_rate_is_met_by_a_paced_rate_without_losses() {
        let mut limits = limits();
        limits.min_rate = Some(1_000.0);
        let outcome = |answered_per_second, lost| SlotOutcome {
            // The last reply came after the end.
            answered_per_second,
            ..load_fixtures::outcome(1_000.0, lost)
        };
        assert_eq!(limits.missed_thresholds(&outcome(999.0, 0)), [""; 0]);
        assert_eq!(limits.missed_thresholds(&outcome(989.0, 30)).len(), 1);
        let flood = SlotOutcome { requested_per_second: None, ..outcome(999.0, 0) };
        assert_eq!(limits.missed_thresholds(&flood).len(), 1);
    }

    #[test]
    fn replies_that_refuse_are_reported_with_their_codes() {
        let code =
            |name: &str, count| CodeCount { code: 0, name: Some(name.to_owned()), count, truncated: 0 };
        let warning = |codes: &[CodeCount]| refusals_warning(codes).unwrap_or_default();
        assert_eq!(warning(&[code("NOERROR", 995), code("SERVFAIL", 5)]), "");
        assert_eq!(warning(&[]), "");
        let text = warning(&[code("NOERROR", 80), code("SERVFAIL", 15), code("REFUSED", 5)]);
        assert!(text.contains("of the replies were SERVFAIL, REFUSED: they count as answers"), "{text}");
    }

    #[test]
    fn requests_that_did_not_leave_are_reported_and_miss_the_loss_limit() {
        let limits = LimitArgs { max_loss: Some(0.001), ..limits() };
        let mut outcome = load_fixtures::outcome(1_000.0, 0);
        assert!(limits.missed_thresholds(&outcome).is_empty());
        outcome.send_errors = SendErrors { forbidden: 2_000, no_buffers: 1_000, ..SendErrors::default() };
        let warnings = warnings(&outcome);
        let warning = "3,000 requests could not be sent: a filter of this host forbids them";
        assert!(warnings.iter().any(|line| line == warning), "{warnings:?}");
        let missed = limits.missed_thresholds(&outcome);
        assert!(missed[0].contains("could not be sent, so --max-loss"), "{missed:?}");
    }
}
