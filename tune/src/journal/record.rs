//! The journal's records.

use linerate_host::stats::ComparisonVerdict;
use linerate_host::{Setting, SettingValue};
use serde::{Deserialize, Serialize};

use crate::NamedDevice;

/// One record. Those of a tune bear its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum JournalRecord {
    /// A tune begins; nothing has been changed.
    Begun(BeginRecord),
    /// A tune that broke off, whose program died, or that had ended, goes on.
    Resumed { tune: u64 },
    /// The device of an interface that the start of the tune did not record.
    Device { tune: u64, device: NamedDevice },
    /// Values of settings that a change resets along with its own: after a change of channels the
    /// driver creates new queues, vectors and tables. Written before that change, and again after
    /// it.
    Noted {
        tune: u64,
        /// The change that they hang on.
        with: Setting,
        values: Vec<(Setting, SettingValue)>,
    },
    /// A setting is about to be written.
    Intent {
        tune: u64,
        /// Number of the change within it, from 0.
        step: u32,
        setting: Setting,
        from: SettingValue,
        to: SettingValue,
    },
    /// A setting was written and read back.
    Done {
        tune: u64,
        step: u32,
        found: SettingValue,
        /// The setting and its original value once more, so that it can be restored even if the
        /// record of its intent is damaged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<(Setting, SettingValue)>,
    },
    /// A setting was refused, or was accepted and had no effect. Without an intent before it, nothing was written.
    Refused {
        tune: u64,
        step: u32,
        setting: Setting,
        why: String,
        /// The current value. `None` if it cannot be read.
        found: Option<SettingValue>,
    },
    /// A tune made all of its changes, or broke off.
    Ended {
        tune: u64,
        /// Why it broke off. `None` if it did not.
        broke_off: Option<String>,
    },
    /// The service was measured with the changes and without them.
    Measured {
        tune: u64,
        verdict: ComparisonVerdict,
        /// The figures that differ, for people.
        summary: String,
    },
    /// Somebody confirmed a tune that would have been undone otherwise.
    Confirmed { tune: u64 },
    /// A tune is about to be undone.
    UndoBegun { tune: u64, why: UndoReason },
    /// A setting is about to be restored.
    UndoIntent { tune: u64, setting: Setting, from: SettingValue, to: SettingValue },
    /// The result of restoring a setting.
    UndoDone { tune: u64, setting: Setting, outcome: UndoOutcome },
    /// A tune was undone; settings whose outcome is a failure remain to be.
    UndoEnded { tune: u64 },
    /// Files that make a tune last are about to be written: any of them may be there from now on, whole.
    Persisting {
        tune: u64,
        files: Vec<WrittenFile>,
        /// Directories that are not there and will be made, the outer ones first.
        directories: Vec<String>,
    },
    /// All of those files were written.
    Persisted { tune: u64, files: Vec<WrittenFile> },
    /// Those files were removed.
    Unpersisted {
        tune: u64,
        removed: Vec<String>,
        /// Files that were left, because another program changed them since.
        left: Vec<String>,
    },
}

/// The start of a tune.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginRecord {
    /// Number of the tune, one more than that of the one before.
    pub tune: u64,
    /// When, seconds since 1970.
    pub unix_seconds: u64,
    /// The same in seconds since boot, sleep included (`CLOCK_BOOTTIME`), because the clock can be set.
    /// `None` before version 0.2, which did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_seconds: Option<u64>,
    /// The boot it was made in (`/proc/sys/kernel/random/boot_id`): a later one has none of its changes.
    pub boot: String,
    pub version: String,
    pub argv: Vec<String>,
    /// Name of the profile, or the purpose of the changes.
    pub goal: String,
    /// The devices of the interfaces that are to be changed.
    pub devices: Vec<NamedDevice>,
    /// The time of its automatic undo. `None` for never.
    pub until: Option<UndoDeadline>,
    /// Inode of its network namespace. `None` before version 0.2, which did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// SO_NETNS_COOKIE of its network namespace, because inodes are used again. `None` before Linux
    /// 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
}

