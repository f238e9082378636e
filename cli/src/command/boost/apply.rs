//! `linerate boost apply`: journals and makes each change, and observes the server again.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use linerate_host::delivery::FlowWatch;
use linerate_host::{Host, Known, PacketPath, Scope};
use linerate_tune::boost::answers;
use linerate_tune::boost::discovery::{ObservationOptions, ObservedServer};
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::boost::report::{BoostApplyReport, BoostPlanReport, BoostVerification, DeliveryCounts};
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::measure::{ChangeMeasurement, MeasuredService};
use linerate_tune::transaction::{self, TuneStart, TuneTransaction, UndoReport};

use super::arguments::{BoostApplyArgs, BoostTargetArgs};
use super::boosts;
use super::restart::KnownServer;
use super::sighting::{self, DiscoveredServer};
use super::watching::{self, WatchOutcome};
use crate::command::tune::apply::must_be_free;
use crate::command::tune::apply::runner::{TuneRun, tell};
use crate::command::tune::confirm::{self, ConfirmationAnswer};
use crate::command::tune::generated_load::GeneratedLoad;
use crate::command::tune::measuring::StartedMeasurement;
use crate::document::Document;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::HostSummary;
use crate::output::{self, OutputTarget};
use crate::render::format::count_with_noun;
use crate::render::style::TextStyle;
use crate::render::text;
use crate::view;

/// Time of the first observation after the changes, which looks for harm.
const SOON: Duration = Duration::from_millis(500);

/// Interval between checks for a restarted server.
const RESTART: Duration = Duration::from_secs(1);

struct BoostRun {
    target: BoostTargetArgs,
    making: BoostApplyArgs,
    choice: BoostChoice,
    host: Host,
    interrupt: InterruptFlag,
    json: Option<OutputTarget>,
}

struct BoostResult<'a> {
    tune: u64,
    carrying: TuneRun<'a>,
    broke_off: Option<String>,
    /// Clients before and after; `None` if they cannot be counted.
    flows: Option<FlowWatch>,
}

pub(super) fn run(target: BoostTargetArgs, making: BoostApplyArgs) -> Result<ExitCode> {
    target.wanted()?;
    must_be_root("apply")?;
    making.consent.check()?;
    making.measuring.check()?;
    let json = OutputTarget::from_option(target.json.as_deref())?;
    let host = Host::live().gently();
    let applying = BoostRun {
        choice: target.choice(),
        target,
        making,
        host,
        interrupt: InterruptFlag::install_ignoring_hangup()?,
        json,
    };
    applying.run()
}

pub(super) fn must_be_root(verb: &str) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "boost {verb} acts on another process's sockets and threads, which requires root (CAP_SYS_PTRACE to copy sockets, \
         CAP_BPF and CAP_NET_ADMIN to steer, CAP_SYS_NICE to pin): run it with sudo"
    );
    Ok(())
}

impl BoostRun {
    fn run(mut self) -> Result<ExitCode> {
        let store = self.target.state_dir.store();
        must_be_free(&store, &self.host, &self.target.state_dir, false)?;
        // The load starts first, because the server is observed under load.
        let load = self.making.measuring.generate(&self.interrupt)?;
        let sighted = sighting::look(&self.host, &self.target, &self.interrupt)?;
        if sighted.report.boost.plan.changes.is_empty() {
            return self.nothing_to_do(&sighted);
        }
        let BoostPlanReport { server, boost, .. } = &sighted.report;
        if !self.choice.anyway
            && let Some(why) = answers::too_few_to_judge(server, &boost.plan)
        {
            return self.refuse(&sighted, &why);
        }
        self.show(&sighted)?;
        let question = format!("{}?", view::boost::change_summary(&sighted.report.boost));
        if self.interrupt.is_raised() || !self.making.consent.given(&question, &self.interrupt)? {
            tell("nothing was changed\n");
            return Ok(ExitCode::from(1));
        }
        let measuring = self.begin_measurement(&sighted.report.server, load.as_ref())?;
        let mut made = self.make(&sighted)?;
        let (status, stays) = self.report(&sighted, &mut made, measuring)?;
        drop(load);
        if !stays || made.broke_off.is_some() {
            return Ok(status);
        }
        match made.carrying.until {
            _ if self.making.watch => {
                let tune = made.tune;
                drop(made);
                self.watch(tune, &sighted.report.server).map(|()| status)
            }
            Some(UndoDeadline::Confirmed { boot_seconds }) => {
                Ok(self.await_answer(made.tune, boot_seconds)?.unwrap_or(status))
            }
            _ => Ok(status),
        }
    }

