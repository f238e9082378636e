//! Why a tune cannot be begun, made, resumed or undone.

use linerate_host::HostError;

use crate::journal::JournalError;

#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The journal could not be written, so nothing was changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The boot or a device of the host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Another program changed a setting in the meantime.
    #[error(
        "{setting}: it was '{expected}' and is '{found}' now: somebody changed it since, make a new plan"
    )]
    ChangedSince { setting: String, expected: String, found: String },
    /// A tune that may still undo itself.
    #[error("tune {tune} undoes itself unless it is confirmed: confirm or undo it first")]
    Pending { tune: u64 },
    #[error("there is no tune {tune}: see `history`")]
    NoSuchTune { tune: u64 },
    #[error("nothing to undo: no tune is in effect")]
    NothingToUndo,
    #[error("tune {tune} is undone already")]
    UndoneAlready { tune: u64 },
    #[error("nothing to resume: the last tune in effect made all of its changes")]
    NothingToResume,
    /// No guard would undo the tune when its time is over.
    #[error("no guard would undo it in time ({why}): nothing is changed")]
    NoGuard { why: String },
    #[error("nothing to confirm: no tune waits for it")]
    NothingToConfirm,
    /// A tune whose time is over, whose program died before it made all changes, or whose undo was
    /// begun.
    #[error("too late to confirm tune {tune}: it is being undone, or will be by the next `undo`")]
    TooLate { tune: u64 },
    #[error(
        "tune {tune} was made before the last boot, which ended its changes: undo it and make a new plan"
    )]
    EarlierBoot { tune: u64 },
    #[error("tune {tune} was begun without a plan: undo it and make one")]
    NoPlan { tune: u64 },
    /// A tune of another network namespace, where the same names of interfaces and sysctls and the
    /// same addresses mean other objects.
    #[error(
        "tune {tune} was made in another network namespace, and nothing was changed: run the command there, \
         with --netns {path}"
    )]
    OtherNamespace {
        tune: u64,
        /// A file of the namespace.
        path: String,
    },
}

impl TuneError {
    /// Whether the same call may succeed later: when the disk has space, another process releases the
    /// journal, or another tune is confirmed or undone.
    pub fn is_passing(&self) -> bool {
        match self {
            TuneError::Journal(error) => {
                !matches!(error, JournalError::NotOurs { .. } | JournalError::Newer { .. })
            }
            error => matches!(error, TuneError::Pending { .. }),
        }
    }
}
