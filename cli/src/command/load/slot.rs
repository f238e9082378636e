//! One slot of load, and its outcome.

use std::process::ExitCode;

use anyhow::{Result, bail};
use linerate_load::report::{ClockOffset, LoadReport};
use linerate_load::{PacingMode, SlotOutcome};

use super::arguments::LimitArgs;
use super::run::{LoadRun, exit_code};
use crate::render::format;

impl LoadRun {
    /// Offers load once, and reports it.
    pub(crate) fn slot(&mut self, mode: PacingMode) -> Result<ExitCode> {
        let mut slot = self.times.slot(mode);
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
        if outcome.duration < slot.duration {
            let (sent_seconds, requested_seconds) =
                (outcome.duration.as_secs_f64(), slot.duration.as_secs_f64());
            warnings.push(format!("interrupted: sent for {sent_seconds:.1} s of {requested_seconds} s"));
        }
        let no_reply = self.times.no_reply;
        let missed = self.bounds.missed_thresholds(&outcome);
        let is_success = (outcome.answered > 0 || no_reply) && missed.is_empty();
        let started_unix_seconds = Some(outcome.started_unix_seconds());
        let generator = self.generator.describe();
        let clock = slot.start_at_realtime_ns.and_then(|_| ClockOffset::from_kernel());
        let merged = Vec::new();
        let report = LoadReport { generator, outcome, no_reply, missed, merged, overlap_ratio: None, clock };
        self.finish(started_unix_seconds, report, warnings)?;
        Ok(exit_code(is_success))
    }

    /// The destinations, for an error message.
    pub(crate) fn targets(&self) -> String {
        let targets: Vec<String> =
            self.generator.describe().targets.iter().map(ToString::to_string).collect();
        targets.join(", ")
    }
}

impl LimitArgs {
    /// The thresholds that an outcome misses, one line each.
    pub(crate) fn missed_thresholds(&self, outcome: &SlotOutcome) -> Vec<String> {
        let mut missed = Vec::new();
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
        if let Some(min_rate) = self.min_rate
            && outcome.answered_per_second < min_rate
        {
            let (answered_text, min_rate_text) =
                (format::rate(outcome.answered_per_second), format::rate(min_rate));
            missed.push(format!("{answered_text}/s were answered, under --min-rate {min_rate_text}/s"));
        }
        missed
    }
}

/// Why nothing was sent.
pub(crate) fn no_requests_reason(outcome: &SlotOutcome, targets: &str) -> String {
    let errors = &outcome.send_errors;
    if errors.nobody_listens() {
        format!("nobody listens on {targets}: connection refused")
    } else if errors.unreachable > 0 {
        format!("no way to {targets}: network or host unreachable")
    } else if errors.total() == 0 {
        format!("nothing was sent to {targets}: interrupted before the first request")
    } else {
        format!("nothing could be sent to {targets}: {} requests failed", errors.total())
    }
}

pub(crate) fn warnings(outcome: &SlotOutcome) -> Vec<String> {
    let mut warnings: Vec<String> = outcome
        .self_watch
        .bound_because
        .iter()
        .map(|reason| format!("the generator was the limit, rates are lower bounds: {reason}"))
        .collect();
    if outcome.send_errors.nobody_listens() {
        warnings.push(format!("connection refused {} times: nobody listened", outcome.send_errors.refused));
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
