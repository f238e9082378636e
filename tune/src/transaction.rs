//! Carrying out changes, so that whatever ends the program, what was done is known and can be undone.

mod due;
mod error;
mod inherited;
mod namespace;
mod place;
mod shape;
mod target;
mod undo;

use linerate_host::{Setting, SettingError, SettingValue};

use crate::NamedDevice;
use crate::TunePlan;
use crate::journal::record::{BeginRecord, UndoDeadline, UndoOutcome};
use crate::journal::tune::{ExpectedValue, TrackedSetting};
use crate::journal::{JournalError, JournalRecord, JournalWriter, RecordedTune};

pub(crate) use due::is_pending;
pub use due::{boot_seconds, confirm, due, undo_overdue};
pub use error::TuneError;
pub use namespace::TuneNamespace;
pub(crate) use place::SettingLocations;
pub use target::ChangeTarget;
pub(crate) use undo::later_holder;
pub use undo::{UndoReport, UndoneSetting, undo};

/// What a tune begins with.
#[derive(Debug, Clone)]
pub struct TuneStart<'a> {
    /// Name of the profile, or what the changes are for.
    pub goal: String,
    pub argv: Vec<String>,
    /// The devices of the interfaces that are to be changed. Others are noted when they are first changed.
    pub devices: Vec<NamedDevice>,
    /// When it is undone without being asked; none for never.
    pub until: Option<UndoDeadline>,
    /// What is to be done, so that it can be finished later and space is made sure of now.
    pub plan: Option<&'a TunePlan>,
}

impl TuneStart<'_> {
    /// A tune without devices, end and plan.
    #[must_use]
    pub fn new(goal: impl Into<String>, argv: Vec<String>) -> Self {
        Self { goal: goal.into(), argv, devices: Vec::new(), until: None, plan: None }
    }
}

/// A tune that is being made.
#[derive(Debug)]
pub struct TuneTransaction<'w> {
    writer: &'w mut JournalWriter,
    id: u64,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeResult {
    /// It was made, and reads so.
    Made { from: SettingValue },
    /// It was so already.
    Already,
    /// It was not made: the host refused, or took it and did otherwise; then it was put back.
    Refused { why: String },
}

impl<'w> TuneTransaction<'w> {
    /// Begins a tune. Nothing is changed yet.
    ///
    /// # Errors
    /// [`TuneError::Journal`] where it cannot be written down, or there is no space for all of it;
    /// [`TuneError::Pending`] while an earlier tune may yet undo itself; [`TuneError::Host`].
    pub fn begin<T: ChangeTarget>(
        writer: &'w mut JournalWriter,
        target: &T,
        begin: TuneStart<'_>,
    ) -> Result<Self, TuneError> {
        if let Some(pending) = writer.tunes().iter().find(|tune| is_pending(tune)) {
            return Err(TuneError::Pending { tune: pending.begun.tune });
        }
        let id = writer.next_tune();
        let begun = JournalRecord::Begun(BeginRecord {
            tune: id,
            unix_seconds: unix_seconds(),
            boot: target.boot()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: begin.argv,
            goal: begin.goal,
            devices: begin.devices,
            until: begin.until,
            namespace: namespace::own(target.host()),
        });
        if let Some(plan) = begin.plan {
            let all = plan.agreements.iter().chain(&plan.changes);
            let records: Vec<JournalRecord> = all
                .flat_map(|change| [&change.from, &change.to].map(|value| (change, value)))
                .flat_map(|(change, value)| room_for(id, &change.setting, value))
                .chain([begun.clone()])
                .collect();
            writer.reserve(&records)?;
            writer.keep_plan(id, plan)?;
        }
        writer.append(begun)?;
        Ok(Self { writer, id })
    }

    /// Goes on with a tune that broke off or whose program died, of this boot; the latest unless told which. The plan that
    /// it was begun with comes with it: making all its changes again finds those that were made `Already` so.
    ///
    /// # Errors
    /// [`TuneError::NothingToResume`], [`TuneError::EarlierBoot`], [`TuneError::NoPlan`]; [`TuneError::Journal`].
    pub fn resume<T: ChangeTarget>(
        writer: &'w mut JournalWriter,
        target: &T,
        id: Option<u64>,
    ) -> Result<(Self, TunePlan), TuneError> {
        let found = match id {
            Some(id) => writer.tune(id).ok_or(TuneError::NoSuchTune { tune: id })?,
            None => writer.tunes().last().ok_or(TuneError::NothingToResume)?,
        };
        if !found.is_unfinished() {
            return Err(TuneError::NothingToResume);
        }
        let id = found.begun.tune;
        if found.begun.is_of_earlier_boot(&target.boot()?) == Some(true) {
            return Err(TuneError::EarlierBoot { tune: id });
        }
        TuneNamespace::of(target.host(), &found.begun).must_not_be_elsewhere(id)?;
        let plan = writer.store().plan(id)?.ok_or(TuneError::NoPlan { tune: id })?;
        writer.append(JournalRecord::Resumed { tune: id })?;
        Ok((Self { writer, id }, plan))
    }

