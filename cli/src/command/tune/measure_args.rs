//! `--measure` of `tune apply` and `boost apply`: the effect of the changes on the service of this
//! host.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use linerate_host::{Host, Known, PacketPath};
use linerate_tune::journal::record::UndoReason;
use linerate_tune::journal::{JournalRecord, StateStore};
use linerate_tune::measure::{
    ChangeMeasurement, MeasuredService, ServiceMeter, ServiceSample, ServiceWindow, WindowOrder,
};
use linerate_tune::transaction::UndoReport;

use super::apply::runner::AppliedTune;
use super::arguments::ConsentMode;
use super::generated_load::{GeneratedLoad, GeneratedLoadArgs};
use crate::interrupt::InterruptFlag;
use crate::render::format::comma_list;
use crate::view;

/// Samples of a window.
const SAMPLES: usize = 8;
/// Length of a sample.
const SAMPLE: Duration = Duration::from_millis(500);
/// Length of a sample if no measurement was requested, which must be short then.
const SHORT_SAMPLE: Duration = Duration::from_millis(250);
/// Time after a switch that belongs to neither configuration.
const SETTLING: Duration = Duration::from_millis(500);
/// A service with fewer datagrams per sample is not measured.
const ENOUGH: u64 = 100;

#[derive(Debug, Clone, Args)]
pub(crate) struct MeasureArgs {
    /// Measure the service before and after the changes [default: 2 s before and 2 s after, if datagrams come to it,
    /// without an effect on the exit status]
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "once")]
    measure: Option<MeasureMode>,
    /// Undo the changes at once if they are measured to be worse, or cannot be measured
    #[arg(long)]
    keep_if_better: bool,
    #[command(flatten)]
    load: GeneratedLoadArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MeasureMode {
    /// 4 s before and 4 s after
    Once,
    /// 4 s before, 8 s with the changes, 4 s after an undo; then the changes are made again
    Alternate,
    /// Do not measure
    Never,
}

/// A measurement whose window before the changes is complete.
pub(crate) struct StartedMeasurement<'a> {
    meter: ServiceMeter<'a>,
    order: WindowOrder,
    sample: Duration,
    windows: Vec<ServiceWindow>,
    load: Option<&'a GeneratedLoad>,
    interrupt: &'a InterruptFlag,
}

impl MeasureArgs {
    /// Whether the changes are undone and made again for the measurement.
    pub(crate) fn alternates(&self) -> bool {
        self.measure == Some(MeasureMode::Alternate)
    }

    /// Whether the measurement may undo the tune.
    pub(crate) fn may_undo(&self) -> bool {
        self.alternates() || self.keep_if_better
    }

    /// Whether changes must not be made without a measurement.
    fn is_required(&self) -> bool {
        self.keep_if_better
            || self.load.is_given()
            || !matches!(self.measure, None | Some(MeasureMode::Never))
    }

    pub(crate) fn is_given(&self) -> bool {
        self.keep_if_better || self.measure.is_some() || self.load.is_given()
    }

    /// Skips the measurement for this reason.
    ///
    /// # Errors
    /// If a measurement is required.
    pub(crate) fn without_measurement<T>(&self, reason: impl Into<String>) -> Result<Result<T, String>> {
        let reason = reason.into();
        if self.is_required() {
            bail!("nothing was changed: the service cannot be measured: {reason}");
        }
        Ok(Err(reason))
    }

    /// Fails if the options contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let option = if self.keep_if_better { "--keep-if-better" } else { "--from" };
        if self.measure == Some(MeasureMode::Never) && (self.keep_if_better || self.load.is_given()) {
            bail!("{option} requires a measurement, which --measure=never excludes");
        }
        Ok(())
    }

    /// Starts the load of `--from`. It ends when it is dropped.
    ///
    /// # Errors
    /// If a host cannot be reached, or no load arrives.
    pub(crate) fn generate(&self, interrupt: &InterruptFlag) -> Result<Option<GeneratedLoad>> {
        self.load.start(interrupt)
    }

    /// Measures the window before the changes; the inner error is the reason if the service is not
    /// measured.
    ///
    /// # Errors
    /// If a measurement is required and cannot be made.
    pub(crate) fn begin<'a>(
        &self,
        host: &'a Host,
        path: &PacketPath,
        service: MeasuredService,
        load: Option<&'a GeneratedLoad>,
        interrupt: &'a InterruptFlag,
    ) -> Result<Result<StartedMeasurement<'a>, String>> {
        if self.measure == Some(MeasureMode::Never) {
            return Ok(Err("--measure=never".to_owned()));
        }
        let meter = ServiceMeter::start(host, path, service).map_err(|error| error.to_string());
        let order = if self.alternates() { WindowOrder::Alternate } else { WindowOrder::Once };
        let sample = if self.is_required() { SAMPLE } else { SHORT_SAMPLE };
        let first_window = meter.and_then(|meter| {
            StartedMeasurement { meter, order, sample, windows: Vec::new(), load, interrupt }.measure_before()
        });
        match first_window {
            Ok(first_window) => Ok(Ok(first_window)),
            Err(reason) => self.without_measurement(reason),
        }
    }

    /// Whether a requested measurement shows harm or failed, which determines the exit status.
    pub(crate) fn shows_harm(&self, measurement: &Known<ChangeMeasurement>) -> bool {
        self.is_required() && measurement.value().is_none_or(ChangeMeasurement::is_worse)
    }

    /// Why to undo changes that are all made and in effect: with `--keep-if-better` because they are
    /// worse or could not be measured, otherwise after a prompt on a terminal.
    pub(crate) fn undo_reason(
        &self,
        measurement: &Known<ChangeMeasurement>,
        consent: ConsentMode,
        interrupt: &InterruptFlag,
    ) -> Result<Option<UndoReason>> {
        let Some(measurement) = measurement.value() else {
            return Ok(self.keep_if_better.then_some(UndoReason::Unmeasured));
        };
        let question = "the service is worse than before: undo the changes?";
        let undoes = measurement.is_worse()
            && (self.keep_if_better || consent.prompts() && consent.confirm(question, interrupt)?);
        Ok(undoes.then_some(UndoReason::Harmful))
    }
}

