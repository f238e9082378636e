//! `linerate boost apply`: journals and makes each change, and observes the server again.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use linerate_host::delivery::FlowWatch;
use linerate_host::{Host, Known, PacketPath, Scope};
use linerate_tune::boost::answers;
use linerate_tune::boost::discovery::{ObservationOptions, ObservedServer};
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::boost::replicas;
use linerate_tune::boost::report::{BoostApplyReport, BoostPlanReport, BoostVerification, DeliveryCounts};
use linerate_tune::boost::watch::WatchEvent;
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::measure::MeasuredService;
use linerate_tune::transaction::{self, TuneError, TuneStart, TuneTransaction, UndoReport, boot_seconds};

use super::arguments::{BoostApplyArgs, BoostTargetArgs};
use super::boosts;
use super::observation;
use super::restart::KnownServer;
use super::watch_loop::{self, WatchOutcome};
use crate::command::tune::apply::runner::{AppliedTune, TuneRun};
use crate::command::tune::apply::{check_unfinished_tunes, print_plan, unconfirmed_reason};
use crate::command::tune::confirm;
use crate::command::tune::generated_load::GeneratedLoad;
use crate::command::tune::measure_args::{StartedMeasurement, is_undone};
use crate::document::Document;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget, print_status};
use crate::render::style::TextStyle;
use crate::render::text;
use crate::view;

/// Time of the first observation after the changes, which looks for harm.
const SOON: Duration = Duration::from_millis(500);

/// Interval between checks for a restarted server.
const RESTART: Duration = Duration::from_secs(1);

struct BoostRun {
    target: BoostTargetArgs,
    apply_args: BoostApplyArgs,
    choice: BoostChoice,
    host: Host,
    interrupt: InterruptFlag,
    json: Option<OutputTarget>,
}

pub(super) fn run(target: BoostTargetArgs, apply_args: BoostApplyArgs) -> Result<ExitCode> {
    target.server_query()?;
    must_be_root("apply")?;
    apply_args.consent.check()?;
    apply_args.measuring.check()?;
    let json = OutputTarget::from_option(target.json.as_deref())?;
    let host = Host::live().gently();
    let boost_run = BoostRun {
        choice: target.boost_choice(),
        target,
        apply_args,
        host,
        interrupt: InterruptFlag::install_ignoring_hangup()?,
        json,
    };
    boost_run.run()
}

pub(super) fn must_be_root(subcommand: &str) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "boost {subcommand} acts on another process's sockets and threads, which requires root (CAP_SYS_PTRACE to copy sockets, \
         CAP_BPF and CAP_NET_ADMIN to steer, CAP_SYS_NICE to pin): run it with sudo"
    );
    Ok(())
}

impl BoostRun {
    fn run(mut self) -> Result<ExitCode> {
        let store = self.target.state_dir.store();
        check_unfinished_tunes(&store, &self.host, &self.target.state_dir, false)?;
        // The load starts first, because the server is observed under load.
        let load = self.apply_args.measuring.generate(&self.interrupt)?;
        let discovered = observation::discover(&self.host, &self.target, &self.interrupt)?;
        // Its processes may end before it is watched.
        let known_server = KnownServer::from_observed(&self.host, &discovered.result.server);
        self.choice.is_steered_by_run = replicas::are_copies(&self.host, &discovered.result.server);
        if discovered.result.boost.plan.changes.is_empty() {
            return self.report_nothing_to_change(&discovered, &known_server);
        }
        let BoostPlanReport { server, boost, .. } = &discovered.result;
        if let Some(reason) = self.target.steering_refusal(server, &boost.plan) {
            return self.refuse(&discovered, &reason);
        }
        self.print_plan(&discovered)?;
        let question = format!("{}?", view::boost::change_summary(&discovered.result.boost));
        if self.interrupt.is_raised() || !self.apply_args.consent.confirm(&question, &self.interrupt)? {
            status_line!("nothing was changed");
            self.write_unchanged(&discovered, Some(unconfirmed_reason(&self.interrupt)))?;
            return Ok(ExitCode::from(1));
        }
        let measurement = self.begin_measurement(&discovered.result.server, load.as_ref())?;
        let (mut applied_tune, flows) =
            self.apply_changes(&discovered, self.apply_args.lasting.deadline())?;
        let (status, is_kept) = self.report(&discovered, &mut applied_tune, flows.as_ref(), measurement)?;
        drop(load);
        if !is_kept || applied_tune.broke_off.is_some() {
            return Ok(status);
        }
        let (tune, until) = (applied_tune.id, applied_tune.run.until);
        match until {
            _ if self.apply_args.watch => self.watch(tune, &known_server, status),
            Some(UndoDeadline::Confirmed { boot_seconds }) => {
                let state_dir = &self.target.state_dir;
                let is_undone =
                    confirm::is_undone(state_dir, &self.host, tune, boot_seconds, &self.interrupt)?;
                Ok(if is_undone { ExitCode::from(1) } else { status })
            }
            _ => Ok(status),
        }
    }