    /// Goes on with a tune that may have ended long ago, since what it is for has changed, as the threads of a server that it
    /// boosted. What it changes now is undone with all else of it, each setting to what it was before its first change. The
    /// plan is that of what is about to be changed, kept in place of the one before, so that it can be resumed.
    ///
    /// # Errors
    /// [`TuneError::NoSuchTune`], [`TuneError::UndoneAlready`] also where undoing it was only begun,
    /// [`TuneError::EarlierBoot`]; [`TuneError::Journal`].
    pub fn reopen<T: ChangeTarget>(
        writer: &'w mut JournalWriter,
        target: &T,
        id: u64,
        plan: &TunePlan,
    ) -> Result<Self, TuneError> {
        let found = writer.tune(id).ok_or(TuneError::NoSuchTune { tune: id })?;
        if found.undo.is_some() {
            return Err(TuneError::UndoneAlready { tune: id });
        }
        if found.begun.is_of_earlier_boot(&target.boot()?) == Some(true) {
            return Err(TuneError::EarlierBoot { tune: id });
        }
        writer.keep_plan(id, plan)?;
        writer.append(JournalRecord::Resumed { tune: id })?;
        Ok(Self { writer, id })
    }

    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Keeps a plan made anew in place of the one it was begun with.
    ///
    /// # Errors
    /// [`TuneError::Journal`].
    pub fn replan(&mut self, plan: &TunePlan) -> Result<(), TuneError> {
        Ok(self.writer.keep_plan(self.id, plan)?)
    }

    /// Changes a setting, whatever it is now.
    ///
    /// # Errors
    /// [`TuneError::ChangedSince`] where somebody else changed it since this tune did; [`TuneError::Journal`]: then it was
    /// not written, unless only what became of it could not be written down.
    pub fn change<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        to: &SettingValue,
    ) -> Result<ChangeResult, TuneError> {
        self.make(target, setting, None, to)
    }

    /// Changes a setting that is as a plan found it.
    ///
    /// # Errors
    /// [`TuneError::ChangedSince`] where it is not; else as [`TuneTransaction::change`].
    pub fn change_from<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        from: &SettingValue,
        to: &SettingValue,
    ) -> Result<ChangeResult, TuneError> {
        self.make(target, setting, Some(from), to)
    }

    /// Ends it: all changes were made, or why not.
    ///
    /// # Errors
    /// [`TuneError::Journal`].
    pub fn end(self, broke_off: Option<String>) -> Result<(), TuneError> {
        Ok(self.writer.append(JournalRecord::Ended { tune: self.id, broke_off })?)
    }

    fn make<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        planned: Option<&SettingValue>,
        to: &SettingValue,
    ) -> Result<ChangeResult, TuneError> {
        if let Err(why) = self.must_be_the_device(target, setting)? {
            return self.refuse(self.next_step(), setting, why, None);
        }
        let from = match target.read(setting) {
            Ok(from) => from,
            Err(error) => return self.refuse(self.next_step(), setting, error.to_string(), None),
        };
        if setting.same(&from, to) {
            return self.already(setting, from);
        }
        self.must_be_as_left(setting, planned, &from)?;
        self.note(target, setting)?;
        self.make_room(setting, &from, to)?;
        let step = self.next_step();
        self.append(|tune| JournalRecord::Intent {
            tune,
            step,
            setting: setting.clone(),
            from: from.clone(),
            to: to.clone(),
        })?;
        let changed = self.write(target, setting, from, to, step)?;
        self.note(target, setting)?;
        Ok(changed)
    }

    /// Writes what the journal announced, and writes down what became of it.
    fn write<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
        from: SettingValue,
        to: &SettingValue,
        step: u32,
    ) -> Result<ChangeResult, TuneError> {
        let written = target.write(setting, to).and_then(|()| target.read(setting));
        match written {
            Ok(found) => {
                let change = Some((setting.clone(), from.clone()));
                self.append(|tune| JournalRecord::Done { tune, step, found, change })?;
                Ok(ChangeResult::Made { from })
            }
            Err(error) => {
                let found = put_back(target, setting, &from);
                let why = refusal(&error, &from, found.as_ref());
                self.refuse(step, setting, why, found)
            }
        }
    }

    fn already(&mut self, setting: &Setting, found: SettingValue) -> Result<ChangeResult, TuneError> {
        // A resumed tune finds what it had written before it was killed.
        if let Some(step) = self.held(setting).and_then(|held| held.open_step) {
            self.append(|tune| JournalRecord::Done { tune, step, found, change: None })?;
        }
        Ok(ChangeResult::Already)
    }

    fn refuse(
        &mut self,
        step: u32,
        setting: &Setting,
        why: String,
        found: Option<SettingValue>,
    ) -> Result<ChangeResult, TuneError> {
        self.append(|tune| JournalRecord::Refused {
            tune,
            step,
            setting: setting.clone(),
            why: why.clone(),
            found,
        })?;
        Ok(ChangeResult::Refused { why })
    }

    /// A name may be another device's since the plan was made.
    fn must_be_the_device<T: ChangeTarget>(
        &mut self,
        target: &T,
        setting: &Setting,
    ) -> Result<Result<(), String>, TuneError> {
        let Some(interface) = setting.interface() else { return Ok(Ok(())) };
        match self.tune().and_then(|tune| tune.device(&interface)) {
            Some(device) => Ok(target.must_be_in_place(device)),
            None => match target.device(&interface) {
                Ok(device) => {
                    self.append(|tune| JournalRecord::Device { tune, device })?;
                    Ok(Ok(()))
                }
                Err(error) => Ok(Err(error.to_string())),
            },
        }
    }

    /// What somebody else set meanwhile is not written over.
    fn must_be_as_left(
        &self,
        setting: &Setting,
        planned: Option<&SettingValue>,
        now: &SettingValue,
    ) -> Result<(), TuneError> {
        let held = self.held(setting);
        let since = |expected: &SettingValue| TuneError::ChangedSince {
            setting: setting.to_string(),
            expected: expected.to_string(),
            found: now.to_string(),
        };
        if held.is_some_and(|held| held.expects(now)) {
            return Ok(());
        }
        match held.filter(|held| held.wanted.is_some()).map(|held| &held.expected) {
            Some(ExpectedValue::OneOf(values)) => Err(since(values.last().unwrap_or(now))),
            // What it does not set itself others may move; that the plan was made for another value counts all the same.
            _ => match planned {
                Some(planned) if !setting.same(planned, now) => Err(since(planned)),
                _ => Ok(()),
            },
        }
    }

    /// Writes down what a change is about to reset, or has reset.
    fn note<T: ChangeTarget>(&mut self, target: &T, with: &Setting) -> Result<(), TuneError> {
        let values: Vec<(Setting, SettingValue)> = target
            .hanging_on(with)
            .into_iter()
            .filter_map(|setting| target.read(&setting).ok().map(|value| (setting, value)))
            .collect();
        for (setting, value) in &values {
            self.must_be_as_left(setting, None, value)?;
        }
        if values.is_empty() {
            return Ok(());
        }
        self.append(|tune| JournalRecord::Noted { tune, with: with.clone(), values })?;
        Ok(())
    }

    /// A full disk must not keep anyone from undoing what it let be done.
    fn make_room(&self, setting: &Setting, from: &SettingValue, to: &SettingValue) -> Result<(), TuneError> {
        let held = self.tune().map_or(&[] as &[TrackedSetting], |tune| &tune.held);
        let records: Vec<JournalRecord> = held
            .iter()
            .flat_map(|held| undo_room(self.id, &held.setting, &held.first))
            .chain([from, to].into_iter().flat_map(|value| room_for(self.id, setting, value)))
            .collect();
        Ok(self.writer.reserve(&records)?)
    }

    fn append(&mut self, record: impl FnOnce(u64) -> JournalRecord) -> Result<(), JournalError> {
        self.writer.append(record(self.id))
    }

    fn tune(&self) -> Option<&RecordedTune> {
        self.writer.tune(self.id)
    }

    fn held(&self, setting: &Setting) -> Option<&TrackedSetting> {
        self.tune()?.held(setting)
    }

    fn next_step(&self) -> u32 {
        self.tune().map_or(0, |tune| tune.next_step)
    }
}

