//! One slot of load, and its outcome.

use std::process::ExitCode;

use anyhow::{Result, bail};
use linerate_load::report::{ClockOffset, LoadReport};
use linerate_load::{PacingMode, SlotOutcome};

use super::arguments::LimitArgs;
use super::run::{LoadRun, exit};
use crate::render::format;

impl LoadRun {
    /// Offers load once, and reports it.
    pub(crate) fn slot(&mut self, mode: PacingMode) -> Result<ExitCode> {
        let mut slot = self.times.slot(mode);
        if let PacingMode::Rate { per_second } = mode {
            slot = slot.fast_enough(per_second, self.generator.describe().threads);
        }
        slot.check()?;
        self.outputs.started(&self.generator.describe())?;
        let outputs = &mut self.outputs;
        let outcome = self.generator.watch(&slot, &mut |interval| outputs.interval(interval))?;
        if outcome.sent == 0 {
            bail!(nothing_sent(&outcome, &self.targets()));
        }
        let mut warnings = warnings(&outcome);
        if outcome.duration < slot.duration {
            let (sent, asked) = (outcome.duration.as_secs_f64(), slot.duration.as_secs_f64());
            warnings.push(format!("interrupted: sent for {sent:.1} s of {asked} s"));
        }
        let no_reply = self.times.no_reply;
        let missed = self.bounds.missed(&outcome);
        let fine = (outcome.answered > 0 || no_reply) && missed.is_empty();
        let started = Some(outcome.started_unix_seconds());
        let generator = self.generator.describe();
        let clock = slot.start_at_realtime_ns.and_then(|_| ClockOffset::of_kernel());
        let merged = Vec::new();
        let report = LoadReport { generator, outcome, no_reply, missed, merged, overlap_ratio: None, clock };
        self.finish(started, report, warnings)?;
        Ok(exit(fine))
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
    pub(crate) fn missed(&self, outcome: &SlotOutcome) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(most) = self.max_loss
            && outcome.loss_ratio() > most
        {
            let (lost, most) = (format::percent(outcome.loss_ratio()), format::percent(most));
            missed.push(format!("{lost} of the requests were lost, over --max-loss {most}"));
        }
        if let Some(most) = self.max_p99 {
            let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            let most = format::time_span(most_ns as f64);
            match outcome.latency_ns.quantile(0.99) {
                Some(p99) if p99 <= most_ns => {}
                Some(p99) => {
                    let p99 = format::time_span(p99 as f64);
                    missed.push(format!("99 % were answered within {p99}, over --max-p99 {most}"));
                }
                None => missed.push(format!("nothing was answered, so not within --max-p99 {most}")),
            }
        }
        if let Some(least) = self.min_rate
            && outcome.answered_per_second < least
        {
            let (answered, least) = (format::rate(outcome.answered_per_second), format::rate(least));
            missed.push(format!("{answered}/s were answered, under --min-rate {least}/s"));
        }
        missed
    }
}

/// Why nothing was sent.
pub(crate) fn nothing_sent(outcome: &SlotOutcome, targets: &str) -> String {
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