    fn print_plan(&self, discovered: &Envelope<BoostPlanReport>) -> Result<()> {
        print_plan(&view::boost::plan(discovered, self.target.full), self.json.as_ref())
    }

    fn write_unchanged(&self, discovered: &Envelope<BoostPlanReport>, reason: Option<&str>) -> Result<()> {
        let Some(target) = &self.json else { return Ok(()) };
        let verification = BoostVerification::not_judged("nothing was changed");
        let report = BoostApplyReport {
            broke_off: reason.map(str::to_owned),
            ..self.build_report(discovered, None, None, verification)
        };
        target.write_json(&apply_envelope(discovered, report))
    }

    fn refuse(&self, discovered: &Envelope<BoostPlanReport>, reason: &str) -> Result<ExitCode> {
        self.write_unchanged(discovered, Some(reason))?;
        status_line!("linerate: {}: {reason}", discovered.result.server.title());
        Ok(ExitCode::from(1))
    }

    /// The changes are in effect already, or nothing can be done.
    fn report_nothing_to_change(
        &mut self,
        discovered: &Envelope<BoostPlanReport>,
        known_server: &KnownServer,
    ) -> Result<ExitCode> {
        let server = &discovered.result.server;
        let boost = boosts::of_server(&self.target.state_dir.store(), &self.host, server, &self.target)?;
        if boost.is_none()
            && let Some(reason) = view::boost::refusal_summary(&discovered.result.boost)
        {
            return self.refuse(discovered, &format!("nothing can be done from outside: {reason}"));
        }
        if self.json != Some(OutputTarget::Stdout) {
            let verdict = view::boost::nothing_to_change(&discovered.result);
            let document = Document { verdict, ..Document::default() };
            output::print(&text::text(&document, TextStyle::stdout()))?;
        }
        self.write_unchanged(discovered, None)?;
        match boost {
            Some(tune) if self.apply_args.watch => self.watch(tune, known_server, ExitCode::SUCCESS),
            None if self.apply_args.watch => bail!("there is no boost in effect to watch"),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    /// Makes the changes. Returns the clients before and after, too; `None` if they cannot be counted.
    fn apply_changes(
        &self,
        discovered: &Envelope<BoostPlanReport>,
        until: Option<UndoDeadline>,
    ) -> Result<(AppliedTune<'_>, Option<FlowWatch>)> {
        let plan = &discovered.result.boost.plan;
        let mut flows = self.watch_flows(&discovered.result.server)?;
        let store = self.target.state_dir.store();
        // After a measurement the changes must not end half made because another process holds the lock.
        let mut writer = store.lock_waiting().map_err(TuneError::from)?;
        boosts::close_ended(&mut writer, &self.host, &discovered.result.server)?;
        let tune_start = TuneStart {
            goal: plan.goal.clone(),
            argv: output::argv(),
            devices: plan.devices.clone(),
            until,
            plan: Some(plan),
        };
        // Changes for new workers join the server's boost that is in effect, unless that would be
        // undone with them.
        let transaction = match boosts::find_by_server(&writer, &self.host, &discovered.result.server, plan)
            .filter(|_| until.is_none() && !self.apply_args.measuring.may_undo())
        {
            Some(tune) => TuneTransaction::reopen(&mut writer, &self.host, tune, plan)?,
            None => TuneTransaction::begin(&mut writer, &self.host, tune_start)?,
        };
        let tune_run =
            TuneRun::new(&self.host, &self.interrupt, self.apply_args.keep_going, transaction.until());
        let (applied_tune, guard) =
            tune_run.complete(transaction, &self.target.state_dir, |tune_run, transaction| {
                tune_run.apply_plan(transaction, plan)
            })?;
        drop(writer);
        drop(guard);
        // Counts are useless if before and after cannot be separated.
        flows = flows.and_then(|mut flows| flows.mark_change().ok().map(|()| flows));
        Ok((applied_tune?, flows))
    }

    /// Measures the window before the changes.
    fn begin_measurement<'a>(
        &'a self,
        server: &ObservedServer,
        load: Option<&'a GeneratedLoad>,
    ) -> Result<Result<StartedMeasurement<'a>, String>> {
        if !self.target.observation_options().datagrams {
            return self.apply_args.measuring.without_measurement("--no-datagrams");
        }
        let scope = Scope { interfaces: self.target.interfaces.clone(), ..Scope::default() };
        let pids = server.processes.iter().map(|process| process.pid).collect();
        let service = MeasuredService { ports: server.udp_ports(), pids };
        let path = PacketPath::observe(&self.host, &scope);
        self.apply_args.measuring.begin(&self.host, &path, service, load, &self.interrupt)
    }

