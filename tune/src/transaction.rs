//! Changes to a host that are journalled first, so that every change is known and can be undone
//! however the program ends.

mod dependents;
mod error;
mod inherited_cpus;
mod locations;
mod namespace;
mod target;
mod unconfirmed;
mod undo;

use linerate_host::{Host, HostError, Setting, SettingError, SettingValue, unix_seconds};
use serde::{Deserialize, Serialize};

use crate::NamedDevice;
use crate::TunePlan;
use crate::journal::record::{BeginRecord, UndoDeadline, UndoOutcome};
use crate::journal::tune::{ExpectedValue, TrackedSetting, resumable};
use crate::journal::{JournalRecord, JournalWriter, RecordedTune};

pub use error::TuneError;
pub(crate) use locations::SettingLocations;
pub use namespace::TuneNamespace;
pub(crate) use namespace::namespace_inode;
pub use target::ChangeTarget;
use unconfirmed::has_deadline;
pub(crate) use unconfirmed::is_pending;
pub use unconfirmed::{boot_seconds, confirm, due, undo_overdue};
pub use undo::{UndoReport, UndoneSetting, undo};
pub(crate) use undo::{ends_with_process, later_holder};

#[derive(Debug, Clone)]
pub struct TuneStart<'a> {
    /// Name of the profile, or the purpose of the changes.
    pub goal: String,
    pub argv: Vec<String>,
    /// The devices of the interfaces to change. Other devices are recorded before their first change.
    pub devices: Vec<NamedDevice>,
    /// When the tune undoes itself; `None` for never.
    pub until: Option<UndoDeadline>,
    /// The changes to come, so that an interrupted tune can be resumed and space is reserved now.
    pub plan: Option<&'a TunePlan>,
}

impl TuneStart<'_> {
    /// A tune without devices, end and plan.
    pub fn new(goal: impl Into<String>, argv: Vec<String>) -> Self {
        Self { goal: goal.into(), argv, devices: Vec::new(), until: None, plan: None }
    }
}

#[derive(Debug)]
pub struct TuneTransaction<'w> {
    writer: &'w mut JournalWriter,
    id: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    Made,
    /// The setting had the value before.
    Already,
    /// The host refused the change.
    Refused {
        why: String,
    },
}

impl<'w> TuneTransaction<'w> {
    /// Begins a tune. Nothing is changed yet.
    ///
    /// # Errors
    /// [`TuneError::Journal`] if the journal cannot be written or has no space for the whole tune;
    /// [`TuneError::Pending`] while an earlier tune may still undo itself; [`TuneError::Host`].
    pub fn begin<T: ChangeTarget>(
        writer: &'w mut JournalWriter,
        target: &T,
        start: TuneStart<'_>,
    ) -> Result<Self, TuneError> {
        let boot = boot_id(target.host())?;
        // The changes of an earlier boot have ended. A refused undo may be refused for ever.
        let blocks = |tune: &&RecordedTune| {
            is_pending(tune)
                && !tune.undo.is_some_and(|undo| undo.ended)
                && tune.begun.is_of_earlier_boot(&boot) != Some(true)
        };
        if let Some(pending) = writer.tunes().iter().find(blocks) {
            return Err(TuneError::Pending { tune: pending.begun.tune });
        }
        let id = writer.next_tune();
        let begun = JournalRecord::Begun(BeginRecord {
            tune: id,
            unix_seconds: unix_seconds().unwrap_or(0),
            boot_seconds: Some(boot_seconds()),
            boot,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: start.argv,
            goal: start.goal,
            devices: start.devices,
            until: start.until,
            namespace: namespace_inode(target.host(), "thread-self"),
            namespace_cookie: target.host().network_namespace_cookie(),
        });
        if let Some(plan) = start.plan {
            let changes = plan.exclusions.iter().chain(&plan.changes);
            let rooms = changes
                .flat_map(|change| [&change.from, &change.to].map(|value| (change, value)))
                .flat_map(|(change, value)| room_for(id, &change.setting, value));
            let open_tunes = writer.tunes().iter().filter(|tune| tune.is_open());
            writer.reserve(rooms.chain([begun.clone()]).chain(open_tunes.flat_map(undo_rooms)))?;
            writer.save_plan(id, plan)?;
        }
        writer.append(begun)?;
        Ok(Self { writer, id })
    }

