//! The file that accounting is kept in: a line a record, at its end, and never anything between or before.
//!
//! A line is written by one `write(2)` of the worker that has the request, under a lock that is held for that alone. The kernel
//! copies it to its cache, which takes microseconds; it takes longer where the kernel makes writers wait for a slow disk
//! (`balance_dirty_pages`, mm/page-writeback.c), and with [`Sync::Each`], whose worker waits for the disk each time. The
//! other workers go on meanwhile.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How long records may be with the kernel alone under [`Sync::EachSecond`].
const PERIOD: Duration = Duration::from_secs(1);

/// When records are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// Before each is answered (`fdatasync`). Nothing that was answered is lost, and a worker does nothing else while it waits
    /// for the disk.
    Each,
    /// A second after they are answered, at most. A machine that loses power loses what came in that second.
    #[default]
    EachSecond,
    /// When the kernel sees fit, half a minute or so (`vm.dirty_expire_centisecs`).
    Never,
}

/// What an operator is told of, one line each: that nothing more can be recorded, that it can again, that a disk lost something.
pub type OperatorNotifier = Box<dyn Fn(&str) + Send + std::marker::Sync>;

/// A file that only grows. Workers share it.
pub struct DetailFile {
    path: PathBuf,
    sync: SyncMode,
    open: Mutex<OpenDetail>,
    /// Whether something was written that is not synced yet.
    dirty: AtomicBool,
    /// Whether the last record could not be written.
    failing: AtomicBool,
    tell: OperatorNotifier,
    ends: Arc<DetailEnd>,
}

/// The end of a [`DetailFile`], for the thread that syncs.
#[derive(Debug, Default)]
struct DetailEnd {
    ended: Mutex<bool>,
    changed: Condvar,
}

#[derive(Debug)]
struct OpenDetail {
    file: Arc<File>,
    /// Not one of the devices, which have no end to cut and nothing to sync.
    regular: bool,
    /// Whether the last line is a piece that could not be cut off.
    torn: bool,
}

impl fmt::Debug for DetailFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetailFile")
            .field("path", &self.path)
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

impl DetailFile {
    /// Opens `path`, or makes it, readable by its owner alone.
    ///
    /// # Errors
    /// What the kernel says, of the file or of a thread that cannot be started.
    pub fn open(path: &Path, sync: SyncMode, tell: OperatorNotifier) -> io::Result<Arc<Self>> {
        let detail = Arc::new(Self {
            path: path.to_owned(),
            sync,
            open: Mutex::new(OpenDetail::new(path)?),
            dirty: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            tell,
            ends: Arc::default(),
        });
        if sync == SyncMode::EachSecond {
            let (weak, ends) = (Arc::downgrade(&detail), Arc::clone(&detail.ends));
            thread::Builder::new().name("radius-sync".to_owned()).spawn(move || keep_synced(&weak, &ends))?;
        }
        Ok(detail)
    }

    /// Opens the path anew, as is due when the file was moved away. Records go to the one or the other, whole. What the old one has
    /// is synced, unless that is left to the kernel.
    ///
    /// # Errors
    /// What the kernel says. The file from before is used on.
    pub fn reopen(&self) -> io::Result<()> {
        let fresh = OpenDetail::new(&self.path)?;
        let old = std::mem::replace(&mut *self.lock(), fresh);
        match self.sync {
            SyncMode::Never => Ok(()),
            _ if old.regular => old.file.sync_data(),
            _ => Ok(()),
        }
    }

