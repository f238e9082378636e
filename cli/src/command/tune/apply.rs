//! `linerate tune apply`: makes the changes of a plan. Each is journalled before it is made.

pub(crate) mod runner;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_host::{Diagnosis, Host, Known, PacketPath, Severity};
use linerate_tune::TunePlan;
use linerate_tune::guard::TuneGuard;
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::journal::{RecordedTune, StateStore};
use linerate_tune::measure::{ChangeMeasurement, MeasuredService};
use linerate_tune::plan::ChangeImpact;
use linerate_tune::report::{RemainingFinding, TuneApplyReport};
use linerate_tune::transaction::{self, TuneError, TuneStart, TuneTransaction, UndoReport};

use super::arguments::{AutoUndoArgs, ConsentMode, StateDirArgs, must_be_root};
use super::confirm;
use super::flow::{FlowTarget, TuneFlowArgs};
use super::measure_args::{MeasureArgs, is_undone};
use super::plan::{self, TunePlanner};
use super::profiles::ProfileArgs;
use crate::command::doctor::arguments::{HostScopeArgs, ScopeArgs};
use crate::command::doctor::reading::ObservedHost;
use crate::command::results::write_result;
use crate::document::Document;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary, Warning};
use crate::output::{self, OutputTarget, print_status};
use crate::render::format::count_with_noun;
use crate::render::style::TextStyle;
use crate::render::text;
use crate::view::{self, tune_plan::PlannedTune};
use runner::{AppliedTune, TuneRun};

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
    #[arg(long, conflicts_with_all = ["plan", "interfaces", "port", "pid", "interval", "goal", "only", "except", "anyway", "for_duration", "until_confirmed"])]
    resume: bool,
    /// Continue after a change that the host refuses
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    options: ChangeOptions,
    /// `tune flow`: plans for it instead of findings.
    #[arg(skip)]
    flow: Option<FlowTarget>,
}

/// Options of `tune apply` and `tune flow`.
#[derive(Debug, Args)]
pub(super) struct ChangeOptions {
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
}

/// A plan to apply, and the planner that can make it again.
struct TuneTask {
    planned_tune: PlannedTune,
    /// `None` for a saved plan, which may be edited.
    planner: Option<TunePlanner>,
}

impl TuneTask {
    /// A plan that is not made again.
    fn of_plan(plan: TunePlan, host: &Host) -> Self {
        Self { planned_tune: PlannedTune::of_plan(plan, plan::host_name(host)), planner: None }
    }

    fn plan(&self) -> &TunePlan {
        &self.planned_tune.plan
    }
}