    /// Resumes the latest tune of this boot that broke off or whose program died, unless a later tune
    /// is in effect. Returns its plan, too. Changes that were made before turn out as
    /// [`ChangeOutcome::Already`].
    ///
    /// # Errors
    /// [`TuneError::NothingToResume`], [`TuneError::EarlierBoot`], [`TuneError::NoPlan`];
    /// [`TuneError::Journal`].
    pub fn resume<T: ChangeTarget>(
        writer: &'w mut JournalWriter,
        target: &T,
    ) -> Result<(Self, TunePlan), TuneError> {
        let tune = resumable(writer.tunes()).ok_or(TuneError::NothingToResume)?;
        let id = tune.begun.tune;
        if tune.begun.is_of_earlier_boot(&boot_id(target.host())?) == Some(true) {
            return Err(TuneError::EarlierBoot { tune: id });
        }
        TuneNamespace::of(target.host(), &tune.begun).check_here(id)?;
        let plan = writer.store().plan(id)?.ok_or(TuneError::NoPlan { tune: id })?;
        writer.append(JournalRecord::Resumed { tune: id })?;
        Ok((Self { writer, id }, plan))
    }

    /// Reopens a tune that has ended, for example because the boosted server has other threads now.
    /// Undo restores all settings of the tune to their values before its first change. `plan` has the
    /// changes to come and replaces the earlier plan, so that the tune can be resumed.
    ///
    /// # Errors
    /// [`TuneError::NoSuchTune`], [`TuneError::UndoneAlready`] even if the undo is incomplete,
    /// [`TuneError::EarlierBoot`]; [`TuneError::Journal`].
    pub fn reopen<T: ChangeTarget>(
        writer: &'w mut JournalWriter,
        target: &T,
        id: u64,
        plan: &TunePlan,
    ) -> Result<Self, TuneError> {
        let tune = writer.tune(id).ok_or(TuneError::NoSuchTune { tune: id })?;
        if tune.undo.is_some() {
            return Err(TuneError::UndoneAlready { tune: id });
        }
        if tune.begun.is_of_earlier_boot(&boot_id(target.host())?) == Some(true) {
            return Err(TuneError::EarlierBoot { tune: id });
        }
        writer.save_plan(id, plan)?;
        writer.append(JournalRecord::Resumed { tune: id })?;
        Ok(Self { writer, id })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// The value of a setting before the tune's first change of it.
    pub fn original(&self, setting: &Setting) -> Option<&SettingValue> {
        Some(&self.tracked(setting)?.original)
    }

    /// When the tune undoes itself; `None` for never.
    pub fn until(&self) -> Option<UndoDeadline> {
        self.tune().filter(|tune| has_deadline(tune))?.begun.until
    }

    pub fn replan(&mut self, plan: &TunePlan) -> Result<(), TuneError> {
        Ok(self.writer.save_plan(self.id, plan)?)
    }

    /// Changes a setting, independent of its current value.
    ///
    /// # Errors
    ///
    /// [`TuneError::ChangedSince`] if another program changed the setting after this tune did;
    /// [`TuneError::Journal`]: then the setting was not written, or only its outcome is not
    /// recorded.
    pub fn change<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        to: &SettingValue,
    ) -> Result<ChangeOutcome, TuneError> {
        self.apply(target, setting, None, to)
    }

