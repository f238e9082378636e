//! The state directory, which contains the journal.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::read::{DamagedLine, JournalCorruption, parse};
use super::{JournalError, JournalLine, JournalWriter, RecordedTune};
use crate::TunePlan;
use crate::sys::lock;

/// Default directory of the journal.
pub const STATE_DIR: &str = "/var/lib/linerate";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateStore {
    directory: PathBuf,
}

/// A journal as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub path: PathBuf,
    pub entries: Vec<JournalLine>,
    /// Why more records may exist that could not be read. `None` if all were read.
    pub trouble: Option<JournalCorruption>,
    /// Lines that differ from the lines that were written; the other records are unaffected.
    pub damage: Vec<DamagedLine>,
    /// The process that may append now. `None` if no process holds the lock.
    pub holder: Option<LockHolder>,
}

/// The process that holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LockHolder {
    /// Its process id. `None` if the lock does not report it.
    pub pid: Option<u32>,
}

impl StateStore {
    /// The state directory at this path. It is created by the first write.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        // A guard works in another directory. A path that cannot be made absolute fails where it is used.
        Self { directory: std::path::absolute(&directory).unwrap_or(directory) }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn journal_path(&self) -> PathBuf {
        self.directory.join("journal")
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.directory.join("lock")
    }

    pub(super) fn plans_path(&self) -> PathBuf {
        self.directory.join("plans")
    }

    pub(super) fn plan_path(&self, tune: u64) -> PathBuf {
        self.plans_path().join(format!("{tune}.json"))
    }

    /// Reads the journal, which is empty if it does not exist. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`JournalError::File`] if it cannot be read, [`JournalError::NotOurs`]. Damage is not an
    /// error: all other lines are read, and the damaged lines are listed.
    pub fn read(&self) -> Result<Journal, JournalError> {
        let path = self.journal_path();
        let holder_before = self.holder()?;
        let parsed = match open_to_read(&path)? {
            Some(file) => parse(&read_all(&file, &path)?),
            None => parse(b""),
        };
        let holder = self.holder()?;
        // A line that is being written is not torn.
        let is_being_written = holder_before.is_some() || holder.is_some();
        let is_torn = |trouble: &JournalCorruption| matches!(trouble, JournalCorruption::Torn { .. });
        let trouble = parsed.trouble().filter(|trouble| !(is_being_written && is_torn(trouble)));
        Ok(Journal { path, entries: parsed.entries, trouble, damage: parsed.damage, holder })
    }

    /// Locks the journal for this process and reads it. A torn last line is cut off.
    ///
    /// # Errors
    /// [`JournalError::Busy`] if another process holds it; [`JournalError::Newer`] and
    /// [`JournalError::NotOurs`] if nothing more may be written; [`JournalError::File`].
    pub fn lock(&self) -> Result<JournalWriter, JournalError> {
        JournalWriter::open(self, lock::LockWait::No)
    }

    /// Like [`lock`](Self::lock), but waits for the current holder.
    ///
    /// # Errors
    ///
    /// The errors of [`StateStore::lock`], except `Busy`.
    pub fn lock_waiting(&self) -> Result<JournalWriter, JournalError> {
        JournalWriter::open(self, lock::LockWait::Yes)
    }

    /// The plan that a tune started with. `None` if it had none.
    ///
    /// # Errors
    ///
    /// [`JournalError::File`] if it cannot be read or is no plan.
    pub fn plan(&self, tune: u64) -> Result<Option<TunePlan>, JournalError> {
        let path = self.plan_path(tune);
        let Some(file) = open_to_read(&path)? else { return Ok(None) };
        let text = read_all(&file, &path)?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| file_error(&path, "read as a plan", error.into()))
    }

    fn holder(&self) -> Result<Option<LockHolder>, JournalError> {
        let path = self.lock_path();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error(&path, "open", error)),
        };
        let is_locked =
            lock::is_held(&file).map_err(|error| file_error(&path, "ask who locked it", error))?;
        Ok(is_locked.then(|| LockHolder { pid: holder_pid(&file) }))
    }
}

impl Journal {
    /// All tunes, the earliest first.
    pub fn tunes(&self) -> Vec<RecordedTune> {
        super::tune::tunes(&self.entries, &self.damage)
    }

    /// Whether the plan of a tune can be read, so that the tune can be resumed.
    pub fn has_plan(&self, tune: u64) -> bool {
        let store = self.path.parent().map(StateStore::at);
        store.is_some_and(|store| store.plan(tune).is_ok_and(|plan| plan.is_some()))
    }

    pub fn tune(&self, number: u64) -> Option<RecordedTune> {
        self.tunes().into_iter().find(|tune| tune.begun.tune == number)
    }
}

/// The process id that the lock's holder left in it.
pub(super) fn holder_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

// Opens a file for reading if it exists. Only its owner may have been able to write it.
fn open_to_read(path: &Path) -> Result<Option<File>, JournalError> {
    let result = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    match result {
        Ok(file) => check_owner(&file, path).map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path, "open", error)),
    }
}

pub(super) fn read_all(mut file: &File, path: &Path) -> Result<Vec<u8>, JournalError> {
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(|error| file_error(path, "read", error))?;
    Ok(text)
}

// An undo writes the journal's values to the host as root, so only root and this user may have
// written it.
pub(super) fn check_owner(file: &File, path: &Path) -> Result<(), JournalError> {
    let metadata = file.metadata().map_err(|error| file_error(path, "look at", error))?;
    let not_ours = |why: String| Err(JournalError::NotOurs { path: path.display().to_string(), why });
    if metadata.uid() != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
        return not_ours(format!("it belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return not_ours(format!("others may write it (mode {:04o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

pub(super) fn file_error(path: &Path, operation: &'static str, source: io::Error) -> JournalError {
    JournalError::File { path: path.display().to_string(), what: operation, source }
}
