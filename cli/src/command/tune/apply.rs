//! `linerate tune apply`: makes the changes of a plan, each written down before it is made.

pub(crate) mod carrying;
pub(crate) mod confirming;
pub(crate) mod document;
mod journal;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use linerate_host::{Diagnosis, Host, Severity};
use linerate_tune::Plan;
use linerate_tune::journal::Store;
use linerate_tune::journal::record::Until;
use linerate_tune::plan::Rehearsal;
use linerate_tune::transaction::{Begin, Transaction, TuneError};

use super::arguments::{Lasting, Place, must_be_root};
use super::ask::Agreement;
use super::choice::Choice;
use super::guard;
use super::planning::{self, Planner};
use crate::command::doctor::arguments::{Aim, Sight};
use crate::command::doctor::reading::Subject;
use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::render::style::Style;
use crate::render::{tune_apply, tune_plan};
use carrying::{Carrying, tell};
use confirming::Answer;
use document::{Applied, Remaining};
pub(crate) use journal::must_be_free;

/// Arguments of `tune apply`.
#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(flatten)]
    aim: Aim,
    #[command(flatten)]
    choice: Choice,
    /// Carry out this plan, as plan --json wrote it, instead of making one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "port", "pid", "watch", "goal", "only", "except", "anyway"])]
    plan: Option<PathBuf>,
    /// Finish the tune that broke off or whose program died
    #[arg(long, conflicts_with_all = ["plan", "for_duration", "until_confirmed"])]
    resume: bool,
    /// Go on with the other changes after one that the host refuses
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    lasting: Lasting,
    #[command(flatten)]
    agreement: Agreement,
    /// Show all reasons, masks, commands and sources
    #[arg(long)]
    full: bool,
    /// Write what was done as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// What is carried out, and from what it can be made anew.
struct Task {
    plan: Plan,
    host_name: String,
    /// None for a plan that somebody saved, and may have edited.
    planner: Option<Planner>,
    rehearsal: Option<Rehearsal>,
    unseen: Vec<String>,
}

impl Apply {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("apply")?;
        self.agreement.check()?;
        let json = Target::wanted(self.json.as_deref())?;
        let interrupt = Interrupt::between_changes()?;
        let host = Host::live();
        let store = if self.resume { self.place.existing()? } else { self.place.begun()? };
        must_be_free(&store, &host, &self.place, self.resume)?;
        if self.resume {
            return self.go_on(&host, &store, json.as_ref(), &interrupt);
        }
        let task = self.task(&host, &interrupt)?;
        self.show(&task, json.as_ref())?;
        let count = task.plan.agreements.len() + task.plan.changes.len();
        if count == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let changes = tune_plan::counted(count, "change");
        if !self.agreement.given(&format!("apply {changes} to {}?", task.host_name), &interrupt)? {
            tell("nothing was changed\n");
            return Ok(ExitCode::from(1));
        }
        let until = self.lasting.until();
        let mut writer = store.lock()?;
        let begin = Begin {
            goal: task.plan.goal.clone(),
            argv: output::argv(),
            devices: task.plan.devices.clone(),
            until,
            plan: Some(&task.plan),
        };
        let transaction = Transaction::begin(&mut writer, &host, begin)?;
        let id = transaction.id();
        // Watches before the first change, so that nothing stays that nobody confirmed.
        let guard = match until.map(|_| guard::start(&self.place, id)).transpose() {
            Ok(guard) => guard,
            Err(error) => {
                transaction.end(Some("its guard did not start".to_owned()))?;
                return Err(error);
            }
        };
        let mut carrying = Carrying::new(&host, &interrupt, self.keep_going, until);
        let ended = carry_out(transaction, &mut carrying, &task);
        drop(writer);
        drop(guard);
        self.report(&task, id, &carrying, ended, json.as_ref())
    }

    fn task(&self, host: &Host, interrupt: &Interrupt) -> Result<Task> {
        if let Some(file) = &self.plan {
            let plan = planning::saved(file)?;
            plan.check(host)?;
            return Ok(Task {
                plan,
                host_name: planning::host_name(host),
                planner: None,
                rehearsal: None,
                unseen: Vec::new(),
            });
        }
        let sight = Sight { aim: self.aim.clone(), root: None };
        let planner = Planner { sight, profile: self.choice.profile()? };
        let mut planned = planner.plan(interrupt)?;
        let rehearsal = Some(planned.rehearse());
        Ok(Task {
            plan: planned.plan,
            host_name: planned.host,
            planner: Some(planner),
            rehearsal,
            unseen: planned.unseen,
        })
    }
}

/// How often planning anew may follow on a link reset: channels and rings may each ask for one.
const MOST_RESETS: usize = 3;

/// Makes the changes and ends the tune; why it broke off, where it did.
fn carry_out(
    mut transaction: Transaction<'_>,
    carrying: &mut Carrying<'_>,
    task: &Task,
) -> Result<Option<String>, TuneError> {
    let stopped = make_all(&mut transaction, carrying, task)?;
    let refused = || match carrying.refused() {
        0 => None,
        some => Some(format!("{} refused", tune_plan::counted(some, "change"))),
    };
    let broke_off = stopped.or_else(refused);
    transaction.end(broke_off.clone())?;
    Ok(broke_off)
}