/// Whether an undo of the tune has begun: by this call, by its guard, or by another command.
pub(crate) fn is_undone(store: &StateStore, tune: u64) -> Result<bool> {
    Ok(store.read()?.tune(tune).is_some_and(|recorded| recorded.undo.is_some()))
}

impl StartedMeasurement<'_> {
    /// Measures the window before the changes. The first sample shows whether the service is idle.
    fn measure_before(mut self) -> Result<Self, String> {
        let first = self.next_sample()?;
        let datagrams = first.offered();
        if datagrams < ENOUGH {
            let seconds = self.sample.as_secs_f64();
            return Err(format!(
                "{datagrams} datagrams came to it in {seconds} s, and {ENOUGH} are required"
            ));
        }
        let ports = comma_list(&self.meter.service().ports);
        status_line!("measuring the service on UDP port {ports} before the changes");
        let samples = [vec![first], self.samples(SAMPLES - 1)?].concat();
        self.windows.push(ServiceWindow { changed: false, samples });
        Ok(self)
    }

    /// Measures a window after a switch. In alternation the window with the changes has twice as
    /// many samples, because it is followed by a window without them.
    fn measure(&mut self, with_changes: bool) -> Result<(), String> {
        let state_text = if with_changes { "with the changes" } else { "without the changes" };
        status_line!("measuring the service {state_text}");
        let _ = self.interrupt.wait(Some(SETTLING));
        let is_doubled = with_changes && self.order == WindowOrder::Alternate;
        let samples = self.samples(if is_doubled { 2 * SAMPLES } else { SAMPLES })?;
        self.windows.push(ServiceWindow { changed: with_changes, samples });
        Ok(())
    }

    fn samples(&mut self, count: usize) -> Result<Vec<ServiceSample>, String> {
        (0..count).map(|_| self.next_sample()).collect()
    }

    fn next_sample(&mut self) -> Result<ServiceSample, String> {
        let wait = |time| drop(self.interrupt.wait(Some(time)));
        let mut sample = self.meter.sample(self.sample, wait).map_err(|error| error.to_string())?;
        if self.interrupt.is_raised() {
            return Err("the measurement was interrupted".to_owned());
        }
        let client_latency = self.load.map(GeneratedLoad::latest).transpose()?.flatten();
        // Quantiles of several hosts cannot be joined.
        if let Some((Some(p50), Some(p99))) = client_latency.map(|latency| (latency.p50, latency.p99)) {
            (sample.reply_p50_ns, sample.reply_p99_ns) = (Some(p50 as f64), Some(p99 as f64));
        }
        Ok(sample)
    }

    /// Measures a tune and judges. In alternation, undoes the tune and makes it again, so that
    /// `applied_tune` is another tune afterwards. Returns the undo if the measurement broke off after
    /// it.
    pub(crate) fn complete<'t>(
        mut self,
        store: &StateStore,
        applied_tune: &mut AppliedTune<'t>,
        undo: impl FnOnce(u64) -> Result<UndoReport>,
        apply_again: impl FnOnce() -> Result<AppliedTune<'t>>,
    ) -> Result<(Known<ChangeMeasurement>, Option<UndoReport>)> {
        let not_measured = |reason: &str| Ok((Known::unknown(reason), None));
        if applied_tune.broke_off.is_some() {
            return not_measured("not all changes were made");
        }
        if let Err(reason) = self.measure(true) {
            return not_measured(&reason);
        }
        if is_undone(store, applied_tune.id)? {
            return not_measured("an undo began before the measurement ended");
        }
        if self.order == WindowOrder::Alternate {
            let undo_report = undo(applied_tune.id)?;
            if let Err(reason) = self.measure(false) {
                status_line!("tune {} is undone", applied_tune.id);
                applied_tune.broke_off =
                    Some(format!("the measurement broke off while the changes were undone ({reason})"));
                return Ok((Known::unknown(reason), Some(undo_report)));
            }
            *applied_tune = apply_again()?;
            if applied_tune.broke_off.is_some() {
                return not_measured("the changes could not be made again");
            }
        }
        Ok((Known::Value(self.finish(store, applied_tune.id)?), None))
    }

    /// Judges the windows, and adds the verdict to the journal, so that later plans refer to it.
    fn finish(self, store: &StateStore, tune: u64) -> Result<ChangeMeasurement> {
        let load_per_second = self.load.map(|load| load.per_second);
        let service = self.meter.service().clone();
        let measurement = ChangeMeasurement::new(service, self.order, load_per_second, self.windows);
        store.lock_waiting()?.append(JournalRecord::Measured {
            tune,
            verdict: measurement.verdict,
            summary: view::measurement::summary(&measurement),
        })?;
        Ok(measurement)
    }
}