impl TuneApplyArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root(if self.flow.is_some() { "flow" } else { "apply" })?;
        self.options.consent.check()?;
        self.options.measuring.check()?;
        let json = OutputTarget::from_option(self.options.json.as_deref())?;
        let interrupt = InterruptFlag::install_ignoring_hangup()?;
        let host = Host::live();
        let store = if self.resume {
            self.options.state_dir.existing_store()?
        } else {
            self.options.state_dir.writable_store()?
        };
        check_unfinished_tunes(&store, &host, &self.options.state_dir, self.resume)?;
        if self.resume {
            return self.resume_tune(&host, &store, json.as_ref(), &interrupt);
        }
        // The load starts first, because plans depend on it.
        let load = self.options.measuring.generate(&interrupt)?;
        let task = self.task(&host, &interrupt)?;
        self.print_plan(&task, json.as_ref())?;
        let count = task.plan().exclusions.len() + task.plan().changes.len();
        if count == 0 {
            write_unchanged(&task, &host, json.as_ref(), None)?;
            return Ok(ExitCode::SUCCESS);
        }
        let changes = count_with_noun(count, "change");
        let question = format!("apply {changes} to {}?", task.planned_tune.host);
        if !self.options.consent.confirm(&question, &interrupt)? {
            status_line!("nothing was changed");
            write_unchanged(&task, &host, json.as_ref(), Some(unconfirmed_reason(&interrupt)))?;
            return Ok(ExitCode::from(1));
        }
        ensure!(
            !(self.options.measuring.alternates() && task.plan().until_link_reset().is_some()),
            "nothing was changed: --measure=alternate would reset the link of an interface three times; use --measure"
        );
        let path = PacketPath::observe(&host, &self.scope_args.scope().unwrap_or_default());
        let service = MeasuredService::of(&path);
        let started_measurement =
            self.options.measuring.begin(&host, &path, service, load.as_ref(), &interrupt)?;
        let mut applied_tune = self.apply(&host, &store, &task, &interrupt)?;
        if let (Some(_), Some(reason)) = (&self.flow, &applied_tune.broke_off) {
            // A part of these changes is useless, and may take a queue from other flows.
            let undo_report = undo(&store, &host, applied_tune.id, UndoReason::Finished)?;
            ensure!(
                !undo_report.has_failures(),
                "{reason}; tune {} could not be undone completely",
                applied_tune.id
            );
            bail!("{reason}: all changes are undone");
        }
        let (measurement, mut undo_report) = match started_measurement {
            Ok(started_measurement) => started_measurement.complete(
                &store,
                &mut applied_tune,
                |id| undo(&store, &host, id, UndoReason::Measured),
                || self.apply(&host, &store, &task, &interrupt),
            )?,
            Err(reason) => (Known::unknown(reason), None),
        };
        if applied_tune.broke_off.is_none()
            && let Some(reason) =
                self.options.measuring.undo_reason(&measurement, self.options.consent, &interrupt)?
            && !is_undone(&store, applied_tune.id)?
        {
            undo_report = Some(undo(&store, &host, applied_tune.id, reason)?);
        }
        drop(load);
        self.report(&task, applied_tune, (measurement, undo_report), json.as_ref())
    }

    /// Makes the changes of a plan as one tune.
    fn apply<'a>(
        &self,
        host: &'a Host,
        store: &StateStore,
        task: &TuneTask,
        interrupt: &'a InterruptFlag,
    ) -> Result<AppliedTune<'a>> {
        // After a measurement the changes must not end half made because another process holds the lock.
        let mut writer = store.lock_waiting()?;
        let tune_start = TuneStart {
            goal: task.plan().goal.clone(),
            argv: output::argv(),
            devices: task.plan().devices.clone(),
            until: self.options.lasting.deadline(),
            plan: Some(task.plan()),
        };
        let transaction = TuneTransaction::begin(&mut writer, host, tune_start)?;
        let (applied_tune, guard) = self.make_changes(transaction, host, task, interrupt)?;
        drop(writer);
        drop(guard);
        applied_tune
    }

    fn make_changes<'a>(
        &self,
        transaction: TuneTransaction<'_>,
        host: &'a Host,
        task: &TuneTask,
        interrupt: &'a InterruptFlag,
    ) -> Result<(Result<AppliedTune<'a>>, Option<TuneGuard>)> {
        let tune_run = TuneRun::new(host, interrupt, self.keep_going, transaction.until());
        tune_run.complete(transaction, &self.options.state_dir, |tune_run, transaction| {
            apply_all(transaction, tune_run, task)
        })
    }

    fn task(&self, host: &Host, interrupt: &InterruptFlag) -> Result<TuneTask> {
        if let Some(file) = &self.plan {
            let plan = plan::read_saved_plan(file)?;
            plan.check(host)?;
            return Ok(TuneTask::of_plan(plan, host));
        }
        if let Some(flow) = &self.flow {
            let (plan, unread_owners) = flow.plan(host, &self.scope_args)?;
            let mut task = TuneTask::of_plan(plan, host);
            task.planned_tune.unseen = unread_owners;
            return Ok(task);
        }
        let input = HostScopeArgs { scope_args: self.scope_args.clone(), root: None };
        let planner =
            TunePlanner { input, profile: self.choice.profile()?, store: self.options.state_dir.store() };
        Ok(TuneTask { planned_tune: planner.rehearsed_plan(interrupt)?, planner: Some(planner) })
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
            options: flow.options,
            flow: Some(flow.target),
        }
    }
}

/// Link resets per tune: channels and rings may require one each.
const MOST_RESETS: usize = 3;

/// Makes the changes. Plans again after each link reset, because queues and vectors differ then.
fn apply_all(
    transaction: &mut TuneTransaction<'_>,
    tune_run: &mut TuneRun<'_>,
    task: &TuneTask,
) -> Result<Option<String>, TuneError> {
    let mut plan = task.plan().clone();
    for _ in 0..MOST_RESETS {
        let (Some(plan_part), Some(planner)) = (plan.until_link_reset(), &task.planner) else {
            return tune_run.apply_plan(transaction, &plan);
        };
        if let Some(reason) = tune_run.apply_plan(transaction, &plan_part)? {
            return Ok(Some(reason));
        }
        plan = match planner.plan(tune_run.interrupt) {
            Ok(planning_result) => planning_result.plan,
            Err(error) => {
                return Ok(Some(format!("planning again after a link reset: {}", output::one_line(&error))));
            }
        };
        status_line!("planned again: {}", view::tune_plan::summary(&plan, &task.planned_tune.host));
        transaction.replan(&plan)?;
    }
    Ok(Some(format!("the plan requires another link reset after {MOST_RESETS} resets")))
}

impl TuneApplyArgs {
    fn print_plan(&self, task: &TuneTask, json: Option<&OutputTarget>) -> Result<()> {
        print_plan(&view::tune_plan::document(&task.planned_tune, self.options.full), json)
    }