impl BeginRecord {
    /// The known facts about the start of a tune whose record is damaged.
    pub(crate) fn lost(tune: u64, unix_seconds: u64) -> Self {
        let goal = "unknown (the record of its start is damaged)".to_owned();
        Self { tune, unix_seconds, goal, ..Self::default() }
    }

    /// Whether the tune was made before the last boot. `None` if that is unknown.
    pub fn is_of_earlier_boot(&self, boot: &str) -> Option<bool> {
        (!self.boot.is_empty()).then(|| self.boot != boot)
    }
}

/// When a tune is undone by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UndoDeadline {
    /// At this time, or at once when the program that makes the changes dies before it made them all.
    Time {
        /// Seconds since boot, sleep included (`CLOCK_BOOTTIME`).
        boot_seconds: u64,
    },
    /// The same, unless it is confirmed before.
    Confirmed {
        /// Seconds since boot, sleep included (`CLOCK_BOOTTIME`).
        boot_seconds: u64,
    },
    /// When the program that makes the changes is gone, unless it confirmed them before.
    Maker {},
}

/// Why a tune is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoReason {
    Asked,
    /// Its time is over.
    Expired,
    /// Nobody confirmed it in time.
    Unconfirmed,
    /// The program that made it is gone.
    Died,
    /// Its purpose is over, for example the run of a ladder.
    Finished,
    /// It did harm, as seen right after it was made.
    Harmful,
    /// `--keep-if-better`, and the service could not be measured with it.
    Unmeasured,
    /// To measure the service without it; the same changes follow as another tune.
    Measured,
}

/// The result of restoring a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoOutcome {
    /// It has its original value again.
    Restored,
    /// It was so already.
    Already,
    /// Somebody else changed it since; it was left as it is.
    Drift { found: SettingValue },
    /// The setting no longer exists, for example because its device was removed.
    Gone { why: String },
    /// A later tune changed the setting too and holds it. That tune restores the value that this
    /// one found.
    Covered {
        /// Number of that tune.
        by: u64,
    },
    Failed {
        why: String,
        /// The current value. `None` if it cannot be read.
        found: Option<SettingValue>,
    },
}

impl JournalRecord {
    /// Number of the tune to which the record belongs.
    pub fn tune(&self) -> u64 {
        match self {
            JournalRecord::Begun(begun) => begun.tune,
            JournalRecord::Resumed { tune }
            | JournalRecord::Device { tune, .. }
            | JournalRecord::Noted { tune, .. }
            | JournalRecord::Intent { tune, .. }
            | JournalRecord::Done { tune, .. }
            | JournalRecord::Refused { tune, .. }
            | JournalRecord::Ended { tune, .. }
            | JournalRecord::Measured { tune, .. }
            | JournalRecord::Confirmed { tune }
            | JournalRecord::UndoBegun { tune, .. }
            | JournalRecord::UndoIntent { tune, .. }
            | JournalRecord::UndoDone { tune, .. }
            | JournalRecord::UndoEnded { tune }
            | JournalRecord::Persisting { tune, .. }
            | JournalRecord::Persisted { tune, .. }
            | JournalRecord::Unpersisted { tune, .. } => *tune,
        }
    }
}

impl UndoDeadline {
    /// The time of its undo, in seconds since boot. `None` if no time is set.
    pub fn boot_seconds(self) -> Option<u64> {
        match self {
            UndoDeadline::Time { boot_seconds } | UndoDeadline::Confirmed { boot_seconds } => {
                Some(boot_seconds)
            }
            UndoDeadline::Maker {} => None,
        }
    }

    /// Whether a confirmation makes the tune stay.
    pub fn takes_confirmation(self) -> bool {
        !matches!(self, UndoDeadline::Time { .. })
    }
}

impl UndoOutcome {
    /// Whether the outcome is final: every outcome except a failure.
    pub fn is_final(&self) -> bool {
        !matches!(self, UndoOutcome::Failed { .. })
    }

    /// Whether the setting has its original value.
    pub fn is_back(&self) -> bool {
        matches!(self, UndoOutcome::Restored | UndoOutcome::Already)
    }
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenFile {
    pub path: String,
    /// SHA-256 of its content, hexadecimal; of its target for a symbolic link.
    pub sha256: String,
    /// Whether it is a symbolic link.
    #[serde(default)]
    pub link: bool,
}