/// Makes the changes, planning anew after each part that resets a link, since queues and vectors are others then.
fn make_all(
    transaction: &mut Transaction<'_>,
    carrying: &mut Carrying<'_>,
    task: &Task,
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
                return Ok(Some(format!("planning anew after a link reset: {}", output::one_line(&error))));
            }
        };
        tell(&format!("planned anew: {}\n", tune_plan::summary(&plan, &task.host_name)));
        transaction.replan(&plan)?;
    }
    Ok(Some(format!("a link was to be reset again after {MOST_RESETS} resets")))
}

impl Apply {
    fn show(&self, task: &Task, json: Option<&Target>) -> Result<()> {
        let text = |style| {
            let plan = tune_plan::plan(&task.plan, &task.host_name, self.full, style);
            plan + &tune_plan::afterwards(&task.plan, task.rehearsal.as_ref(), self.full, style)
                + &tune_plan::unseen(&task.unseen, style)
        };
        if json == Some(&Target::Stdout) {
            tell(&text(Style { colour: false, ..Style::stdout() }));
            return Ok(());
        }
        output::print_if_read(&text(Style::stdout()))
    }

    /// Finishes what an earlier call began, with the plan that it kept.
    fn go_on(
        &self,
        host: &Host,
        store: &Store,
        json: Option<&Target>,
        interrupt: &Interrupt,
    ) -> Result<ExitCode> {
        let mut writer = store.lock()?;
        let (transaction, plan) = Transaction::resume(&mut writer, host, None)?;
        let task = Task {
            plan,
            host_name: planning::host_name(host),
            planner: None,
            rehearsal: None,
            unseen: Vec::new(),
        };
        let id = transaction.id();
        let mut carrying = Carrying::new(host, interrupt, self.keep_going, None);
        let ended = carry_out(transaction, &mut carrying, &task);
        drop(writer);
        self.report(&task, id, &carrying, ended, json)
    }

    fn report(
        &self,
        task: &Task,
        id: u64,
        carrying: &Carrying<'_>,
        ended: Result<Option<String>, TuneError>,
        json: Option<&Target>,
    ) -> Result<ExitCode> {
        let (status, undo) = (self.place.command("status"), self.place.command(&format!("undo {id}")));
        let broke_off = match ended {
            Ok(broke_off) => broke_off,
            Err(error) => {
                bail!(
                    "tune {id} stopped where it is: {error}: {status} tells what was done, {undo} takes it back"
                )
            }
        };
        let found = task.look_again(carrying.interrupt);
        let applied = Applied {
            schema: document::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            started_unix_seconds: carrying.started_unix_seconds,
            tune: id,
            goal: &task.plan.goal,
            host: &task.host_name,
            until: carrying.until,
            changes: &carrying.steps,
            broke_off: broke_off.as_deref(),
            findings: found.as_ref().ok().map(Remaining::of),
        };
        if let Some(target) = json {
            target.json(&applied)?;
        }
        if json != Some(&Target::Stdout) {
            let unread = found.as_ref().err().map(output::one_line);
            output::print_if_read(&tune_apply::applied(
                &applied,
                unread.as_deref(),
                &self.place,
                Style::stdout(),
            ))?;
        }
        if let Some(Until::Confirmed { boot_seconds }) = carrying.until {
            let store = self.place.store();
            match confirming::wait(&store, carrying.host, id, boot_seconds, carrying.interrupt)? {
                Answer::Confirmed => tell(&format!("Tune {id} is confirmed and stays.\n")),
                Answer::Open => {}
                Answer::Undone => {
                    let history = self.place.command("history");
                    tell(&format!("Tune {id} is undone: {history} tells why.\n"));
                    return Ok(ExitCode::from(1));
                }
            }
        }
        Ok(match broke_off {
            Some(_) => ExitCode::from(2),
            None => ExitCode::from(u8::from(found.is_ok_and(|found| task.left_unmended(&found)))),
        })
    }
}

impl Task {
    /// What doctor finds now.
    fn look_again(&self, interrupt: &Interrupt) -> Result<Diagnosis> {
        let sight = match &self.planner {
            // Whether what was counted stops being counted, only time tells.
            Some(planner) => Sight { aim: planner.sight.aim.without_watch(), root: None },
            None => Sight::default(),
        };
        let readings = Subject::open(&sight, false)?.read(interrupt)?;
        Ok(Diagnosis::of(&readings.view()))
    }

    /// Whether anything above note remains of what the plan was to fix.
    fn left_unmended(&self, found: &Diagnosis) -> bool {
        let all = || self.plan.agreements.iter().chain(&self.plan.changes);
        let was_to_be = |id: &str| all().any(|change| change.findings.iter().any(|finding| finding == id));
        found.findings.iter().any(|finding| finding.severity > Severity::Note && was_to_be(finding.id))
    }
}
