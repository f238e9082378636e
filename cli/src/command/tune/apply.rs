//! `linerate tune apply`: makes the changes of a plan. Each is journalled before it is made.

pub(crate) mod runner;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_host::{Diagnosis, Host, Known, PacketPath, Severity};
use linerate_tune::TunePlan;
use linerate_tune::journal::StateStore;
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::measure::{ChangeMeasurement, MeasuredService};
use linerate_tune::plan::PlanRehearsal;
use linerate_tune::report::{RemainingFinding, TuneApplyReport};
use linerate_tune::transaction::{self, TuneError, TuneStart, TuneTransaction, UndoReport};

use super::arguments::{AutoUndoArgs, ConsentMode, StateDirArgs, must_be_root};
use super::confirm::{self, ConfirmationAnswer};
use super::flow::{FlowTarget, TuneFlowArgs};
use super::measuring::{MeasureArgs, StartedMeasurement};
use super::plan::{self, TunePlanner};
use super::profiles::ProfileArgs;
use crate::command::doctor::arguments::{HostScopeArgs, ScopeArgs};
use crate::command::doctor::reading::ObservedHost;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{HostSummary, Warning};
use crate::output::{self, OutputTarget};
use crate::render::format::count_with_noun;
use crate::render::style::TextStyle;
use crate::render::text;
use crate::view::{self, tune_plan::PlanView};
use runner::{TuneRun, tell};

/// Arguments of `tune apply`.
#[derive(Debug, Args)]
pub(super) struct TuneApplyArgs {
    #[command(flatten)]
    scope_args: ScopeArgs,
    #[command(flatten)]
    choice: ProfileArgs,
    /// Apply this plan, written by `tune plan --json`, instead of a new one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "port", "pid", "interval", "goal", "only", "except", "anyway"])]
    plan: Option<PathBuf>,
    /// Finish the tune that was interrupted
    #[arg(long, conflicts_with_all = ["plan", "for_duration", "until_confirmed"])]
    resume: bool,
    /// Continue after a change that the host refuses
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    lasting: AutoUndoArgs,
    #[command(flatten)]
    measuring: MeasureArgs,
    #[command(flatten)]
    consent: ConsentMode,
    /// Show all reasons, masks, commands and sources
    #[arg(long)]
    full: bool,
    /// Write what was done as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
    /// `tune flow`: plans for it instead of findings.
    #[arg(skip)]
    flow: Option<FlowTarget>,
}

/// A plan to apply, and the planner that can make it again.
struct TuneTask {
    plan: TunePlan,
    host_name: String,
    /// `None` for a saved plan, which may be edited.
    planner: Option<TunePlanner>,
    rehearsal: Option<PlanRehearsal>,
    unseen: Vec<String>,
}

/// A tune that was applied completely or in part.
struct AppliedTune<'a> {
    id: u64,
    carrying: TuneRun<'a>,
    ended: Result<Option<String>, TuneError>,
}

/// The measured effect of the changes, and the undo that it caused.
#[derive(Default)]
struct MeasuredOutcome {
    measurement: Known<ChangeMeasurement>,
    undone: Option<UndoReport>,
}