    fn show(&self, sighted: &DiscoveredServer) -> Result<()> {
        let document = view::boost::plan(&self.envelope(sighted), self.target.full);
        let text = |style| text::text(&document, style);
        if self.json == Some(OutputTarget::Stdout) {
            tell(&text(TextStyle { colour: false, ..TextStyle::stdout() }));
            return Ok(());
        }
        output::print_if_read(&text(TextStyle::stdout()))
    }

    fn envelope(&self, sighted: &DiscoveredServer) -> Envelope<BoostPlanReport> {
        sighted.envelope(HostSummary::observe(&self.host))
    }

    fn write_unchanged(&self, sighted: &DiscoveredServer, why: Option<&str>) -> Result<()> {
        let Some(target) = &self.json else { return Ok(()) };
        let verification = BoostVerification::not_judged("nothing was changed");
        let report = BoostApplyReport {
            broke_off: why.map(str::to_owned),
            ..self.report_of(sighted, None, None, verification)
        };
        target.write_json(&self.applied(sighted, report))
    }

    fn refuse(&self, sighted: &DiscoveredServer, why: &str) -> Result<ExitCode> {
        self.write_unchanged(sighted, Some(why))?;
        eprintln!("linerate: {}: {why}", view::boost::server_title(&sighted.report.server));
        Ok(ExitCode::from(1))
    }

