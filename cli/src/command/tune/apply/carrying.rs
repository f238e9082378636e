//! Making changes one after the other.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use linerate_host::{Host, Setting};
use linerate_tune::TunePlan;
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::plan::{ChangeImpact, PlannedChange};
use linerate_tune::transaction::{ChangeResult, TuneError, TuneTransaction, boot_seconds};
use serde::Serialize;

use crate::interrupt::InterruptFlag;
use crate::origin;
use crate::render::tune_plan;

/// How long a link may take to come back after a reset.
const LINK_TIME: Duration = Duration::from_secs(30);
/// How often a link is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Changes being made.
pub(crate) struct TuneRun<'a> {
    pub(crate) host: &'a Host,
    pub(crate) interrupt: &'a InterruptFlag,
    /// Whether a refusal ends it.
    pub(crate) keep_going: bool,
    /// When all is undone.
    pub(crate) until: Option<UndoDeadline>,
    /// When it began.
    pub(crate) started_unix_seconds: Option<u64>,
    /// What was done so far.
    pub(crate) steps: Vec<AppliedChange>,
    /// How many there are, as far as is known.
    total: usize,
    /// Interfaces whose settings may read otherwise than planned, since their link was reset.
    reset: BTreeSet<String>,
}

/// A change and what became of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AppliedChange {
    setting: Setting,
    name: String,
    from: String,
    to: String,
    pub(crate) outcome: ChangeOutcome,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeOutcome {
    /// It was made.
    Made,
    /// It was so.
    Already,
    /// The host refused.
    Refused {
        /// Its words.
        why: String,
    },
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

    /// Makes all changes of a plan; why it stopped, where it did.
    ///
    /// # Errors
    /// Those of the journal: nothing can be written down any more.
    pub(crate) fn make_plan(
        &mut self,
        transaction: &mut TuneTransaction<'_>,
        plan: &TunePlan,
    ) -> Result<Option<String>, TuneError> {
        self.total = self.steps.len() + plan.agreements.len() + plan.changes.len();
        match self.make(transaction, &plan.agreements)? {
            Some(why) => Ok(Some(why)),
            None => self.make(transaction, &plan.changes),
        }
    }

    fn make(
        &mut self,
        transaction: &mut TuneTransaction<'_>,
        changes: &[PlannedChange],
    ) -> Result<Option<String>, TuneError> {
        for change in changes {
            if let Some(why) = self.stop() {
                return Ok(Some(why));
            }
            tell(&format!(
                "{:>3}/{}  {} ... ",
                self.steps.len() + 1,
                self.total,
                tune_plan::one_line(change)
            ));
            let outcome = match self.one(transaction, change) {
                Ok(outcome) => outcome,
                Err(TuneError::Journal(error)) => {
                    tell("not written down\n");
                    return Err(error.into());
                }
                Err(error) => ChangeOutcome::Refused { why: error.to_string() },
            };
            let (outcome, fixed) = match (outcome, change.setting.fixed(self.host)) {
                // Which is no sign that something is wrong with the others.
                (ChangeOutcome::Refused { .. }, Some(why)) => {
                    (ChangeOutcome::Refused { why: why.to_owned() }, true)
                }
                (outcome, _) => (outcome, false),
            };
            tell(&format!("{}\n", outcome.words(&change.setting.to_string())));
            let refused = match &outcome {
                ChangeOutcome::Refused { why } => Some(why.clone()),
                ChangeOutcome::Made | ChangeOutcome::Already => None,
            };
            self.took(change, outcome);
            if let (Some(why), false) = (refused, self.keep_going || fixed) {
                return Ok(Some(why));
            }
            if change.interrupts == ChangeImpact::Link
                && let Some(why) = self.await_link(&change.setting)
            {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// How many were refused.
    pub(crate) fn refused(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.outcome, ChangeOutcome::Refused { .. })).count()
    }

    fn one(
        &mut self,
        transaction: &mut TuneTransaction<'_>,
        change: &PlannedChange,
    ) -> Result<ChangeOutcome, TuneError> {
        let PlannedChange { setting, from, to, .. } = change;
        let anew = setting.interface().is_some_and(|interface| self.reset.contains(interface.as_ref()));
        let changed = if anew || change.is_moved_by_others() {
            transaction.change(self.host, setting, to)?
        } else {
            transaction.change_from(self.host, setting, from, to)?
        };
        if change.interrupts == ChangeImpact::Link && matches!(changed, ChangeResult::Made { .. }) {
            self.reset.extend(setting.interface().map(Cow::into_owned));
        }
        Ok(match changed {
            ChangeResult::Made { .. } => ChangeOutcome::Made,
            ChangeResult::Already => ChangeOutcome::Already,
            ChangeResult::Refused { why } => ChangeOutcome::Refused { why },
        })
    }

    fn took(&mut self, change: &PlannedChange, outcome: ChangeOutcome) {
        self.steps.push(AppliedChange {
            setting: change.setting.clone(),
            name: change.setting.to_string(),
            from: change.from.to_string(),
            to: change.to.to_string(),
            outcome,
        });
    }

    /// Why no further change is to be made.
    fn stop(&self) -> Option<String> {
        if self.interrupt.is_raised() {
            return Some("it was interrupted".to_owned());
        }
        let end = self.until.and_then(UndoDeadline::boot_seconds)?;
        (boot_seconds() >= end).then(|| "its time was over before all changes were made".to_owned())
    }

    /// Waits until a link that was reset is up again; why not, where it is not.
    fn await_link(&self, setting: &Setting) -> Option<String> {
        let interface = setting.interface()?;
        let carrier = format!("/sys/class/net/{interface}/carrier");
        let begin = Instant::now();
        // An interface that is not up has no carrier to read, and none is waited for.
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

impl ChangeOutcome {
    fn words(&self, name: &str) -> String {
        match self {
            ChangeOutcome::Made => "done".to_owned(),
            ChangeOutcome::Already => "already so".to_owned(),
            // The setting is told before it.
            ChangeOutcome::Refused { why } => {
                let reason = why.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
                format!("refused: {}", reason.unwrap_or(why))
            }
        }
    }
}

/// Progress. The terminal may go away while links are reset, which must not stop what was begun.
pub(crate) fn tell(text: &str) {
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
