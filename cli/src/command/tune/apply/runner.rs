//! Makes the changes of a plan one after the other.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use linerate_host::{Host, Setting};
use linerate_tune::TunePlan;
use linerate_tune::guard::TuneGuard;
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::plan::{ChangeImpact, PlannedChange};
use linerate_tune::report::AppliedChange;
use linerate_tune::transaction::{ChangeOutcome, TuneError, TuneTransaction, boot_seconds};

use super::super::{StateDirArgs, confirm};
use crate::interrupt::InterruptFlag;
use crate::origin;
use crate::render::format::count_with_noun;
use crate::view::tune_plan;

/// Time that a link may take to come up after a reset.
const LINK_TIME: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(100);

/// Changes in progress.
pub(crate) struct TuneRun<'a> {
    pub(crate) host: &'a Host,
    pub(crate) interrupt: &'a InterruptFlag,
    /// Whether to continue after a refusal.
    pub(crate) keep_going: bool,
    pub(crate) until: Option<UndoDeadline>,
    pub(crate) started_unix_seconds: Option<u64>,
    /// The attempted changes.
    pub(crate) steps: Vec<AppliedChange>,
    /// Number of changes known so far.
    total: usize,
    /// Interfaces whose link was reset, so that settings may differ from the plan.
    reset: BTreeSet<String>,
}

/// A tune that was made completely or in part.
pub(crate) struct AppliedTune<'a> {
    pub(crate) id: u64,
    pub(crate) run: TuneRun<'a>,
    /// Why changes are missing; `None` if all were made.
    pub(crate) broke_off: Option<String>,
}

impl<'a> TuneRun<'a> {
    pub(crate) fn new(
        host: &'a Host,
        interrupt: &'a InterruptFlag,
        keep_going: bool,
        until: Option<UndoDeadline>,
    ) -> Self {
        Self {
            host,
            interrupt,
            keep_going,
            until,
            started_unix_seconds: origin::unix_seconds(),
            steps: Vec::new(),
            total: 0,
            reset: BTreeSet::new(),
        }
    }