impl TuneApplyArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root(if self.flow.is_some() { "flow" } else { "apply" })?;
        self.consent.check()?;
        self.measuring.check()?;
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let interrupt = InterruptFlag::install_ignoring_hangup()?;
        let host = Host::live();
        let store = if self.resume { self.state_dir.existing()? } else { self.state_dir.begun()? };
        must_be_free(&store, &host, &self.state_dir, self.resume)?;
        if self.resume {
            return self.go_on(&host, &store, json.as_ref(), &interrupt);
        }
        // The load starts first, because plans depend on it.
        let load = self.measuring.generate(&interrupt)?;
        let task = self.task(&host, &interrupt)?;
        self.show(&task, json.as_ref())?;
        let count = task.plan.exclusions.len() + task.plan.changes.len();
        if count == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let changes = count_with_noun(count, "change");
        if !self.consent.given(&format!("apply {changes} to {}?", task.host_name), &interrupt)? {
            tell("nothing was changed\n");
            return Ok(ExitCode::from(1));
        }
        ensure!(
            !(self.measuring.alternates() && task.plan.until_link_reset().is_some()),
            "nothing was changed: --measure=alternate would reset the link of an interface three times; use --measure"
        );
        let path = PacketPath::observe(&host, &self.scope_args.scope().unwrap_or_default());
        let service = MeasuredService::of(&path);
        let measuring = self.measuring.begin(&host, &path, service, load.as_ref(), &interrupt)?;
        let mut applied = self.apply(&host, &store, &task, &interrupt)?;
        if let (Some(_), Ok(Some(why))) = (&self.flow, &applied.ended) {
            // A part of these changes is useless, and may take a queue from other flows.
            let undone = undo(&store, &host, applied.id, UndoReason::Finished)?;
            ensure!(!undone.has_failures(), "{why}; tune {} could not be undone completely", applied.id);
            bail!("{why}: all changes are undone");
        }
        let outcome = match measuring {
            Ok(measuring) => self.measure(measuring, &mut applied, &task, &host, &interrupt)?,
            Err(why) => MeasuredOutcome { measurement: Known::unknown(why), undone: None },
        };
        drop(load);
        self.report(&task, applied, outcome, json.as_ref())
    }

    /// Makes the changes of a plan as one tune.
    fn apply<'a>(
        &self,
        host: &'a Host,
        store: &StateStore,
        task: &TuneTask,
        interrupt: &'a InterruptFlag,
    ) -> Result<AppliedTune<'a>> {
        let until = self.lasting.until();
        let mut writer = store.lock()?;
        let begin = TuneStart {
            goal: task.plan.goal.clone(),
            argv: output::argv(),
            devices: task.plan.devices.clone(),
            until,
            plan: Some(&task.plan),
        };
        let transaction = TuneTransaction::begin(&mut writer, host, begin)?;
        let id = transaction.id();
        // The guard runs before the first change, so that no unconfirmed change can stay.
        let guard = match until.map(|_| confirm::start_guard(&self.state_dir, id)).transpose() {
            Ok(guard) => guard,
            Err(error) => {
                transaction.end(Some("its guard did not start".to_owned()))?;
                return Err(error);
            }
        };
        let mut carrying = TuneRun::new(host, interrupt, self.keep_going, until);
        let ended = carry_out(transaction, &mut carrying, task);
        drop(writer);
        drop(guard);
        Ok(AppliedTune { id, carrying, ended })
    }

    /// Measures the service with the changes, judges, and undoes the changes if the service is
    /// worse and the options or the user request it. In alternation the changes are undone and made
    /// again, so that `applied` is another tune afterwards.
    fn measure<'a>(
        &self,
        mut measuring: StartedMeasurement<'_>,
        applied: &mut AppliedTune<'a>,
        task: &TuneTask,
        host: &'a Host,
        interrupt: &'a InterruptFlag,
    ) -> Result<MeasuredOutcome> {
        let store = self.state_dir.store();
        let unmeasured = |why: String| Ok(MeasuredOutcome { measurement: Known::unknown(why), undone: None });
        if !matches!(applied.ended, Ok(None)) {
            return unmeasured("not all changes were made".to_owned());
        }
        if let Err(why) = measuring.measure(true) {
            return unmeasured(why);
        }
        if self.measuring.alternates() {
            undo(&store, host, applied.id, UndoReason::Measured)?;
            if let Err(why) = measuring.measure(false) {
                tell(&format!("tune {} is undone\n", applied.id));
                return unmeasured(why);
            }
            *applied = self.apply(host, &store, task, interrupt)?;
            if !matches!(applied.ended, Ok(None)) {
                return unmeasured("the changes could not be made again".to_owned());
            }
        }
        let measured = measuring.finish(&store, applied.id)?;
        let undone = self.measuring.is_to_be_undone(&measured, self.consent, interrupt)?;
        let undone = undone.then(|| undo(&store, host, applied.id, UndoReason::Harmful)).transpose()?;
        Ok(MeasuredOutcome { measurement: Known::Value(measured), undone })
    }

    fn task(&self, host: &Host, interrupt: &InterruptFlag) -> Result<TuneTask> {
        if let Some(file) = &self.plan {
            let plan = plan::saved(file)?;
            plan.check(host)?;
            return Ok(TuneTask {
                plan,
                host_name: plan::host_name(host),
                planner: None,
                rehearsal: None,
                unseen: Vec::new(),
            });
        }
        if let Some(flow) = &self.flow {
            let (plan, unseen) = flow.plan(host, &self.scope_args)?;
            let host_name = plan::host_name(host);
            return Ok(TuneTask { plan, host_name, planner: None, rehearsal: None, unseen });
        }
        let input = HostScopeArgs { scope_args: self.scope_args.clone(), root: None };
        let planner = TunePlanner { input, profile: self.choice.profile()?, store: self.state_dir.store() };
        let planned = planner.rehearsed_plan(interrupt)?;
        Ok(TuneTask {
            plan: planned.plan,
            host_name: planned.host,
            planner: Some(planner),
            rehearsal: planned.rehearsal,
            unseen: planned.unseen,
        })
    }
}

