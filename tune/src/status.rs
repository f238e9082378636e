//! The tunes in effect, and whether their settings still have the values that were set.

pub mod history;

use linerate_host::{Host, Setting, SettingValue};
use serde::{Deserialize, Serialize};

use crate::NamedDevice;
use crate::journal::record::{UndoDeadline, UndoOutcome, UndoReason};
use crate::journal::tune::{TrackedSetting, resumable};
use crate::journal::{Journal, JournalCorruption, LockHolder, RecordedTune};
use crate::persist::StandingFiles;
use crate::transaction::{
    SettingLocations, TuneNamespace, boot_id, boot_seconds, due, ends_with_process, later_holder,
};

pub use history::TuneHistory;

/// All tunes that are not undone, with the present values of their settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    pub journal: String,
    /// Why tunes may be missing here; `None` if the whole journal was read.
    pub trouble: Option<JournalCorruption>,
    /// The process that changes settings at present.
    pub holder: Option<LockHolder>,
    /// The tunes, the earliest first.
    pub tunes: Vec<TuneStatus>,
    /// Files that apply settings at boot.
    #[serde(default)]
    pub persisted_files: Vec<String>,
}

/// A tune that is not undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuneStatus {
    pub tune: u64,
    /// When it began, seconds since 1970.
    pub unix_seconds: u64,
    /// Version of linerate that made it.
    pub version: String,
    pub argv: Vec<String>,
    /// Name of the profile, or the purpose of the changes.
    pub goal: String,
    /// The devices of its interfaces.
    pub devices: Vec<NamedDevice>,
    /// It was made before the last boot, which ended its changes; `None` if the boot is unknown.
    pub earlier_boot: Option<bool>,
    pub state: TuneState,
    /// When the tune undoes itself; `None` for never.
    pub until: Option<UndoDeadline>,
    /// Seconds until then; `None` without a time, or after another boot.
    pub seconds_left: Option<u64>,
    /// Why it should have undone itself by now.
    pub overdue: Option<UndoReason>,
    /// Files were written that make it persist.
    pub persisted: bool,
    /// Whether `apply --resume` finishes it.
    pub can_resume: bool,
    /// Its settings, in the order in which they were changed.
    pub settings: Vec<SettingStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneState {
    /// Being made or undone at present.
    Running,
    /// All changes were made.
    Made,
    /// Some changes are missing.
    BrokeOff { why: String },
    /// The program that made it was killed.
    Died,
    /// The program that undid it was killed.
    UndoDied,
    /// The host refused to restore some settings.
    UndoRefused,
}

/// A setting of a tune.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    /// The setting as the tune named it.
    pub setting: Setting,
    /// The setting in words, with the present name of its interface.
    pub name: String,
    /// The value before the tune; `None` if it could not be read.
    pub from: Option<SettingValue>,
    /// The value of the tune; `None` if another change of the tune only reset the setting.
    pub to: Option<SettingValue>,
    /// The present value; `None` if it cannot be read.
    pub now: Option<SettingValue>,
    pub state: SettingState,
}

/// Whether the value of a tune is in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingState {
    InEffect,
    /// Not changed, or not for long: the original value is in effect.
    NotMade {
        /// The host's error; `None` if the program ended before.
        why: Option<String>,
    },
    /// Reset by another change of the tune. Other programs may have changed it since.
    Reset,
    /// Another program changed it after the tune did.
    Drifted,
    /// A later tune changed or reset it.
    ChangedBy {
        /// Number of that tune.
        tune: u64,
    },
    /// Restored by an undo that is incomplete.
    Restored,
    /// The last boot ended it.
    EndedByBoot,
    /// Its device, queue or process is gone.
    Gone {
        why: String,
    },
    /// It is in another network namespace, where `--netns` shows its value.
    OtherNamespace {
        why: String,
    },
    Unknown {
        why: String,
    },
}

