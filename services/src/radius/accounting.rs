//! The file of accounting records: one line of JSON per request, appended.
//!
//! A worker appends a line with one `write(2)` under a lock. This takes microseconds, unless the kernel makes writers
//! wait for a slow disk (`balance_dirty_pages`, mm/page-writeback.c). A thread writes the file to disk once per second.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::dictionary::{self, AttributeValue};
use super::packet::{RadiusPacket, attribute};

// A power failure loses the records of this time at most.
const SYNC_PERIOD: Duration = Duration::from_secs(1);

// Attributes of a hop, not of the user's session.
const HOP: [u8; 3] = [attribute::PROXY_STATE, attribute::MESSAGE_AUTHENTICATOR, attribute::USER_PASSWORD];

/// Schema `linerate.accounting/1`.
#[derive(Debug, Serialize)]
struct AccountingRecord {
    schema: &'static str,
    /// By the real-time clock.
    received_realtime_ns: u64,
    /// The NAS, or the proxy in front of it.
    source: SocketAddr,
    /// By name, or as `Attr-N`.
    attributes: BTreeMap<String, RecordedValue>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum RecordedValue {
    One(AttributeValue),
    /// Values of a repeated attribute, in the order of the request.
    Several(Vec<AttributeValue>),
}

/// The record of a request, with a newline at its end.
pub(super) fn record_line(packet: RadiusPacket<'_>, source: SocketAddr, received: SystemTime) -> Vec<u8> {
    let since = received.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut attributes: BTreeMap<String, RecordedValue> = BTreeMap::new();
    for found in packet.attributes().filter(|found| !HOP.contains(&found.kind)) {
        let (name, value) = dictionary::decode(found.kind, found.value);
        let values = match attributes.remove(&name) {
            None => RecordedValue::One(value),
            Some(RecordedValue::One(first)) => RecordedValue::Several(vec![first, value]),
            Some(RecordedValue::Several(mut values)) => {
                values.push(value);
                RecordedValue::Several(values)
            }
        };
        attributes.insert(name, values);
    }
    let received_realtime_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let record =
        AccountingRecord { schema: "linerate.accounting/1", received_realtime_ns, source, attributes };
    // Strings and numbers always serialize, and JSON escapes newlines.
    let mut line = serde_json::to_vec(&record).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Receives one line when records can no longer be written, when they can again, and when the disk lost some.
pub type OperatorNotifier = Box<dyn Fn(&str) + Send + Sync>;

/// An append-only file that workers share.
pub struct AccountingFile {
    path: PathBuf,
    open: Mutex<OpenFile>,
    /// Whether there are lines that were not synced yet.
    dirty: AtomicBool,
    /// Whether the last line could not be written.
    failing: AtomicBool,
    notify: OperatorNotifier,
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<File>,
    /// False for devices, which have no end to cut and nothing to sync.
    regular: bool,
    /// Whether the last line is partial and could not be removed.
    torn: bool,
}

impl fmt::Debug for AccountingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountingFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl AccountingFile {
    /// Opens or creates `path`, readable by its owner only.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread that syncs it cannot be started.
    pub fn open(path: &Path, notify: OperatorNotifier) -> io::Result<Arc<Self>> {
        let file = Arc::new(Self {
            path: path.to_owned(),
            open: Mutex::new(OpenFile::new(path)?),
            dirty: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            notify,
        });
        let weak = Arc::downgrade(&file);
        thread::Builder::new().name("radius-sync".to_owned()).spawn(move || sync_periodically(&weak))?;
        Ok(file)
    }

    /// Opens the path again, after the file was moved away. Each line goes to one of the two files. The old one is synced.
    ///
    /// # Errors
    /// The path cannot be opened; then the old file stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        let fresh = OpenFile::new(&self.path)?;
        let old = std::mem::replace(&mut *self.lock(), fresh);
        if old.regular { old.file.sync_data() } else { Ok(()) }
    }

    /// Appends a line, newline included. It is in the file when this returns, and on disk within a second.
    ///
    /// # Errors
    /// The kernel's. A partial line is removed, or else ended before the next line.
    pub fn append(&self, line: &[u8]) -> io::Result<()> {
        let written = self.lock().append(line);
        self.dirty.store(true, Ordering::Release);
        let failed = written.is_err();
        if self.failing.swap(failed, Ordering::Relaxed) != failed {
            let path = self.path.display();
            (self.notify)(&match &written {
                Ok(()) => format!("{path}: records are written again"),
                Err(error) => {
                    format!("{path}: {error}; accounting gets no answer until records can be written")
                }
            });
        }
        written
    }

    fn sync(&self) {
        // Cleared before the sync, so that a line written during it is synced the next time.
        if !self.dirty.swap(false, Ordering::Acquire) {
            return;
        }
        let (file, regular) = {
            let open = self.lock();
            (Arc::clone(&open.file), open.regular)
        };
        if regular && let Err(error) = file.sync_data() {
            (self.notify)(&format!(
                "{}: {error}; records that were answered in the last second may be lost",
                self.path.display()
            ));
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AccountingFile {
    fn drop(&mut self) {
        self.sync();
    }
}

fn sync_periodically(file: &Weak<AccountingFile>) {
    loop {
        // The thread holds no reference while it sleeps, so it never keeps the file open.
        thread::sleep(SYNC_PERIOD);
        let Some(file) = file.upgrade() else { return };
        file.sync();
    }
}

impl OpenFile {
    fn new(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let regular = file.metadata()?.is_file();
        Ok(Self { file: Arc::new(file), regular, torn: false })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let mut file = &*self.file;
        if self.torn {
            file.write_all(b"\n")?;
            self.torn = false;
        }
        let (written, result) = write_line(&mut file, line);
        if result.is_err() && written > 0 {
            // An appending write moves the position to the end of its data. A file with the
            // attribute "append only" (chattr +a) cannot be cut.
            let cut = file.stream_position().and_then(|end| file.set_len(end - written as u64));
            self.torn = !self.regular || cut.is_err();
        }
        result
    }
}

/// Writes all of `line`, and returns how many bytes were written.
fn write_line(file: &mut impl Write, line: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < line.len() {
        match file.write(&line[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(attributes: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![4, 9, 0, 0];
        bytes.resize(20, 0);
        for (kind, value) in attributes {
            bytes.extend([*kind, value.len() as u8 + 2]);
            bytes.extend(*value);
        }
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[2..4].copy_from_slice(&length);
        bytes
    }

    fn recorded(bytes: &[u8]) -> serde_json::Value {
        let source = SocketAddr::from(([192, 0, 2, 1], 2000));
        let received = UNIX_EPOCH + Duration::new(7, 9);
        let line = record_line(RadiusPacket::parse(bytes).expect("a packet"), source, received);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&line).expect("JSON")
    }

    #[test]
    fn names_and_values_are_the_dictionarys() {
        let bytes = packet(&[
            (1, b"alice"),
            (40, &[0, 0, 0, 2]),
            (4, &[192, 0, 2, 9]),
            (44, b"0x7"),
            (46, &[0, 0, 14, 16]),
            (49, &[0, 0, 0, 1]),
            (26, &[0, 0, 0, 9, 1, 2]),
            (25, b"one"),
            (25, &[0xff]),
            (33, b"hop"),
            (80, &[0; 16]),
        ]);
        let expected = serde_json::json!({
            "schema": "linerate.accounting/1",
            "received_realtime_ns": 7_000_000_009u64,
            "source": "192.0.2.1:2000",
            "attributes": {
                "User-Name": "alice",
                "Acct-Status-Type": "Stop",
                "NAS-IP-Address": "192.0.2.9",
                "Acct-Session-Id": "0x307837",
                "Acct-Session-Time": 3600,
                "Acct-Terminate-Cause": "User-Request",
                "Attr-26": "0x000000090102",
                "Class": ["one", "0xff"],
            },
        });
        assert_eq!(recorded(&bytes), expected);
    }

    proptest! {
        #[test]
        fn any_attributes_make_one_line(attributes in proptest::collection::vec(
            (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..20,
        )) {
            let attributes: Vec<(u8, &[u8])> =
                attributes.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
            prop_assert!(recorded(&packet(&attributes))["attributes"].is_object());
        }
    }

    #[test]
    fn lines_are_appended_and_the_path_can_be_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("acct"), directory.path().join("acct.1"));
        std::fs::write(&path, "before\n").unwrap();
        let file = AccountingFile::open(&path, Box::new(|_| {})).unwrap();
        file.append(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        file.append(b"two\n").unwrap();
        file.reopen().unwrap();
        file.append(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "before\none\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        // A path that cannot be opened leaves the file in use.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(file.reopen().is_err());
        file.append(b"four\n").unwrap();
        assert_eq!(file.lock().file.metadata().unwrap().len(), 11);
    }

    #[test]
    fn a_full_disk_is_reported_once_and_so_is_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acct");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&reports);
        let notify: OperatorNotifier = Box::new(move |line| seen.lock().unwrap().push(line.to_owned()));
        let file = AccountingFile::open(&path, notify).unwrap();
        for _ in 0..3 {
            let error = file.append(b"one\n").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
        std::fs::remove_file(&path).unwrap();
        file.reopen().unwrap();
        file.append(b"two\n").unwrap();
        file.append(b"three\n").unwrap();
        let reports = reports.lock().unwrap();
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert!(reports[0].contains("No space left") && reports[1].contains("again"), "{reports:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\nthree\n");
    }

    /// Accepts this many bytes, three per call.
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
    fn a_partial_line_is_counted_and_ended_before_the_next() {
        assert!(write_line(&mut ShortWriter(10), b"0123456789").1.is_ok());
        let (written, result) = write_line(&mut ShortWriter(9), b"0123456789");
        assert_eq!((written, result.unwrap_err().raw_os_error()), (9, Some(libc::ENOSPC)));

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acct");
        std::fs::write(&path, "a pie").unwrap();
        let mut open = OpenFile { torn: true, ..OpenFile::new(&path).unwrap() };
        open.append(b"whole\n").unwrap();
        open.append(b"too\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a pie\nwhole\ntoo\n");
    }
}