    /// Changes a setting if it still has the value that a plan found.
    ///
    /// # Errors
    /// [`TuneError::ChangedSince`] if it has another value; else like [`TuneTransaction::change`].
    pub fn change_from<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        from: &SettingValue,
        to: &SettingValue,
    ) -> Result<ChangeOutcome, TuneError> {
        self.apply(target, setting, Some(from), to)
    }

    /// Ends the tune. `broke_off` is the reason if changes are missing.
    pub fn end(self, broke_off: Option<String>) -> Result<(), TuneError> {
        Ok(self.writer.append(JournalRecord::Ended { tune: self.id, broke_off })?)
    }

    fn apply<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        planned: Option<&SettingValue>,
        to: &SettingValue,
    ) -> Result<ChangeOutcome, TuneError> {
        if let Err(reason) = self.check_device(target, setting)? {
            return self.record_refusal(self.next_step(), setting, reason, None);
        }
        let from = match target.read(setting) {
            Ok(from) => from,
            Err(error) => return self.record_refusal(self.next_step(), setting, error.to_string(), None),
        };
        if setting.same(&from, to) {
            return self.record_already(setting, from);
        }
        if !self.tracked(setting).is_some_and(|tracked| tracked.is_of_closed_sockets(&from, to)) {
            self.check_unchanged(setting, planned, &from)?;
        }
        let noted = self.record_dependents(target, setting)?;
        let rooms = [&from, to].into_iter().flat_map(|value| room_for(self.id, setting, value));
        self.reserve_space(rooms.chain(noted))?;
        let step = self.next_step();
        self.writer.append(JournalRecord::Intent {
            tune: self.id,
            step,
            setting: setting.clone(),
            from: from.clone(),
            to: to.clone(),
        })?;
        let result = self.write(target, setting, &from, to, step)?;
        self.record_dependents(target, setting)?;
        Ok(result)
    }

    /// Writes a setting after its intent was recorded, and records the outcome.
    fn write<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        from: &SettingValue,
        to: &SettingValue,
        step: u32,
    ) -> Result<ChangeOutcome, TuneError> {
        let result = target.write(setting, to).and_then(|()| target.read(setting));
        match result {
            Ok(found) => {
                let change = Some((setting.clone(), from.clone()));
                self.writer.append(JournalRecord::Done { tune: self.id, step, found, change })?;
                Ok(ChangeOutcome::Made)
            }
            Err(error) => {
                let found = restore_original(target, setting, from);
                let reason = refusal_message(&error, from, found.as_ref());
                self.record_refusal(step, setting, reason, found)
            }
        }
    }

    fn record_already(&mut self, setting: &Setting, found: SettingValue) -> Result<ChangeOutcome, TuneError> {
        // A resumed tune finds the value that it wrote before it was killed.
        if let Some(step) = self.tracked(setting).and_then(|tracked| tracked.open_step) {
            self.writer.append(JournalRecord::Done { tune: self.id, step, found, change: None })?;
        }
        Ok(ChangeOutcome::Already)
    }

    fn record_refusal(
        &mut self,
        step: u32,
        setting: &Setting,
        why: String,
        found: Option<SettingValue>,
    ) -> Result<ChangeOutcome, TuneError> {
        let refused =
            JournalRecord::Refused { tune: self.id, step, setting: setting.clone(), why: why.clone(), found };
        self.writer.append(refused)?;
        Ok(ChangeOutcome::Refused { why })
    }

    // The interface's name may belong to another device since the plan was made.
    fn check_device<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
    ) -> Result<Result<(), String>, TuneError> {
        let Some(interface) = setting.interface() else { return Ok(Ok(())) };
        match self.tune().and_then(|tune| tune.device(&interface)) {
            Some(device) => Ok(device.must_be_in_place(target.host())),
            None => match NamedDevice::observe(target.host(), &interface) {
                Ok(device) => {
                    self.writer.append(JournalRecord::Device { tune: self.id, device })?;
                    Ok(Ok(()))
                }
                Err(error) => Ok(Err(error.to_string())),
            },
        }
    }

    /// A value that another program set in the meantime is not overwritten.
    fn check_unchanged(
        &self,
        setting: &Setting,
        planned: Option<&SettingValue>,
        current: &SettingValue,
    ) -> Result<(), TuneError> {
        let tracked = self.tracked(setting);
        let changed_since = |expected: &SettingValue| TuneError::ChangedSince {
            setting: setting.to_string(),
            expected: expected.to_string(),
            found: current.to_string(),
        };
        if tracked.is_some_and(|tracked| tracked.expects(current)) {
            return Ok(());
        }
        match tracked.filter(|tracked| tracked.wanted.is_some()).map(|tracked| &tracked.expected) {
            Some(ExpectedValue::OneOf(values)) => Err(changed_since(values.last().unwrap_or(current))),
            // Other programs may change a setting that the tune only resets, but not a setting that
            // the plan read.
            _ => match planned {
                Some(planned) if !setting.same(planned, current) => Err(changed_since(planned)),
                _ => Ok(()),
            },
        }
    }

    /// Records the values of settings that a change is about to reset, or has reset. Returns the record.
    fn record_dependents<T: ChangeTarget>(
        &mut self,
        target: &T,
        cause: &Setting,
    ) -> Result<Option<JournalRecord>, TuneError> {
        let values: Vec<(Setting, SettingValue)> = target
            .dependents(cause)
            .into_iter()
            .filter_map(|setting| target.read(&setting).ok().map(|value| (setting, value)))
            .collect();
        for (setting, value) in &values {
            self.check_unchanged(setting, None, value)?;
        }
        if values.is_empty() {
            return Ok(None);
        }
        // A change of channels may add queues, whose settings the undo needs space for, too.
        let added = values.iter().filter(|(setting, _)| self.tracked(setting).is_none());
        let rooms: Vec<_> = added.flat_map(|(setting, value)| undo_room(self.id, setting, value)).collect();
        let noted = JournalRecord::Noted { tune: self.id, with: cause.clone(), values };
        self.reserve_space(rooms.into_iter().chain([noted.clone()]))?;
        self.writer.append(noted.clone())?;
        Ok(Some(noted))
    }

    // Reserves space for these records and the undo of this and all earlier tunes, so that a full
    // disk cannot prevent the undo.
    fn reserve_space(&self, records: impl Iterator<Item = JournalRecord>) -> Result<(), TuneError> {
        let is_to_undo = |tune: &&RecordedTune| tune.is_open() || tune.begun.tune == self.id;
        let tunes = self.writer.tunes().iter().filter(is_to_undo);
        Ok(self.writer.reserve(tunes.flat_map(undo_rooms).chain(records))?)
    }

    fn tune(&self) -> Option<&RecordedTune> {
        self.writer.tune(self.id)
    }

    fn tracked(&self, setting: &Setting) -> Option<&TrackedSetting> {
        self.tune()?.tracked(setting)
    }

    fn next_step(&self) -> u32 {
        self.tune().map_or(0, |tune| tune.next_step)
    }
}