impl JournalStatus {
    /// Reads all settings of the tunes that are not undone. Changes nothing.
    pub fn of(journal: &Journal, host: &Host) -> Self {
        let tunes = journal.tunes();
        let boot = boot_id(host).ok();
        let view = StatusReader { host, tunes: &tunes, journal, boot, boot_seconds: boot_seconds() };
        let last = tunes.last().map(|tune| tune.begun.tune);
        let is_reported =
            |tune: &&RecordedTune| tune.is_open() || (tune.is_unfinished() && Some(tune.begun.tune) == last);
        Self {
            journal: journal.path.display().to_string(),
            trouble: journal.trouble.clone(),
            holder: journal.holder,
            tunes: tunes.iter().filter(is_reported).map(|tune| view.tune(tune)).collect(),
            persisted_files: StandingFiles::of(journal).paths().map(str::to_owned).collect(),
        }
    }

    /// Whether a setting does not have the tune's value, or a tune is incomplete.
    pub fn needs_attention(&self) -> bool {
        self.trouble.is_some() || self.tunes.iter().any(TuneStatus::needs_attention)
    }
}

impl TuneStatus {
    pub fn needs_attention(&self) -> bool {
        let is_settled = matches!(self.state, TuneState::Made | TuneState::Running);
        let is_expected = |setting: &SettingStatus| match setting.state {
            SettingState::InEffect
            | SettingState::Reset
            | SettingState::ChangedBy { .. }
            | SettingState::OtherNamespace { .. } => true,
            // Servers replace their workers.
            SettingState::Gone { .. } => ends_with_process(&setting.setting),
            _ => false,
        };
        !is_settled || self.overdue.is_some() || !self.settings.iter().all(is_expected)
    }
}

struct StatusReader<'a> {
    host: &'a Host,
    tunes: &'a [RecordedTune],
    journal: &'a Journal,
    boot: Option<String>,
    boot_seconds: u64,
}