impl From<TuneFlowArgs> for TuneApplyArgs {
    fn from(flow: TuneFlowArgs) -> Self {
        Self {
            scope_args: flow.scope(),
            choice: ProfileArgs::default(),
            plan: None,
            resume: false,
            keep_going: false,
            lasting: flow.lasting,
            measuring: flow.measuring,
            consent: flow.consent,
            full: flow.full,
            json: flow.json,
            state_dir: flow.state_dir,
            flow: Some(flow.target),
        }
    }
}

/// Link resets per tune: channels and rings may require one each.
const MOST_RESETS: usize = 3;

/// Makes the changes and ends the tune. Returns the reason if it stopped.
fn carry_out(
    mut transaction: TuneTransaction<'_>,
    carrying: &mut TuneRun<'_>,
    task: &TuneTask,
) -> Result<Option<String>, TuneError> {
    let stopped = make_all(&mut transaction, carrying, task)?;
    let refused = || match carrying.refused() {
        0 => None,
        some => Some(format!("{} refused", count_with_noun(some, "change"))),
    };
    let broke_off = stopped.or_else(refused);
    transaction.end(broke_off.clone())?;
    Ok(broke_off)
}

/// Makes the changes. Plans again after each link reset, because queues and vectors differ then.
fn make_all(
    transaction: &mut TuneTransaction<'_>,
    carrying: &mut TuneRun<'_>,
    task: &TuneTask,
) -> Result<Option<String>, TuneError> {
    let mut plan = task.plan.clone();
    for _ in 0..MOST_RESETS {
        let (Some(part), Some(planner)) = (plan.until_link_reset(), &task.planner) else {
            return carrying.make_plan(transaction, &plan);
        };
        if let Some(why) = carrying.make_plan(transaction, &part)? {
            return Ok(Some(why));
        }
        plan = match planner.plan(carrying.interrupt) {
            Ok(planned) => planned.plan,
            Err(error) => {
                return Ok(Some(format!("planning again after a link reset: {}", output::one_line(&error))));
            }
        };
        tell(&format!("planned again: {}\n", view::tune_plan::summary(&plan, &task.host_name)));
        transaction.replan(&plan)?;
    }
    Ok(Some(format!("the plan requires another link reset after {MOST_RESETS} resets")))
}

impl TuneApplyArgs {
    fn show(&self, task: &TuneTask, json: Option<&OutputTarget>) -> Result<()> {
        let document = view::tune_plan::document(&PlanView {
            plan: &task.plan,
            host: &task.host_name,
            rehearsal: task.rehearsal.as_ref(),
            unseen: &task.unseen,
            full: self.full,
        });
        let text = |style| text::text(&document, style);
        if json == Some(&OutputTarget::Stdout) {
            tell(&text(TextStyle { colour: false, ..TextStyle::stdout() }));
            return Ok(());
        }
        output::print_if_read(&text(TextStyle::stdout()))
    }

    /// Finishes the tune of an earlier call, with its recorded plan.
    fn go_on(
        &self,
        host: &Host,
        store: &StateStore,
        json: Option<&OutputTarget>,
        interrupt: &InterruptFlag,
    ) -> Result<ExitCode> {
        let mut writer = store.lock()?;
        let (transaction, plan) = TuneTransaction::resume(&mut writer, host, None)?;
        let task = TuneTask {
            plan,
            host_name: plan::host_name(host),
            planner: None,
            rehearsal: None,
            unseen: Vec::new(),
        };
        let id = transaction.id();
        let mut carrying = TuneRun::new(host, interrupt, self.keep_going, None);
        let ended = carry_out(transaction, &mut carrying, &task);
        drop(writer);
        let outcome = MeasuredOutcome {
            measurement: Known::unknown("a tune that is resumed has no window before it"),
            undone: None,
        };
        self.report(&task, AppliedTune { id, carrying, ended }, outcome, json)
    }