    /// Observes again, undoes a harmful boost, measures a harmless one, and prints the outcome.
    /// Returns the status and whether the boost stays.
    fn report<'a>(
        &'a self,
        discovered: &Envelope<BoostPlanReport>,
        applied_tune: &mut AppliedTune<'a>,
        flow_watch: Option<&FlowWatch>,
        started_measurement: Result<StartedMeasurement<'_>, String>,
    ) -> Result<(ExitCode, bool)> {
        let client_flows = || flow_watch?.read().ok();
        // A short observation first: clients lack replies until harm is detected.
        let mut observed_again = self.observe_again(SOON.min(self.target.observation_options().duration));
        let mut flows = client_flows();
        let BoostPlanReport { server, boost, .. } = &discovered.result;
        let is_harm = |current: &ObservedServer| {
            answers::harm(&boost.places, server, current, flows.as_ref()).is_some()
        };
        if !observed_again.value().is_some_and(is_harm) {
            observed_again = self.observe_again(self.target.observation_options().duration);
            flows = client_flows();
        }
        let store = self.target.state_dir.store();
        if is_undone(&store, applied_tune.id)? {
            observed_again = Known::unknown("an undo began before the observation ended");
        }
        let observations = (server, &observed_again);
        let verification = BoostVerification::of(&boost.places, observations, flows.as_ref(), &self.choice);
        // After a restart there is no window before the changes.
        let is_measured = started_measurement.is_ok();
        let (measurement, undo_report, undo_reason) = match &verification {
            BoostVerification::Harmful { .. } => {
                (Known::unknown("the boost did harm"), None, Some(UndoReason::Harmful))
            }
            _ => {
                let (measurement, undo_report) = match started_measurement {
                    Ok(started_measurement) => started_measurement.complete(
                        &store,
                        applied_tune,
                        |tune| self.undo(tune, UndoReason::Measured),
                        || Ok(self.apply_changes(discovered, self.apply_args.lasting.deadline())?.0),
                    )?,
                    Err(reason) => (Known::unknown(reason), None),
                };
                let options = &self.apply_args.measuring;
                let undo_reason = match applied_tune.broke_off {
                    None if is_measured => {
                        options.undo_reason(&measurement, self.apply_args.consent, &self.interrupt)?
                    }
                    _ => None,
                };
                (measurement, undo_report, undo_reason)
            }
        };
        let undo_report = match undo_reason {
            Some(reason) if !is_undone(&store, applied_tune.id)? => Some(self.undo(applied_tune.id, reason)?),
            _ => undo_report,
        };
        let is_worse = is_measured && self.apply_args.measuring.shows_harm(&measurement);
        let undone = is_undone(&store, applied_tune.id)?;
        let has_failed = verification.is_failure() || is_worse || undone;
        let report = BoostApplyReport {
            measurement,
            undone,
            ..self.build_report(discovered, Some(applied_tune), observed_again.value(), verification)
        };
        let envelope = apply_envelope(discovered, report);
        let mut printed = Ok(());
        if self.json != Some(OutputTarget::Stdout) {
            let document =
                view::boost::apply(&envelope, &|subcommand| self.target.state_dir.command(subcommand));
            let mut text = text::text(&document, TextStyle::stdout());
            if let Some(undo_report) = &undo_report {
                let envelope = Envelope::new(envelope.host.clone(), None, undo_report.clone());
                let document = view::tune::undo(&envelope, self.target.full);
                text.push_str(&text::text(&document, TextStyle::stdout()));
            }
            printed = output::print(&text);
        }
        // Neither the text nor the file may cost the other.
        printed.and(self.json.as_ref().map_or(Ok(()), |target| target.write_json(&envelope)))?;
        let is_incomplete =
            |undo_report: &UndoReport| undo_report.has_failures() || undo_report.has_skipped();
        let is_kept = undo_report.is_none();
        let status = match (&applied_tune.broke_off, has_failed) {
            (Some(_), _) => ExitCode::from(2),
            _ if undo_report.is_some_and(|undo_report| is_incomplete(&undo_report)) => ExitCode::from(2),
            (None, has_failed) => ExitCode::from(u8::from(has_failed)),
        };
        Ok((status, is_kept))
    }

    /// Observes for a moment which clients get replies before the changes.
    fn watch_flows(&self, server: &ObservedServer) -> Result<Option<FlowWatch>> {
        let options = self.target.observation_options();
        let flows =
            options.datagrams.then(|| FlowWatch::start(&self.host, &server.udp_ports(), None).ok()).flatten();
        if flows.is_some() {
            self.interrupt.wait(Some(SOON.min(options.duration)))?;
        }
        Ok(flows)
    }

    fn undo(&self, tune: u64, reason: UndoReason) -> Result<UndoReport> {
        let mut writer = self.target.state_dir.store().lock_waiting()?;
        Ok(transaction::undo(&mut writer, &self.host, Some(tune), reason)?)
    }

    fn observe_again(&self, duration: Duration) -> Known<ObservedServer> {
        let options = ObservationOptions { duration, ..self.target.observation_options() };
        let stop = || self.interrupt.is_raised();
        let observation = self
            .target
            .server_query()
            .and_then(|query| Ok(ObservedServer::observe(&self.host, &query, options, &stop)?));
        match observation {
            Ok((server, _)) => Known::Value(server),
            Err(error) => Known::unknown(output::one_line(&error)),
        }
    }

    fn build_report(
        &self,
        discovered: &Envelope<BoostPlanReport>,
        applied_tune: Option<&AppliedTune<'_>>,
        observed_again: Option<&ObservedServer>,
        verification: BoostVerification,
    ) -> BoostApplyReport {
        let boost = &discovered.result.boost;
        BoostApplyReport {
            tune: applied_tune.map(|applied_tune| applied_tune.id),
            goal: boost.plan.goal.clone(),
            until: applied_tune.and_then(|applied_tune| applied_tune.run.until),
            changes: applied_tune.map(|applied_tune| applied_tune.run.steps.clone()).unwrap_or_default(),
            broke_off: applied_tune.and_then(|applied_tune| applied_tune.broke_off.clone()),
            places: boost.places.clone(),
            refusals: boost.refusals.clone(),
            advice: boost.advice.clone(),
            before: DeliveryCounts::of(&discovered.result.server),
            now: observed_again.map(DeliveryCounts::of),
            verification,
            measurement: Known::default(),
            undone: false,
        }
    }

    /// Watches, and boosts the server again after a restart. Returns the status of the last boost.
    fn watch(&mut self, mut tune: u64, server: &KnownServer, mut status: ExitCode) -> Result<ExitCode> {
        while watch_loop::watch(&self.host, &self.target, tune, &self.choice, &self.interrupt)?
            == WatchOutcome::Ended
        {
            status_line!(
                "The server has ended; waiting for it to start again on port {} (Ctrl-C ends that).",
                server.port
            );
            let mut printed_error = None;
            let (discovered, until, (mut applied_tune, flows)) = loop {
                let Some(discovered) = self.await_restart(server)? else { return Ok(status) };
                let ended_boost = self.target.state_dir.store().read()?.tune(tune);
                let ended_boost = ended_boost.context("the journal lost the tune")?;
                let Some(until) = boosts::deadline_after_restart(&ended_boost, boot_seconds()) else {
                    print_status(&view::boost::event(&WatchEvent::Undone));
                    return Ok(status);
                };
                match self.apply_changes(&discovered, until) {
                    Ok(applied) => break (discovered, until, applied),
                    Err(error) if error.downcast_ref().is_some_and(TuneError::is_passing) => {
                        let text = error.to_string();
                        if printed_error.as_ref() != Some(&text) {
                            status_line!("It runs again and is not boosted yet: {text} (it is tried again)");
                            printed_error = Some(text);
                        }
                    }
                    Err(error) => return Err(error),
                }
                // Each try traces the server.
                self.interrupt.wait(Some(10 * RESTART))?;
            };
            let no_measurement = Err("the server was started again".to_owned());
            let is_kept;
            (status, is_kept) =
                self.report(&discovered, &mut applied_tune, flows.as_ref(), no_measurement)?;
            // The guard of a tune that changed nothing has ended.
            let is_unguarded = until.is_some() && applied_tune.run.until.is_none();
            if !is_kept || is_unguarded {
                return Ok(status);
            }
            tune = applied_tune.id;
        }
        Ok(status)
    }

    /// Waits until the server runs again and needs changes; `None` after a signal.
    fn await_restart(&mut self, server: &KnownServer) -> Result<Option<Envelope<BoostPlanReport>>> {
        let mut printed_reason = None;
        while !self.interrupt.is_raised() {
            if let Some(pid) = server.find(&self.host, &self.target) {
                self.target.replace_pid(pid);
                let discovered = observation::discover(&self.host, &self.target, &self.interrupt);
                match discovered {
                    Ok(discovered) if !discovered.result.boost.plan.changes.is_empty() => {
                        return Ok(Some(discovered));
                    }
                    Ok(discovered) => {
                        let refusal = view::boost::refusal_summary(&discovered.result.boost);
                        if refusal != printed_reason {
                            status_line!(
                                "It runs again and is not boosted yet: {}",
                                refusal.as_deref().unwrap_or("nothing is to be changed")
                            );
                            printed_reason = refusal;
                        }
                    }
                    // The server ended again.
                    Err(_) => {}
                }
            }
            self.interrupt.wait(Some(RESTART))?;
        }
        Ok(None)
    }
}

/// The outcome of a call that began with the observation.
fn apply_envelope(
    discovered: &Envelope<BoostPlanReport>,
    report: BoostApplyReport,
) -> Envelope<BoostApplyReport> {
    Envelope::new(discovered.host.clone(), discovered.started_unix_seconds, report)
}