    /// Adds a line, which ends with a newline and has none before. It is in the file when this returns, and on disk as [`SyncMode`]
    /// says.
    ///
    /// # Errors
    /// What the kernel says. Nothing of the line is in the file then, unless it could not be cut off again; the next one
    /// begins on a line of its own all the same.
    pub fn append(&self, line: &[u8]) -> io::Result<()> {
        let written = self.write(line);
        let failed = written.is_err();
        if self.failing.swap(failed, Ordering::Relaxed) != failed {
            let path = self.path.display();
            match &written {
                Ok(()) => (self.tell)(&format!("{path}: records are written again")),
                Err(error) => (self.tell)(&format!(
                    "{path}: {error}; accounting gets no answer until records can be written"
                )),
            }
        }
        written
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let (file, regular) = {
            let mut open = self.lock();
            open.put(line)?;
            (Arc::clone(&open.file), open.regular)
        };
        match self.sync {
            SyncMode::Each if regular => file.sync_data(),
            SyncMode::EachSecond if regular => {
                self.dirty.store(true, Ordering::Release);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Syncs what was written since the last time.
    fn sync(&self) {
        if !self.dirty.swap(false, Ordering::Acquire) {
            return;
        }
        let file = Arc::clone(&self.lock().file);
        if let Err(error) = file.sync_data() {
            (self.tell)(&format!(
                "{}: {error}; what was recorded and answered in the last second may be lost",
                self.path.display()
            ));
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenDetail> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DetailFile {
    fn drop(&mut self) {
        self.sync();
        *self.ends.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ends.changed.notify_all();
    }
}

/// Syncs once a period for as long as the file is used.
fn keep_synced(detail: &Weak<DetailFile>, ends: &DetailEnd) {
    let mut ended = ends.ended.lock().unwrap_or_else(PoisonError::into_inner);
    while !*ended {
        ended = ends.changed.wait_timeout(ended, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        // Without the lock, which is taken where the last of the users goes: that may be here.
        drop(ended);
        match detail.upgrade() {
            Some(detail) => detail.sync(),
            None => return,
        }
        ended = ends.ended.lock().unwrap_or_else(PoisonError::into_inner);
    }
}

impl OpenDetail {
    fn new(path: &Path) -> io::Result<Self> {
        // What users did is nobody's business who may not read the file.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let regular = file.metadata()?.is_file();
        Ok(Self { file: Arc::new(file), regular, torn: false })
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut file, regular) = (&*self.file, self.regular);
        if self.torn {
            file.write_all(b"\n")?;
            self.torn = false;
        }
        let Err(PartialLine { written, error }) = write_line(&mut file, line) else { return Ok(()) };
        if written > 0 {
            // The position is behind what an appending write has written.
            let cut = file.stream_position().and_then(|end| file.set_len(end - written as u64));
            self.torn = !regular || cut.is_err();
        }
        Err(error)
    }
}

/// A line of which only a part was written.
struct PartialLine {
    written: usize,
    error: io::Error,
}

/// Writes all of `line`, or tells how much.
fn write_line(file: &mut impl Write, line: &[u8]) -> Result<(), PartialLine> {
    let mut written = 0;
    while written < line.len() {
        match file.write(&line[written..]) {
            Ok(0) => return Err(PartialLine { written, error: io::ErrorKind::WriteZero.into() }),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PartialLine { written, error }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent() -> OperatorNotifier {
        Box::new(|_| {})
    }

    #[test]
    fn lines_are_added_and_the_path_can_be_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("acct"), directory.path().join("acct.1"));
        std::fs::write(&path, "before\n").unwrap();
        for sync in [SyncMode::Each, SyncMode::EachSecond, SyncMode::Never] {
            let detail = DetailFile::open(&path, sync, silent()).unwrap();
            detail.append(b"one\n").unwrap();
            std::fs::rename(&path, &moved).unwrap();
            detail.append(b"two\n").unwrap();
            detail.reopen().unwrap();
            detail.append(b"before\n").unwrap();
            assert_eq!(std::fs::read_to_string(&moved).unwrap(), "before\none\ntwo\n", "{sync:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n", "{sync:?}");
        }
    }

    #[test]
    fn a_full_disk_is_told_once_until_it_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acct");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&told);
        let tell: OperatorNotifier = Box::new(move |line| heard.lock().unwrap().push(line.to_owned()));
        let detail = DetailFile::open(&path, SyncMode::EachSecond, tell).unwrap();
        for _ in 0..3 {
            let error = detail.append(b"one\n").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
        std::fs::remove_file(&path).unwrap();
        detail.reopen().unwrap();
        detail.append(b"two\n").unwrap();
        detail.append(b"three\n").unwrap();
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("No space left") && told[1].contains("again"), "{told:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\nthree\n");
    }

    #[test]
    fn a_path_that_cannot_be_opened_leaves_the_old_file_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acct");
        let detail = DetailFile::open(&path, SyncMode::Never, silent()).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(detail.reopen().is_err());
        detail.append(b"one\n").unwrap();
        assert_eq!(detail.lock().file.metadata().unwrap().len(), 4);
    }

    /// Takes so many bytes, three at a time.
    struct ShortWriter(usize);

    impl Write for ShortWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(3).min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn how_much_of_a_line_was_written_is_known() {
        assert!(write_line(&mut ShortWriter(10), b"0123456789").is_ok());
        let partial = write_line(&mut ShortWriter(9), b"0123456789").err().unwrap();
        assert_eq!((partial.written, partial.error.raw_os_error()), (9, Some(libc::ENOSPC)));
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acct");
        std::fs::write(&path, "a pie").unwrap();
        let mut open = OpenDetail { torn: true, ..OpenDetail::new(&path).unwrap() };
        open.put(b"whole\n").unwrap();
        open.put(b"too\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a pie\nwhole\ntoo\n");
    }
}