    /// Finishes the tune of an earlier call, with its recorded plan.
    fn resume_tune(
        &self,
        host: &Host,
        store: &StateStore,
        json: Option<&OutputTarget>,
        interrupt: &InterruptFlag,
    ) -> Result<ExitCode> {
        let measurement =
            self.options.measuring.without_measurement("a tune that is resumed has no window before it")?;
        let mut writer = store.lock()?;
        let (transaction, plan) = TuneTransaction::resume(&mut writer, host)?;
        let task = TuneTask::of_plan(plan, host);
        let (applied_tune, guard) = self.make_changes(transaction, host, &task, interrupt)?;
        drop(writer);
        drop(guard);
        self.report(&task, applied_tune?, (measurement.into(), None), json)
    }

    fn report(
        &self,
        task: &TuneTask,
        applied_tune: AppliedTune<'_>,
        (measurement, undo_report): (Known<ChangeMeasurement>, Option<UndoReport>),
        json: Option<&OutputTarget>,
    ) -> Result<ExitCode> {
        let AppliedTune { id, run: tune_run, broke_off } = applied_tune;
        let undone = is_undone(&self.options.state_dir.store(), id)?;
        let has_failed = self.options.measuring.shows_harm(&measurement) || undone;
        let diagnosis = task.diagnose(tune_run.interrupt);
        let report = TuneApplyReport {
            tune: Some(id),
            goal: task.plan().goal.clone(),
            until: tune_run.until,
            changes: tune_run.steps.clone(),
            broke_off: broke_off.clone(),
            findings: diagnosis.as_ref().ok().map(RemainingFinding::all_of),
            measurement,
            undone,
        };
        let read_warning = diagnosis.as_ref().err().map(output::one_line);
        let read_warning = read_warning
            .map(|reason| Warning::remark(format!("doctor could not read the host afterwards: {reason}")));
        // `apply` plans again after a link reset. A resumed tune cannot: its scope and profile are not recorded.
        let reset_interfaces = reset_interfaces(task.plan()).filter(|_| self.resume && broke_off.is_none());
        let has_unplanned_queues = reset_interfaces.is_some();
        let reset_warning = reset_interfaces.map(|interfaces| {
            Warning::remark(format!(
                "the link reset recreated the queues of {interfaces}, and this tune does not set them: run {} to plan \
                 their settings",
                self.options.state_dir.command("apply")
            ))
        });
        let envelope =
            Envelope::new(HostSummary::observe(tune_run.host), tune_run.started_unix_seconds, report)
                .with_warnings(read_warning.into_iter().chain(reset_warning));
        // A file that cannot be written must cost neither the report of the undo nor the
        // confirmation.
        let outcome = write_result(json, &envelope, || {
            view::tune::apply(&envelope, &|subcommand| self.options.state_dir.command(subcommand))
        });
        if let Some(undo_report) = undo_report {
            let status = print_undo(tune_run.host, undo_report)?;
            outcome?;
            return Ok(if broke_off.is_some() { ExitCode::from(2) } else { status });
        }
        if let Some(UndoDeadline::Confirmed { boot_seconds }) = tune_run.until {
            let (host, interrupt) = (tune_run.host, tune_run.interrupt);
            if confirm::is_undone(&self.options.state_dir, host, id, boot_seconds, interrupt)? {
                return outcome.map(|()| ExitCode::from(1));
            }
        }
        outcome?;
        Ok(match broke_off {
            Some(_) => ExitCode::from(2),
            None => ExitCode::from(u8::from(
                has_failed
                    || has_unplanned_queues
                    || diagnosis.is_ok_and(|diagnosis| task.has_unfixed(&diagnosis)),
            )),
        })
    }
}

/// Prints a plan before its changes. JSON on standard output moves the text to standard error.
pub(crate) fn print_plan(document: &Document, json: Option<&OutputTarget>) -> Result<()> {
    let text = |style| text::text(document, style);
    if json == Some(&OutputTarget::Stdout) {
        print_status(&text(TextStyle { colour: false, ..TextStyle::stdout() }));
        return Ok(());
    }
    output::print(&text(TextStyle::stdout()))
}

/// The interfaces whose links a plan resets, `None` if there are none.
fn reset_interfaces(plan: &TunePlan) -> Option<String> {
    let resets = plan.changes.iter().filter(|change| change.interrupts == ChangeImpact::Link);
    let names: BTreeSet<_> = resets.filter_map(|change| change.setting.interface()).collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Why the changes were not confirmed.
pub(crate) fn unconfirmed_reason(interrupt: &InterruptFlag) -> &'static str {
    if interrupt.is_raised() { "it was interrupted" } else { "the answer was no" }
}

