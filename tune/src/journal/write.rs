//! Appending to the journal.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use linerate_host::unix_seconds;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::read::{JournalCorruption, parse};
use super::store::{check_owner, file_error, holder_pid, read_all};
use super::tune::{RecordedTune, apply_entry};
use super::{JournalError, JournalLine, JournalRecord, StateStore};
use crate::TunePlan;
use crate::sys::lock;

/// The right to append to a journal; no other process has it as long as this is held.
#[derive(Debug)]
pub struct JournalWriter {
    store: StateStore,
    file: File,
    length: u64,
    /// Number of the last entry.
    sequence: u64,
    tunes: Vec<RecordedTune>,
    trouble: Option<JournalCorruption>,
    broken: bool,
    _lock: lock::FileLock,
}

impl JournalWriter {
    pub(super) fn open(store: &StateStore, wait: lock::LockWait) -> Result<Self, JournalError> {
        make_directory(store.directory())?;
        let lock = take_lock(&store.lock_path(), wait)?;
        let path = store.journal_path();
        let file = open_private(&path)?;
        let text = read_all(&file, &path)?;
        let parsed = parse(&text);
        // A torn line is cut off, and damaged lines stay.
        let trouble = match parsed.trouble() {
            Some(JournalCorruption::Newer { line, why }) => {
                return Err(JournalError::Newer { path: path.display().to_string(), line, why });
            }
            trouble => trouble.filter(|trouble| matches!(trouble, JournalCorruption::Damaged { .. })),
        };
        if parsed.length < text.len() as u64 {
            // Synced before the next record is appended; otherwise a crash could leave both.
            let result = file.set_len(parsed.length).and_then(|()| file.sync_all());
            result.map_err(|error| file_error(&path, "cut off its torn last line", error))?;
        }
        if parsed.entries.is_empty() {
            // A new file may be lost with the power until its directory is synced.
            file.sync_all().map_err(|error| file_error(&path, "sync", error))?;
            sync_directory(store.directory())?;
        }
        Ok(Self {
            store: store.clone(),
            file,
            length: parsed.length,
            sequence: parsed.next_sequence() - 1,
            tunes: super::tune::tunes(&parsed.entries, &parsed.damage),
            trouble,
            broken: false,
            _lock: lock,
        })
    }

    pub fn store(&self) -> &StateStore {
        &self.store
    }

    /// The corruption of the journal; `None` if all lines are whole.
    pub fn trouble(&self) -> Option<&JournalCorruption> {
        self.trouble.as_ref()
    }

    /// All tunes, the earliest first, including the appended records.
    pub fn tunes(&self) -> &[RecordedTune] {
        &self.tunes
    }

    pub fn tune(&self, number: u64) -> Option<&RecordedTune> {
        self.tunes.iter().find(|tune| tune.begun.tune == number)
    }

    pub fn next_tune(&self) -> u64 {
        self.tunes.last().map_or(1, |tune| tune.begun.tune.saturating_add(1))
    }

    /// Appends a record, which is on disk when this returns.
    ///
    /// # Errors
    ///
    /// [`JournalError::NoSpace`], [`JournalError::File`]: then the record is not there, the
    /// announced change must not be made, and this writer writes nothing more
    /// ([`JournalError::Broken`]).
    pub fn append(&mut self, record: JournalRecord) -> Result<(), JournalError> {
        let path = self.store.journal_path();
        if self.broken {
            return Err(JournalError::Broken { path: path.display().to_string() });
        }
        let entry =
            JournalLine { sequence: self.sequence + 1, unix_seconds: unix_seconds().unwrap_or(0), record };
        let line = to_line(&entry, &path)?;
        let result =
            self.file.write_all_at(line.as_bytes(), self.length).and_then(|()| self.file.sync_data());
        if let Err(error) = result {
            // After a failed fsync the kernel may mark pages as clean that are not on disk
            // (fsync(2)), so a later fsync proves nothing: write no more.
            self.broken = true;
            let _ = self.file.set_len(self.length);
            return Err(write_error(&path, "append", error, line.len() as u64));
        }
        self.length += line.len() as u64;
        self.sequence += 1;
        apply_entry(&mut self.tunes, &entry);
        Ok(())
    }

    /// Makes sure that there is space for these records, if the file system can reserve it.
    pub fn reserve(&self, records: impl IntoIterator<Item = JournalRecord>) -> Result<(), JournalError> {
        let path = self.store.journal_path();
        let mut bytes = 0;
        for record in records {
            let entry = JournalLine { sequence: u64::MAX, unix_seconds: u64::MAX, record };
            bytes += to_line(&entry, &path)?.len() as u64;
        }
        if bytes == 0 {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.length, bytes) {
            // Not every file system can reserve space; then the append itself fails first.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(write_error(&path, "append", error.into(), bytes)),
        }
    }

    /// Saves the plan of a tune, and replaces an earlier plan.
    pub fn save_plan(&self, tune: u64, plan: &TunePlan) -> Result<(), JournalError> {
        make_directory(&self.store.plans_path())?;
        let path = self.store.plan_path(tune);
        let temporary = path.with_extension("new");
        let text =
            serde_json::to_vec_pretty(plan).map_err(|error| file_error(&path, "write", error.into()))?;
        let write = || -> io::Result<()> {
            match std::fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all_at(&text, 0)?;
            // Before the rename: after a power failure the path must not name an empty file.
            file.sync_all()?;
            std::fs::rename(&temporary, &path)
        };
        write().map_err(|error| write_error(&path, "write", error, text.len() as u64))?;
        sync_directory(&self.store.plans_path())
    }
}

fn to_line(entry: &JournalLine, path: &Path) -> Result<String, JournalError> {
    entry.to_line().map_err(|error| file_error(path, "write as JSON", error.into()))
}

fn write_error(path: &Path, operation: &'static str, source: io::Error, bytes: u64) -> JournalError {
    match source.kind() {
        // These can be fixed by freeing space.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            JournalError::NoSpace { path: path.display().to_string(), bytes, source }
        }
        _ => file_error(path, operation, source),
    }
}

fn take_lock(path: &Path, wait: lock::LockWait) -> Result<lock::FileLock, JournalError> {
    let result = lock::FileLock::take(open_private(path)?, wait);
    let lock = match result.map_err(|error| file_error(path, "lock", error))? {
        Ok(lock) => lock,
        Err(file) => return Err(JournalError::Busy { pid: holder_pid(&file) }),
    };
    let text = format!("{}\n", std::process::id());
    // The PID is only for messages, and a full disk must not prevent an undo.
    let _ = lock.file().set_len(0).and_then(|()| lock.file().write_all_at(text.as_bytes(), 0));
    Ok(lock)
}

// Opens a file that only this user can access for reading and writing; creates it if necessary.
fn open_private(path: &Path) -> Result<File, JournalError> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| file_error(path, "open", error))?;
    check_owner(&file, path)?;
    Ok(file)
}

/// Creates a directory of mode 0700, and its parents.
fn make_directory(path: &Path) -> Result<(), JournalError> {
    let error = |error| file_error(path, "make or open the directory", error);
    if !path.is_dir() {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(error)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            Err(io_error) if io_error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result.map_err(error)?,
        }
        let parent: PathBuf = path.join("..");
        sync_directory(&parent)?;
    }
    check_owner(&File::open(path).map_err(error)?, path)
}

// fsync of a file does not make its directory entry durable (fsync(2)).
fn sync_directory(path: &Path) -> Result<(), JournalError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| file_error(path, "sync the directory", error))
}