/// Puts back what was refused or half obeyed; what it reads then.
fn put_back<T: ChangeTarget>(target: &T, setting: &Setting, from: &SettingValue) -> Option<SettingValue> {
    let found = target.read(setting).ok()?;
    if found == *from {
        return Some(found);
    }
    // Whether it went back is what is read, whatever the host says.
    let _ = target.write(setting, from);
    target.read(setting).ok()
}

fn refusal(error: &SettingError, from: &SettingValue, found: Option<&SettingValue>) -> String {
    match found {
        Some(found) if found == from => error.to_string(),
        Some(found) => format!("{error}; it reads '{found}' now, and was '{from}'"),
        None => format!("{error}; it cannot be read now, and was '{from}'"),
    }
}

/// Records as long as those of a change and its undo.
fn room_for(tune: u64, setting: &Setting, value: &SettingValue) -> Vec<JournalRecord> {
    let change = JournalRecord::Intent {
        tune,
        step: u32::MAX,
        setting: setting.clone(),
        from: value.clone(),
        to: value.clone(),
    };
    let again = Some((setting.clone(), value.clone()));
    let done = JournalRecord::Done { tune, step: u32::MAX, found: value.clone(), change: again };
    [change, done].into_iter().chain(undo_room(tune, setting, value)).collect()
}

fn undo_room(tune: u64, setting: &Setting, value: &SettingValue) -> Vec<JournalRecord> {
    let intent =
        JournalRecord::UndoIntent { tune, setting: setting.clone(), from: value.clone(), to: value.clone() };
    let outcome = UndoOutcome::Drift { found: value.clone() };
    vec![intent, JournalRecord::UndoDone { tune, setting: setting.clone(), outcome }]
}

fn unix_seconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}