    /// The changes are in effect already, or nothing can be done.
    fn nothing_to_do(&mut self, sighted: &DiscoveredServer) -> Result<ExitCode> {
        if let Some(why) = view::boost::refusal_summary(&sighted.report.boost) {
            return self.refuse(sighted, &format!("nothing can be done from outside: {why}"));
        }
        self.write_unchanged(sighted, None)?;
        if self.json != Some(OutputTarget::Stdout) {
            let document = view::boost::plan(&self.envelope(sighted), false);
            let verdict = Document { verdict: document.verdict, ..Document::default() };
            output::print_if_read(&text::text(&verdict, TextStyle::stdout()))?;
        }
        match boosts::latest(&self.target.state_dir.store().read()?, &self.target) {
            Some(tune) if self.making.watch => self.watch(tune, &sighted.report.server)?,
            None if self.making.watch => bail!("there is no boost in effect to watch"),
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    fn make(&self, sighted: &DiscoveredServer) -> Result<BoostResult<'_>> {
        let plan = &sighted.report.boost.plan;
        let until = self.making.lasting.until();
        let mut flows = self.watch_flows(&sighted.report.server)?;
        let store = self.target.state_dir.store();
        let mut writer = store.lock()?;
        boosts::close_ended(&mut writer, &self.host, &sighted.report.server)?;
        let begin = TuneStart {
            goal: plan.goal.clone(),
            argv: output::argv(),
            devices: plan.devices.clone(),
            until,
            plan: Some(plan),
        };
        // Changes for new workers join the server's boost that is in effect.
        let mut transaction = match boosts::of_server(&writer, &self.host, &sighted.report.server, plan)
            .filter(|_| until.is_none())
        {
            Some(tune) => TuneTransaction::reopen(&mut writer, &self.host, tune, plan)?,
            None => TuneTransaction::begin(&mut writer, &self.host, begin)?,
        };
        let tune = transaction.id();
        // The guard runs before the first change, so that no unconfirmed change can stay.
        let guard = match until.map(|_| confirm::start_guard(&self.target.state_dir, tune)).transpose() {
            Ok(guard) => guard,
            Err(error) => {
                transaction.end(Some("its guard did not start".to_owned()))?;
                return Err(error);
            }
        };
        let mut carrying = TuneRun::new(&self.host, &self.interrupt, self.making.keep_going, until);
        let ended = carrying.make_plan(&mut transaction, plan).and_then(|stopped| {
            let refused = || match carrying.refused() {
                0 => None,
                some => Some(format!("{} refused", count_with_noun(some, "change"))),
            };
            let broke_off = stopped.or_else(refused);
            transaction.end(broke_off.clone())?;
            Ok(broke_off)
        });
        drop(writer);
        drop(guard);
        // Counts are useless if before and after cannot be separated.
        flows = flows.and_then(|mut flows| flows.changed().ok().map(|()| flows));
        let broke_off = ended.map_err(|error| {
            let state_dir = &self.target.state_dir;
            anyhow::anyhow!("tune {tune} stopped: {error}: {}", state_dir.after_a_stop(tune))
        })?;
        Ok(BoostResult { tune, carrying, broke_off, flows })
    }

    /// Measures the window before the changes.
    fn begin_measurement<'a>(
        &'a self,
        server: &ObservedServer,
        load: Option<&'a GeneratedLoad>,
    ) -> Result<Result<StartedMeasurement<'a>, String>> {
        if !self.target.look().datagrams {
            return self.making.measuring.without("--no-datagrams");
        }
        let scope = Scope { interfaces: self.target.interfaces().to_vec(), ..Scope::default() };
        let pids = server.processes.iter().map(|process| process.pid).collect();
        let service = MeasuredService { ports: server.udp_ports(), pids };
        let path = PacketPath::observe(&self.host, &scope);
        self.making.measuring.begin(&self.host, &path, service, load, &self.interrupt)
    }

    /// Measures a boost that did no harm. In alternation, undoes the boost and makes it again.
    fn measure<'a>(
        &'a self,
        measuring: Result<StartedMeasurement<'_>, String>,
        sighted: &DiscoveredServer,
        made: &mut BoostResult<'a>,
    ) -> Result<Known<ChangeMeasurement>> {
        let mut measuring = match measuring {
            Ok(measuring) if made.broke_off.is_none() => measuring,
            Ok(_) => return Ok(Known::unknown("not all changes were made")),
            Err(why) => return Ok(Known::unknown(why)),
        };
        if let Err(why) = measuring.measure(true) {
            return Ok(Known::unknown(why));
        }
        if self.making.measuring.alternates() {
            self.undo(made.tune, UndoReason::Measured)?;
            if let Err(why) = measuring.measure(false) {
                tell(&format!("tune {} is undone\n", made.tune));
                return Ok(Known::unknown(why));
            }
            *made = self.make(sighted)?;
            if made.broke_off.is_some() {
                return Ok(Known::unknown("the changes could not be made again"));
            }
        }
        Ok(Known::Value(measuring.finish(&self.target.state_dir.store(), made.tune)?))
    }

    /// Observes again, undoes a harmful boost, measures a harmless one, and prints the outcome.
    /// Returns the status and whether the boost stays.
    fn report<'a>(
        &'a self,
        sighted: &DiscoveredServer,
        made: &mut BoostResult<'a>,
        measuring: Result<StartedMeasurement<'_>, String>,
    ) -> Result<(ExitCode, bool)> {
        let clients = || made.flows.as_ref()?.read().ok();
        // A short observation first: clients lack replies until harm is detected.
        let mut again = self.look_again(SOON.min(self.target.look().duration));
        let mut flows = clients();
        let BoostPlanReport { server, boost, .. } = &sighted.report;
        let is_harm =
            |now: &ObservedServer| answers::harm(&boost.places, server, now, flows.as_ref()).is_some();
        if !again.value().is_some_and(is_harm) {
            again = self.look_again(self.target.look().duration);
            flows = clients();
        }
        let both = (server, &again);
        let verification = BoostVerification::of(&boost.places, both, flows.as_ref(), &self.choice);
        let (measurement, is_worse) = match &verification {
            BoostVerification::Harmful { .. } => (Known::unknown("the boost did harm"), true),
            _ => {
                let measurement = self.measure(measuring, sighted, made)?;
                let options = &self.making.measuring;
                let measured = measurement.value();
                let is_worse = measured
                    .map(|measured| options.is_to_be_undone(measured, self.making.consent, &self.interrupt))
                    .transpose()?;
                (measurement, is_worse == Some(true))
            }
        };
        let undone = is_worse.then(|| self.undo(made.tune, UndoReason::Harmful)).transpose()?;
        let failed = verification.is_failure() || self.making.measuring.fails(&measurement);
        let report = BoostApplyReport {
            measurement,
            undone: undone.is_some(),
            ..self.report_of(sighted, Some(made), again.value(), verification)
        };
        let envelope = self.applied(sighted, report);
        if let Some(target) = &self.json {
            target.write_json(&envelope)?;
        }
        if self.json != Some(OutputTarget::Stdout) {
            let document = view::boost::apply(&envelope, &|verb| self.target.state_dir.command(verb));
            let mut printed = text::text(&document, TextStyle::stdout());
            if let Some(undone) = &undone {
                let envelope = Envelope::new(envelope.host, None, undone.clone());
                let document = view::tune::undo(&envelope, self.target.full);
                printed.push_str(&text::text(&document, TextStyle::stdout()));
            }
            output::print_if_read(&printed)?;
        }
        let is_left = |undone: &UndoReport| undone.has_failures() || undone.has_skipped();
        let stays = undone.is_none();
        let status = match (&made.broke_off, failed) {
            (Some(_), _) => ExitCode::from(2),
            _ if undone.is_some_and(|undone| is_left(&undone)) => ExitCode::from(2),
            (None, failed) => ExitCode::from(u8::from(failed)),
        };
        Ok((status, stays))
    }

    /// Observes for a moment which clients get replies before the changes.
    fn watch_flows(&self, server: &ObservedServer) -> Result<Option<FlowWatch>> {
        let look = self.target.look();
        let flows =
            look.datagrams.then(|| FlowWatch::start(&self.host, &server.udp_ports(), None).ok()).flatten();
        if flows.is_some() {
            self.interrupt.wait(Some(SOON.min(look.duration)))?;
        }
        Ok(flows)
    }

    fn undo(&self, tune: u64, why: UndoReason) -> Result<UndoReport> {
        let mut writer = self.target.state_dir.store().lock()?;
        Ok(transaction::undo(&mut writer, &self.host, Some(tune), why)?)
    }

    fn look_again(&self, duration: Duration) -> Known<ObservedServer> {
        let look = ObservationOptions { duration, ..self.target.look() };
        let stop = || self.interrupt.is_raised();
        let seen = self
            .target
            .wanted()
            .and_then(|wanted| Ok(ObservedServer::observe(&self.host, &wanted, look, &stop)?));
        match seen {
            Ok((server, _)) => Known::Value(server),
            Err(error) => Known::unknown(output::one_line(&error)),
        }
    }

    fn report_of(
        &self,
        sighted: &DiscoveredServer,
        made: Option<&BoostResult<'_>>,
        again: Option<&ObservedServer>,
        verification: BoostVerification,
    ) -> BoostApplyReport {
        let boost = &sighted.report.boost;
        BoostApplyReport {
            tune: made.map(|made| made.tune),
            goal: boost.plan.goal.clone(),
            until: made.and_then(|made| made.carrying.until),
            changes: made.map(|made| made.carrying.steps.clone()).unwrap_or_default(),
            broke_off: made.and_then(|made| made.broke_off.clone()),
            places: boost.places.clone(),
            refusals: boost.refusals.clone(),
            advice: boost.advice.clone(),
            before: DeliveryCounts::of(&sighted.report.server),
            now: again.map(DeliveryCounts::of),
            verification,
            measurement: Known::default(),
            undone: false,
        }
    }

    fn applied(&self, sighted: &DiscoveredServer, report: BoostApplyReport) -> Envelope<BoostApplyReport> {
        Envelope::new(HostSummary::observe(&self.host), sighted.started_unix_seconds, report)
    }

    /// Waits for confirmation. Returns a status if the boost was undone meanwhile.
    fn await_answer(&self, tune: u64, deadline: u64) -> Result<Option<ExitCode>> {
        let store = self.target.state_dir.store();
        match confirm::wait(&store, &self.host, tune, deadline, &self.interrupt)? {
            ConfirmationAnswer::Confirmed => tell(&format!("Tune {tune} is confirmed and stays.\n")),
            ConfirmationAnswer::Open => {}
            ConfirmationAnswer::Undone => {
                let history = self.target.state_dir.command("history");
                tell(&format!("Tune {tune} is undone: {history} has the reason.\n"));
                return Ok(Some(ExitCode::from(1)));
            }
        }
        Ok(None)
    }

    /// Watches, and boosts the server again after a restart.
    fn watch(&mut self, mut tune: u64, server: &ObservedServer) -> Result<()> {
        let server = KnownServer::of(&self.host, server);
        while watching::watch(&self.host, &self.target, tune, &self.choice, &self.interrupt)?
            == WatchOutcome::Ended
        {
            self.target.look_for(server.port());
            tell(&format!(
                "The server has ended; waiting for it to start again on port {} (Ctrl-C ends that).\n",
                server.port()
            ));
            let Some(sighted) = self.await_restart(&server)? else { return Ok(()) };
            let mut made = self.make(&sighted)?;
            let unmeasured = Err("the server was started again".to_owned());
            let (_, stays) = self.report(&sighted, &mut made, unmeasured)?;
            if !stays || made.broke_off.is_some() {
                return Ok(());
            }
            tune = made.tune;
        }
        Ok(())
    }

    /// Waits until the server runs again and needs changes; `None` after a signal.
    fn await_restart(&self, server: &KnownServer) -> Result<Option<DiscoveredServer>> {
        let mut told = None;
        while !self.interrupt.is_raised() {
            if server.is_there(&self.host, &self.target) {
                let sighted = sighting::look(&self.host, &self.target, &self.interrupt);
                match sighted {
                    Ok(sighted) if !sighted.report.boost.plan.changes.is_empty() => return Ok(Some(sighted)),
                    Ok(sighted) => {
                        let why = view::boost::refusal_summary(&sighted.report.boost);
                        if why != told {
                            tell(&format!(
                                "It runs again and is not boosted yet: {}\n",
                                why.as_deref().unwrap_or("nothing is to be changed")
                            ));
                            told = why;
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