    /// Makes the changes by `make`, which returns the reason if it stopped, and ends the tune. Drop the
    /// guard after the lock of the journal.
    pub(crate) fn complete(
        mut self,
        mut transaction: TuneTransaction<'_>,
        state_dir: &StateDirArgs,
        make: impl FnOnce(&mut Self, &mut TuneTransaction<'_>) -> Result<Option<String>, TuneError>,
    ) -> Result<(Result<AppliedTune<'a>>, Option<TuneGuard>)> {
        let id = transaction.id();
        // The guard runs before the first change, so that no unconfirmed change can stay. The guard
        // of a resumed tune ended if no change was in effect.
        let guard = match self.until.map(|_| confirm::start_guard(state_dir, id)).transpose() {
            Ok(guard) => guard,
            Err(error) => {
                transaction.end(Some("its guard did not start".to_owned()))?;
                return Err(error);
            }
        };
        let result = make(&mut self, &mut transaction).and_then(|stop_reason| {
            let refused_count = self.refused_count();
            let refusals = format!("{} refused", count_with_noun(refused_count, "change"));
            let broke_off = stop_reason.or_else(|| (refused_count > 0).then_some(refusals));
            transaction.end(broke_off.clone())?;
            Ok(broke_off)
        });
        // A tune that changed nothing has nothing to undo, and its guard ends at once.
        self.until = self.until.filter(|_| state_dir.is_in_effect(id));
        let applied_tune = match result {
            Ok(broke_off) => Ok(AppliedTune { id, run: self, broke_off }),
            Err(error) => Err(anyhow!("tune {id} stopped: {error}: {}", state_dir.recovery_hint(id))),
        };
        Ok((applied_tune, guard))
    }

    /// Makes all changes of a plan. Returns the reason if it stopped.
    pub(crate) fn apply_plan(
        &mut self,
        transaction: &mut TuneTransaction<'_>,
        plan: &TunePlan,
    ) -> Result<Option<String>, TuneError> {
        self.total = self.steps.len() + plan.exclusions.len() + plan.changes.len();
        match self.apply_changes(transaction, &plan.exclusions)? {
            Some(reason) => Ok(Some(reason)),
            None => self.apply_changes(transaction, &plan.changes),
        }
    }

    fn apply_changes(
        &mut self,
        transaction: &mut TuneTransaction<'_>,
        changes: &[PlannedChange],
    ) -> Result<Option<String>, TuneError> {
        for change in changes {
            if let Some(reason) = self.stop_reason() {
                return Ok(Some(reason));
            }
            status!("{:>3}/{}  {} ... ", self.steps.len() + 1, self.total, tune_plan::one_line(change));
            let outcome = match self.apply_change(transaction, change) {
                Ok(outcome) => outcome,
                Err(TuneError::Journal(error)) => {
                    status_line!("not journaled");
                    return Err(error.into());
                }
                Err(error) => ChangeOutcome::Refused { why: error.to_string() },
            };
            let (outcome, is_fixed) = match (outcome, change.setting.fixed_reason(self.host)) {
                // The host does not allow this change, but other changes may succeed.
                (ChangeOutcome::Refused { .. }, Some(reason)) => {
                    (ChangeOutcome::Refused { why: reason.to_owned() }, true)
                }
                (outcome, _) => (outcome, false),
            };
            status_line!("{}", outcome_text(&outcome, &change.setting.to_string()));
            let refusal = match &outcome {
                ChangeOutcome::Refused { why } => Some(why.clone()),
                ChangeOutcome::Made | ChangeOutcome::Already => None,
            };
            self.steps.push(AppliedChange::new(change, outcome));
            if let (Some(reason), false) = (refusal, self.keep_going || is_fixed) {
                return Ok(Some(reason));
            }
            if change.interrupts == ChangeImpact::Link
                && let Some(reason) = self.await_link(&change.setting)
            {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    fn refused_count(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.outcome, ChangeOutcome::Refused { .. })).count()
    }

    fn apply_change(
        &mut self,
        transaction: &mut TuneTransaction<'_>,
        change: &PlannedChange,
    ) -> Result<ChangeOutcome, TuneError> {
        let PlannedChange { setting, from, to, .. } = change;
        let is_reset = setting.interface().is_some_and(|interface| self.reset.contains(interface.as_ref()));
        let outcome = if is_reset || change.is_moved_by_others() {
            transaction.change(self.host, setting, to)?
        } else {
            transaction.change_from(self.host, setting, from, to)?
        };
        if change.interrupts == ChangeImpact::Link && outcome == ChangeOutcome::Made {
            self.reset.extend(setting.interface().map(Cow::into_owned));
        }
        Ok(outcome)
    }

    fn stop_reason(&self) -> Option<String> {
        if self.interrupt.is_raised() {
            return Some("it was interrupted".to_owned());
        }
        let deadline = self.until.and_then(UndoDeadline::boot_seconds)?;
        (boot_seconds() >= deadline).then(|| "its time was over before all changes were made".to_owned())
    }

    /// Waits until a reset link is up again. Returns the reason if the link stays down.
    fn await_link(&self, setting: &Setting) -> Option<String> {
        let interface = setting.interface()?;
        let carrier = format!("/sys/class/net/{interface}/carrier");
        let begin = Instant::now();
        // An interface that is down has no carrier to read.
        while self.host.read(&carrier).is_ok_and(|carrier| carrier.trim() == "0") {
            if begin.elapsed() > LINK_TIME {
                let seconds = LINK_TIME.as_secs();
                return Some(format!("{interface} has no link {seconds} s after {setting} was changed"));
            }
            if self.interrupt.is_raised() || self.interrupt.wait(Some(TICK)).is_err() {
                return Some("it was interrupted".to_owned());
            }
        }
        None
    }
}

fn outcome_text(outcome: &ChangeOutcome, name: &str) -> String {
    match outcome {
        ChangeOutcome::Made => "done".to_owned(),
        ChangeOutcome::Already => "has this value already".to_owned(),
        // The printed line already begins with the setting.
        ChangeOutcome::Refused { why } => {
            let reason = why.strip_prefix(name).and_then(|suffix| suffix.strip_prefix(": "));
            format!("refused: {}", reason.unwrap_or(why))
        }
    }
}