impl StatusReader<'_> {
    fn tune(&self, tune: &RecordedTune) -> TuneStatus {
        let begun = &tune.begun;
        let earlier_boot = self.boot.as_ref().and_then(|boot| begun.is_of_earlier_boot(boot));
        let locations = SettingLocations::observe(self.host, tune, self.boot.as_deref());
        let is_running = self.is_running(tune);
        let is_pending = crate::transaction::is_pending(tune);
        let remaining = |deadline: u64| deadline.saturating_sub(self.boot_seconds);
        let refused =
            tune.refused.iter().map(|(setting, reason)| self.refused_status(&locations, setting, reason));
        TuneStatus {
            tune: begun.tune,
            unix_seconds: begun.unix_seconds,
            version: begun.version.clone(),
            argv: begun.argv.clone(),
            goal: begun.goal.clone(),
            devices: begun.devices.clone(),
            earlier_boot,
            state: state(tune, is_running),
            until: begun.until.filter(|_| is_pending),
            seconds_left: begun
                .until
                .filter(|_| is_pending && earlier_boot == Some(false))
                .and_then(UndoDeadline::boot_seconds)
                .map(remaining),
            overdue: self.boot.as_ref().and_then(|boot| due(tune, boot, self.boot_seconds, is_running)),
            persisted: tune.persisted,
            can_resume: earlier_boot == Some(false)
                && !is_running
                && resumable(self.tunes).is_some_and(|resumable| resumable.begun.tune == begun.tune)
                && self.journal.has_plan(begun.tune),
            settings: tune
                .tracked
                .iter()
                .filter_map(|tracked| self.setting(tune, &locations, tracked, earlier_boot))
                .chain(refused)
                .collect(),
        }
    }

    /// Whether the process that holds the lock works on this tune: the last one, or one in undo.
    fn is_running(&self, tune: &RecordedTune) -> bool {
        let is_last = self.tunes.last().is_some_and(|last| last.begun.tune == tune.begun.tune);
        let is_unfinished = tune.ended.is_none() || tune.undo.is_some_and(|undo| !undo.ended);
        self.journal.holder.is_some() && (is_last || is_unfinished)
    }

    // `None` for a setting that was only reset and has its original value.
    fn setting(
        &self,
        tune: &RecordedTune,
        locations: &SettingLocations<'_>,
        tracked: &TrackedSetting,
        earlier: Option<bool>,
    ) -> Option<SettingStatus> {
        let current_setting = locations.find(&tracked.setting);
        let result = match &current_setting {
            Ok(current_setting) => current_setting.read(self.host).map_err(|error| {
                let why = error.reason();
                match error.is_gone() {
                    // A queue that a change of channels removed comes back with the undo.
                    true if tracked.wanted.is_none() => SettingState::Reset,
                    true => SettingState::Gone { why },
                    false => SettingState::Unknown { why },
                }
            }),
            Err(why) => Err(match locations.namespace {
                TuneNamespace::Elsewhere { .. } => SettingState::OtherNamespace { why: why.clone() },
                TuneNamespace::Here | TuneNamespace::Gone { .. } => SettingState::Gone { why: why.clone() },
            }),
        };
        let (now, state) = match result {
            Ok(now) => {
                let state = self.judge(tune, tracked, &now, earlier);
                (Some(now), state)
            }
            Err(state) => (None, state),
        };
        if tracked.wanted.is_none()
            && now.as_ref().is_some_and(|now| tracked.setting.same(now, &tracked.original))
        {
            return None;
        }
        Some(SettingStatus {
            setting: tracked.setting.clone(),
            name: current_setting.as_ref().unwrap_or(&tracked.setting).to_string(),
            from: Some(tracked.original.clone()),
            to: now.as_ref().and_then(|now| in_effect(tracked, now)).or(tracked.wanted.as_ref()).cloned(),
            now,
            state,
        })
    }

    fn judge(
        &self,
        tune: &RecordedTune,
        tracked: &TrackedSetting,
        now: &SettingValue,
        earlier_boot: Option<bool>,
    ) -> SettingState {
        let same = |value: &SettingValue| tracked.setting.same(value, now);
        if let Some(tune) = later_holder(self.tunes, tune.begun.tune, &tracked.setting, now) {
            return SettingState::ChangedBy { tune };
        }
        if tracked.outcome.as_ref().is_some_and(UndoOutcome::is_back) && same(&tracked.original) {
            return SettingState::Restored;
        }
        let (expected, is_original) = (tracked.expects(now), same(&tracked.original));
        // A tune sets the original value again if another of its changes reset it.
        let is_set_again = |wanted: &SettingValue| {
            same(wanted) && tracked.applied.as_ref() == Some(wanted) && !tracked.depends_on.is_empty()
        };
        match &tracked.wanted {
            // The tune has no value that other programs could replace: irqbalance moves interrupts that no plan places.
            None => SettingState::Reset,
            Some(_) if is_original && earlier_boot == Some(true) => SettingState::EndedByBoot,
            Some(_) if expected && in_effect(tracked, now).is_some() => SettingState::InEffect,
            Some(wanted) if expected && is_set_again(wanted) => SettingState::InEffect,
            // A refused write may have changed the value.
            Some(_) if expected => SettingState::NotMade { why: tracked.refused.clone() },
            Some(_) => SettingState::Drifted,
        }
    }

    fn refused_status(
        &self,
        locations: &SettingLocations<'_>,
        setting: &Setting,
        reason: &str,
    ) -> SettingStatus {
        let current_setting = locations.find(setting).unwrap_or_else(|_| setting.clone());
        SettingStatus {
            setting: setting.clone(),
            name: current_setting.to_string(),
            from: None,
            to: None,
            now: current_setting.read(self.host).ok(),
            state: SettingState::NotMade { why: Some(reason.to_owned()) },
        }
    }
}

/// The value of the tune that is in effect: the last value, or the value before if the last change
/// was not made.
fn in_effect<'a>(tracked: &'a TrackedSetting, now: &SettingValue) -> Option<&'a SettingValue> {
    let same = |value: &&SettingValue| {
        tracked.setting.same(value, now) && !tracked.setting.same(value, &tracked.original)
    };
    tracked.wanted.iter().chain(&tracked.applied).find(same)
}

fn state(tune: &RecordedTune, is_running: bool) -> TuneState {
    match (&tune.undo, &tune.ended) {
        _ if is_running && (tune.ended.is_none() || tune.undo.is_some_and(|undo| !undo.ended)) => {
            TuneState::Running
        }
        (Some(undo), _) if undo.ended => TuneState::UndoRefused,
        (Some(_), _) => TuneState::UndoDied,
        (None, None) => TuneState::Died,
        (None, Some(ended)) => match &ended.broke_off {
            Some(reason) => TuneState::BrokeOff { why: reason.clone() },
            None => TuneState::Made,
        },
    }
}