/// Writes the document of a call that changed nothing.
fn write_unchanged(
    task: &TuneTask,
    host: &Host,
    json: Option<&OutputTarget>,
    reason: Option<&str>,
) -> Result<()> {
    let Some(target) = json else { return Ok(()) };
    let report = TuneApplyReport {
        tune: None,
        goal: task.plan().goal.clone(),
        until: None,
        changes: Vec::new(),
        broke_off: reason.map(str::to_owned),
        findings: None,
        measurement: Known::unknown("nothing was changed"),
        undone: false,
    };
    target.write_json(&Envelope::new(HostSummary::observe(host), origin::unix_seconds(), report))
}

/// Undoes a tune of this call.
fn undo(store: &StateStore, host: &Host, id: u64, reason: UndoReason) -> Result<UndoReport> {
    status_line!("undoing tune {id}");
    Ok(transaction::undo(&mut store.lock_waiting()?, host, Some(id), reason)?)
}

/// Prints an undo that followed a measurement. The status is 2 if the undo is incomplete, else 1.
pub(crate) fn print_undo(host: &Host, undo_report: UndoReport) -> Result<ExitCode> {
    let is_incomplete = undo_report.has_failures() || undo_report.has_skipped();
    let envelope = Envelope::new(HostSummary::observe(host), None, undo_report);
    // Standard output may be in use for the document of the changes.
    print_status(&text::text(&view::tune::undo(&envelope, false), TextStyle::stderr()));
    Ok(ExitCode::from(if is_incomplete { 2 } else { 1 }))
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
    fn has_unfixed(&self, diagnosis: &Diagnosis) -> bool {
        let changes = || self.plan().exclusions.iter().chain(&self.plan().changes);
        let is_planned =
            |id: &str| changes().any(|change| change.findings.iter().any(|finding| finding == id));
        diagnosis.findings.iter().any(|finding| finding.severity > Severity::Note && is_planned(finding.id))
    }
}

/// Undoes overdue tunes. Fails if another tune of this boot is unfinished, unless it is resumed.
pub(crate) fn check_unfinished_tunes(
    store: &StateStore,
    host: &Host,
    state_dir: &StateDirArgs,
    resume: bool,
) -> Result<()> {
    let mut writer = store.lock()?;
    for undo_report in transaction::undo_overdue(&mut writer, host)? {
        status_line!("overdue: {}", view::tune::undo_summary(&undo_report));
    }
    let boot = host.read("/proc/sys/kernel/random/boot_id")?;
    let is_unfinished = |tune: &&RecordedTune| {
        let is_of_earlier_boot = tune.begun.is_of_earlier_boot(boot.trim()) == Some(true);
        tune.ended.is_none() && tune.is_open() && !is_of_earlier_boot
    };
    let last_tune = writer.tunes().last().filter(|_| !resume);
    let Some(tune) = last_tune.filter(is_unfinished) else { return Ok(()) };
    let number = tune.begun.tune;
    let resume = match store.plan(number) {
        Ok(Some(_)) => format!("{} finishes it, ", state_dir.command("apply --resume")),
        _ => String::new(),
    };
    let undo = state_dir.command(&format!("undo {number}"));
    bail!("tune {number} was not finished because its program died: {resume}{undo} undoes it")
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;
    use linerate_host::{Setting, SettingValue};

    use super::*;

    #[test]
    fn unfinished_tune_blocks_others_until_the_next_boot_and_without_a_plan_is_not_to_be_resumed() {
        const BOOT: &str = "/proc/sys/kernel/random/boot_id";
        let directory = tempfile::tempdir().expect("a directory");
        let argv = ["apply".as_ref(), "--state-dir".as_ref(), directory.path().as_os_str()];
        let matches = StateDirArgs::augment_args(clap::Command::new("apply")).get_matches_from(argv);
        let state_dir = StateDirArgs::from_arg_matches(&matches).expect("arguments");
        let store = state_dir.store();
        let files = [(BOOT, "boot-1\n"), ("/proc/sys/net/core/rmem_max", "1\n")];
        let host = Host::scripted(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let plan = TunePlan::default();
        for (plan, value) in [(None, "2"), (Some(&plan), "3")] {
            host.write(BOOT, "boot-1\n").expect("scripted");
            let mut writer = store.lock().expect("locked");
            let start = TuneStart { plan, ..TuneStart::new("boost", Vec::new()) };
            let mut tune = TuneTransaction::begin(&mut writer, &host, start).expect("begun");
            let setting = Setting::sysctl("net.core.rmem_max");
            tune.change(&host, &setting, &SettingValue::new(value)).expect("journalled");
            // Its program dies.
            drop(writer);
            let check = || check_unfinished_tunes(&store, &host, &state_dir, false);
            let error = check().expect_err("unfinished").to_string();
            assert!(error.contains("undo") && error.contains("--resume") == plan.is_some(), "{error}");
            host.write(BOOT, "boot-2\n").expect("scripted");
            check().expect("the boot ended its changes");
        }
    }
}
