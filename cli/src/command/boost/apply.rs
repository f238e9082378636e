//! `linerate boost apply`: makes the changes, each written down before it is made, and looks again.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use linerate_host::landing::FlowWatch;
use linerate_host::{Host, Known};
use linerate_tune::boost::answers;
use linerate_tune::boost::discovery::{ObservationOptions, ObservedServer};
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::transaction::{self, TuneStart, TuneTransaction, UndoReport};

use super::arguments::{BoostApplyArgs, BoostTargetArgs};
use super::boosts;
use super::document::{self, BoostApplyDocument, BoostPlanDocument};
use super::restart::KnownServer;
use super::sighting::{self, DiscoveredServer};
use super::verification::BoostVerification;
use super::watching::{self, WatchOutcome};
use crate::command::tune::apply::carrying::{TuneRun, tell};
use crate::command::tune::apply::confirming::{self, ConfirmationAnswer};
use crate::command::tune::apply::must_be_free;
use crate::command::tune::{guard, host_name};
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::{boost_apply, boost_plan, tune_plan, tune_undo};

/// How soon after the changes it is first seen whether they did harm.
const SOON: Duration = Duration::from_millis(500);

/// How often it is looked whether a server that ended runs again.
const RESTART: Duration = Duration::from_secs(1);

/// A boost that is made.
struct BoostRun {
    asked: BoostTargetArgs,
    making: BoostApplyArgs,
    choice: BoostChoice,
    host: Host,
    host_name: String,
    interrupt: InterruptFlag,
    json: Option<OutputTarget>,
}

/// What became of it.
struct BoostResult<'a> {
    tune: u64,
    carrying: TuneRun<'a>,
    broke_off: Option<String>,
    /// Clients before and after; none where the kernel does not let them be counted.
    flows: Option<FlowWatch>,
}

pub(super) fn run(asked: BoostTargetArgs, making: BoostApplyArgs) -> Result<ExitCode> {
    asked.wanted()?;
    must_be_root("apply")?;
    making.agreement.check()?;
    let json = OutputTarget::from_option(asked.json.as_deref())?;
    let host = Host::live().gently();
    let applying = BoostRun {
        choice: asked.choice(),
        asked,
        making,
        host_name: host_name(&host),
        host,
        interrupt: InterruptFlag::install_ignoring_hangup()?,
        json,
    };
    applying.run()
}

/// Sockets and threads of another process are its own, and root's.
pub(super) fn must_be_root(verb: &str) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "boost {verb} acts on another process' sockets and threads, which takes root (CAP_SYS_PTRACE to copy sockets, \
         CAP_BPF and CAP_NET_ADMIN to steer, CAP_SYS_NICE to pin): run it with sudo"
    );
    Ok(())
}

impl BoostRun {
    fn run(mut self) -> Result<ExitCode> {
        let store = self.asked.place.store();
        must_be_free(&store, &self.host, &self.asked.place, false)?;
        let sighted = sighting::look(&self.host, &self.asked, &self.interrupt)?;
        if sighted.boost.plan.changes.is_empty() {
            return self.nothing_to_do(&sighted);
        }
        self.show(&sighted)?;
        let question = format!("{}?", boost_plan::change_summary(&sighted.boost));
        if self.interrupt.is_raised() || !self.making.agreement.given(&question, &self.interrupt)? {
            tell("nothing was changed\n");
            return Ok(ExitCode::from(1));
        }
        let made = self.make(&sighted)?;
        let (status, stays) = self.report(&sighted, &made)?;
        if !stays || made.broke_off.is_some() {
            return Ok(status);
        }
        match made.carrying.until {
            _ if self.making.watch => {
                let tune = made.tune;
                drop(made);
                self.watch(tune, &sighted.server).map(|()| status)
            }
            Some(UndoDeadline::Confirmed { boot_seconds }) => {
                Ok(self.await_answer(made.tune, boot_seconds)?.unwrap_or(status))
            }
            _ => Ok(status),
        }
    }

    fn show(&self, sighted: &DiscoveredServer) -> Result<()> {
        let text = |style| boost_plan::plan(&self.planned(sighted), self.asked.full, style);
        if self.json == Some(OutputTarget::Stdout) {
            tell(&text(TextStyle { colour: false, ..TextStyle::stdout() }));
            return Ok(());
        }
        output::print_if_read(&text(TextStyle::stdout()))
    }

    fn planned<'s>(&'s self, sighted: &'s DiscoveredServer) -> BoostPlanDocument<'s> {
        sighted.planned(&self.host_name)
    }