/// The id of the running boot.
pub(crate) fn boot_id(host: &Host) -> Result<String, HostError> {
    Ok(host.read("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Restores a setting whose write was refused or applied only in part, and returns its value.
fn restore_original<T: ChangeTarget>(
    target: &T,
    setting: &Setting,
    from: &SettingValue,
) -> Option<SettingValue> {
    let found = target.read(setting).ok()?;
    if found == *from {
        return Some(found);
    }
    // The result of the write does not matter, because the value is read back.
    let _ = target.write(setting, from);
    target.read(setting).ok()
}

fn refusal_message(error: &SettingError, from: &SettingValue, found: Option<&SettingValue>) -> String {
    match found {
        Some(found) if found == from => error.to_string(),
        Some(found) => format!("{error}; it reads '{found}' now, and was '{from}'"),
        None => format!("{error}; it cannot be read now, and was '{from}'"),
    }
}

// Records as long as the records of a change and its undo, for reserving space.
fn room_for(tune: u64, setting: &Setting, value: &SettingValue) -> Vec<JournalRecord> {
    let change = JournalRecord::Intent {
        tune,
        step: u32::MAX,
        setting: setting.clone(),
        from: value.clone(),
        to: value.clone(),
    };
    let original = Some((setting.clone(), value.clone()));
    let done = JournalRecord::Done { tune, step: u32::MAX, found: value.clone(), change: original };
    [change, done].into_iter().chain(undo_room(tune, setting, value)).collect()
}

/// Records as long as the records of the undo of a tune.
fn undo_rooms(tune: &RecordedTune) -> impl Iterator<Item = JournalRecord> {
    let room =
        move |tracked: &TrackedSetting| undo_room(tune.begun.tune, &tracked.setting, &tracked.original);
    tune.tracked.iter().flat_map(room)
}

fn undo_room(tune: u64, setting: &Setting, value: &SettingValue) -> Vec<JournalRecord> {
    let intent =
        JournalRecord::UndoIntent { tune, setting: setting.clone(), from: value.clone(), to: value.clone() };
    let outcome = UndoOutcome::Drift { found: value.clone() };
    vec![intent, JournalRecord::UndoDone { tune, setting: setting.clone(), outcome }]
}