    fn report(
        &self,
        task: &TuneTask,
        applied: AppliedTune<'_>,
        outcome: MeasuredOutcome,
        json: Option<&OutputTarget>,
    ) -> Result<ExitCode> {
        let AppliedTune { id, carrying, ended } = applied;
        let is_worse = self.measuring.fails(&outcome.measurement);
        let undone = outcome.undone;
        let broke_off = match ended {
            Ok(broke_off) => broke_off,
            Err(error) => bail!("tune {id} stopped: {error}: {}", self.state_dir.after_a_stop(id)),
        };
        let found = task.diagnose(carrying.interrupt);
        let report = TuneApplyReport {
            tune: id,
            goal: task.plan.goal.clone(),
            until: carrying.until,
            changes: carrying.steps.clone(),
            broke_off: broke_off.clone(),
            findings: found.as_ref().ok().map(RemainingFinding::all_of),
            measurement: outcome.measurement,
            undone: undone.is_some(),
        };
        let unread = found.as_ref().err().map(output::one_line);
        let unread =
            unread.map(|why| Warning::remark(format!("doctor could not read the host afterwards: {why}")));
        let envelope =
            Envelope::new(HostSummary::observe(carrying.host), carrying.started_unix_seconds, report)
                .with_warnings(unread);
        if let Some(target) = json {
            target.write_json(&envelope)?;
        }
        if json != Some(&OutputTarget::Stdout) {
            let document = view::tune::apply(&envelope, &|verb| self.state_dir.command(verb));
            output::print_if_read(&text::text(&document, TextStyle::stdout()))?;
        }
        if let Some(undone) = undone {
            return view_undone(carrying.host, undone);
        }
        if let Some(UndoDeadline::Confirmed { boot_seconds }) = carrying.until {
            let store = self.state_dir.store();
            match confirm::wait(&store, carrying.host, id, boot_seconds, carrying.interrupt)? {
                ConfirmationAnswer::Confirmed => tell(&format!("Tune {id} is confirmed and stays.\n")),
                ConfirmationAnswer::Open => {}
                ConfirmationAnswer::Undone => {
                    let history = self.state_dir.command("history");
                    tell(&format!("Tune {id} is undone: {history} has the reason.\n"));
                    return Ok(ExitCode::from(1));
                }
            }
        }
        Ok(match broke_off {
            Some(_) => ExitCode::from(2),
            None => ExitCode::from(u8::from(is_worse || found.is_ok_and(|found| task.has_unfixed(&found)))),
        })
    }
}

/// Undoes a tune of this call.
fn undo(store: &StateStore, host: &Host, id: u64, why: UndoReason) -> Result<UndoReport> {
    tell(&format!("undoing tune {id}\n"));
    Ok(transaction::undo(&mut store.lock()?, host, Some(id), why)?)
}

/// Prints an undo that followed a measurement. The status is 2 if the undo is incomplete, else 1.
pub(crate) fn view_undone(host: &Host, undone: UndoReport) -> Result<ExitCode> {
    let is_left = undone.has_failures() || undone.has_skipped();
    let envelope = Envelope::new(HostSummary::observe(host), None, undone);
    // Standard output may be in use for the document of the changes.
    tell(&text::text(&view::tune::undo(&envelope, false), TextStyle::stderr()));
    Ok(ExitCode::from(if is_left { 2 } else { 1 }))
}

impl TuneTask {
    fn diagnose(&self, interrupt: &InterruptFlag) -> Result<Diagnosis> {
        let input = match &self.planner {
            // A single reading, because counters need time to show an effect.
            Some(planner) => {
                HostScopeArgs { scope_args: planner.input.scope_args.without_interval(), root: None }
            }
            None => HostScopeArgs::default(),
        };
        let readings = ObservedHost::open(&input, false)?.read(interrupt)?;
        Ok(Diagnosis::of(&readings.view()))
    }

    /// Whether a finding above note remains that the plan should have fixed.
    fn has_unfixed(&self, found: &Diagnosis) -> bool {
        let all = || self.plan.exclusions.iter().chain(&self.plan.changes);
        let was_to_be = |id: &str| all().any(|change| change.findings.iter().any(|finding| finding == id));
        found.findings.iter().any(|finding| finding.severity > Severity::Note && was_to_be(finding.id))
    }
}

/// Undoes overdue tunes. Fails if another tune is unfinished, unless it is resumed.
pub(crate) fn must_be_free(
    store: &StateStore,
    host: &Host,
    state_dir: &StateDirArgs,
    resume: bool,
) -> Result<()> {
    let mut writer = store.lock()?;
    for undone in transaction::undo_overdue(&mut writer, host)? {
        tell(&format!("overdue: {}\n", view::tune::undo_summary(&undone)));
    }
    let Some(last) = writer.tunes().last() else { return Ok(()) };
    let number = last.begun.tune;
    ensure!(
        resume || !(last.ended.is_none() && last.is_open()),
        "tune {number} was not finished because its program died: {} finishes it, {} undoes it",
        state_dir.command("apply --resume"),
        state_dir.command(&format!("undo {number}"))
    );
    Ok(())
}