    /// It is so already, which is fine, or nothing can be done.
    fn nothing_to_do(&mut self, sighted: &DiscoveredServer) -> Result<ExitCode> {
        let planned = self.planned(sighted);
        let why = boost_plan::refusal_summary(&sighted.boost);
        let verification = BoostVerification::not_judged("nothing was changed");
        if let Some(target) = &self.json {
            let applied = self.document(sighted, None, None, &verification);
            target.write_json(&BoostApplyDocument { broke_off: why.as_deref(), ..applied })?;
        }
        if let Some(why) = why {
            let name = boost_plan::server_title(&sighted.server);
            eprintln!("linerate: {name}: nothing can be done from outside: {why}");
            return Ok(ExitCode::from(1));
        }
        if self.json != Some(OutputTarget::Stdout) {
            output::print_if_read(&boost_plan::verdict_line(&planned, TextStyle::stdout()))?;
        }
        match boosts::latest(&self.asked.place.store().read()?, &self.asked) {
            Some(tune) if self.making.watch => self.watch(tune, &sighted.server)?,
            None if self.making.watch => bail!("there is no boost in force to watch"),
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    fn make(&self, sighted: &DiscoveredServer) -> Result<BoostResult<'_>> {
        let plan = &sighted.boost.plan;
        let until = self.making.lasting.until();
        let mut flows = self.watch_flows(&sighted.server)?;
        let store = self.asked.place.store();
        let mut writer = store.lock()?;
        boosts::close_ended(&mut writer, &self.host, &sighted.server)?;
        let begin = TuneStart {
            goal: plan.goal.clone(),
            argv: output::argv(),
            devices: plan.devices.clone(),
            until,
            plan: Some(plan),
        };
        // Workers that came since belong to the boost that the others have.
        let mut transaction =
            match boosts::of_server(&writer, &self.host, &sighted.server, plan).filter(|_| until.is_none()) {
                Some(tune) => TuneTransaction::reopen(&mut writer, &self.host, tune, plan)?,
                None => TuneTransaction::begin(&mut writer, &self.host, begin)?,
            };
        let tune = transaction.id();
        // Watches before the first change, so that nothing stays that nobody confirmed.
        let guard = match until.map(|_| guard::start(&self.asked.place, tune)).transpose() {
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
                some => Some(format!("{} refused", tune_plan::count_with_noun(some, "change"))),
            };
            let broke_off = stopped.or_else(refused);
            transaction.end(broke_off.clone())?;
            Ok(broke_off)
        });
        drop(writer);
        drop(guard);
        // Counts that cannot tell before from after are none.
        flows = flows.and_then(|mut flows| flows.changed().ok().map(|()| flows));
        let broke_off = ended.map_err(|error| {
            let place = &self.asked.place;
            anyhow::anyhow!("tune {tune} stopped where it is: {error}: {}", place.after_a_stop(tune))
        })?;
        Ok(BoostResult { tune, carrying, broke_off, flows })
    }

    /// Looks again, undoes what did harm, and tells what was done and what came of it. With the status, whether the boost stays.
    fn report(&self, sighted: &DiscoveredServer, made: &BoostResult<'_>) -> Result<(ExitCode, bool)> {
        let clients = || made.flows.as_ref()?.read().ok();
        // A short look first: clients are without replies for as long as harm is not seen.
        let mut again = self.look_again(SOON.min(self.asked.look().duration));
        let mut flows = clients();
        let is_harm = |now: &ObservedServer| answers::harm(&sighted.server, now, flows.as_ref()).is_some();
        if !again.value().is_some_and(is_harm) {
            again = self.look_again(self.asked.look().duration);
            flows = clients();
        }
        let boost = &sighted.boost;
        let both = (&sighted.server, &again);
        let verification = BoostVerification::of(&boost.places, both, flows.as_ref(), &self.choice);
        let undone = match &verification {
            BoostVerification::Harmful { .. } => Some(self.undo(made.tune)?),
            _ => None,
        };
        let applied = self.document(sighted, Some(made), again.value(), &verification);
        if let Some(target) = &self.json {
            target.write_json(&applied)?;
        }
        if self.json != Some(OutputTarget::Stdout) {
            let place = &self.asked.place;
            let in_effect = place.is_in_effect(made.tune);
            let mut text = boost_apply::boost_report(&applied, in_effect, place, TextStyle::stdout());
            text.extend(
                undone
                    .iter()
                    .map(|undone| tune_undo::undo_text(undone, self.asked.full, TextStyle::stdout())),
            );
            output::print_if_read(&text)?;
        }
        let is_left = |undone: &UndoReport| undone.has_failures() || undone.has_left();
        let stays = undone.is_none();
        let status = match (&made.broke_off, verification.is_failure()) {
            (Some(_), _) => ExitCode::from(2),
            _ if undone.is_some_and(|undone| is_left(&undone)) => ExitCode::from(2),
            (None, failed) => ExitCode::from(u8::from(failed)),
        };
        Ok((status, stays))
    }

    /// Sees for a moment which clients are answered before anything is changed.
    fn watch_flows(&self, server: &ObservedServer) -> Result<Option<FlowWatch>> {
        let look = self.asked.look();
        let flows = look.datagrams.then(|| FlowWatch::start(&self.host, &server.udp_ports()).ok()).flatten();
        if flows.is_some() {
            self.interrupt.wait(Some(SOON.min(look.duration)))?;
        }
        Ok(flows)
    }

    fn undo(&self, tune: u64) -> Result<UndoReport> {
        let mut writer = self.asked.place.store().lock()?;
        Ok(transaction::undo(&mut writer, &self.host, Some(tune), UndoReason::Harmful)?)
    }

    fn look_again(&self, duration: Duration) -> Known<ObservedServer> {
        let look = ObservationOptions { duration, ..self.asked.look() };
        let stop = || self.interrupt.is_raised();
        let seen = self
            .asked
            .wanted()
            .and_then(|wanted| Ok(ObservedServer::observe(&self.host, &wanted, look, &stop)?));
        match seen {
            Ok((server, _)) => Known::Value(server),
            Err(error) => Known::unknown(output::one_line(&error)),
        }
    }

    fn document<'d>(
        &'d self,
        sighted: &'d DiscoveredServer,
        made: Option<&'d BoostResult<'_>>,
        again: Option<&ObservedServer>,
        verification: &'d BoostVerification,
    ) -> BoostApplyDocument<'d> {
        BoostApplyDocument {
            schema: document::APPLY,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            started_unix_seconds: sighted.started_unix_seconds,
            tune: made.map(|made| made.tune),
            goal: &sighted.boost.plan.goal,
            host: &self.host_name,
            until: made.and_then(|made| made.carrying.until),
            changes: made.map_or(&[], |made| &made.carrying.steps),
            broke_off: made.and_then(|made| made.broke_off.as_deref()),
            places: &sighted.boost.places,
            refusals: &sighted.boost.refusals,
            advice: &sighted.boost.advice,
            before: sighted.landed(),
            now: again.map(sighting::landed),
            verification,
        }
    }

    /// Waits for a person's confirmation; a status of its own where it was undone meanwhile.
    fn await_answer(&self, tune: u64, deadline: u64) -> Result<Option<ExitCode>> {
        let store = self.asked.place.store();
        match confirming::wait(&store, &self.host, tune, deadline, &self.interrupt)? {
            ConfirmationAnswer::Confirmed => tell(&format!("Tune {tune} is confirmed and stays.\n")),
            ConfirmationAnswer::Open => {}
            ConfirmationAnswer::Undone => {
                let history = self.asked.place.command("history");
                tell(&format!("Tune {tune} is undone: {history} tells why.\n"));
                return Ok(Some(ExitCode::from(1)));
            }
        }
        Ok(None)
    }

    /// Watches, and boosts the server again when it was started again.
    fn watch(&mut self, mut tune: u64, server: &ObservedServer) -> Result<()> {
        let server = KnownServer::of(&self.host, server);
        while watching::watch(&self.host, &self.asked, tune, &self.choice, &self.interrupt)?
            == WatchOutcome::Ended
        {
            self.asked.look_for(server.port());
            tell(&format!(
                "The server has ended; waiting for it to start again on port {} (Ctrl-C ends that).\n",
                server.port()
            ));
            let Some(sighted) = self.await_restart(&server)? else { return Ok(()) };
            let made = self.make(&sighted)?;
            let (_, stays) = self.report(&sighted, &made)?;
            if !stays || made.broke_off.is_some() {
                return Ok(());
            }
            tune = made.tune;
        }
        Ok(())
    }

    /// The server, when it runs again and has something to be changed; none where a signal came first.
    fn await_restart(&self, server: &KnownServer) -> Result<Option<DiscoveredServer>> {
        let mut told = None;
        while !self.interrupt.is_raised() {
            if server.is_there(&self.host, &self.asked) {
                let sighted = sighting::look(&self.host, &self.asked, &self.interrupt);
                match sighted {
                    Ok(sighted) if !sighted.boost.plan.changes.is_empty() => return Ok(Some(sighted)),
                    Ok(sighted) => {
                        let why = boost_plan::refusal_summary(&sighted.boost);
                        if why != told {
                            tell(&format!(
                                "It runs again, and is not boosted yet: {}\n",
                                why.as_deref().unwrap_or("nothing is to be changed")
                            ));
                            told = why;
                        }
                    }
                    // It has ended again.
                    Err(_) => {}
                }
            }
            self.interrupt.wait(Some(RESTART))?;
        }
        Ok(None)
    }
}
