//! A scripted host with a few sysctls, whose writes fail on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use linerate_host::{Host, HostError, Setting, SettingError, SettingValue};
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::{JournalWriter, StateStore};
use linerate_tune::status::JournalStatus;
use linerate_tune::transaction::{ChangeTarget, TuneError, TuneStart, TuneTransaction, UndoReport, undo};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Obeys,
    /// Fails with this error number.
    Refuses(i32),
    /// The write has no effect, which its error reports.
    Ignores,
    HalfObeys,
    /// The first write succeeds. All later ones are refused.
    ObeysOnce,
}

/// The host, which can kill the program that works on it.
pub(crate) struct Fake {
    host: Host,
    manners: RefCell<BTreeMap<Setting, Manner>>,
    pub(crate) fuse: Fuse,
}

/// Number of events until the program is killed; `None`: never.
#[derive(Default)]
pub(crate) struct Fuse(Cell<Option<u32>>);

/// The panic of a killed program.
struct KillPanic;

pub(crate) fn setting(number: usize) -> Setting {
    Setting::sysctl(format!("net.fake.n{number}"))
}

fn path(setting: &Setting) -> String {
    format!("/proc/sys/{}", setting.to_string().replace('.', "/"))
}

impl Fuse {
    /// Runs a program and kills it at its Nth event. Returns `None` if it was killed.
    pub(crate) fn killed_at<T>(&self, event: Option<u32>, program: impl FnOnce() -> T) -> Option<T> {
        self.0.set(event);
        let result = catch_unwind(AssertUnwindSafe(program));
        self.0.set(None);
        match result {
            Ok(result) => Some(result),
            Err(panic) if panic.is::<KillPanic>() => None,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    pub(crate) fn event(&self) {
        match self.0.get() {
            Some(0) => panic_any(KillPanic),
            Some(left) => self.0.set(Some(left - 1)),
            None => {}
        }
    }
}

impl Fake {
    /// A host of settings that read `0`.
    pub(crate) fn new(settings: usize) -> Self {
        let files = (0..settings).map(|number| (path(&setting(number)), "0\n".to_owned()));
        let boot = ("/proc/sys/kernel/random/boot_id".to_owned(), "boot-1\n".to_owned());
        Self { host: Host::scripted(files.chain([boot])), manners: RefCell::default(), fuse: Fuse::default() }
    }

    pub(crate) fn behave(&self, setting: &Setting, manner: Manner) {
        self.manners.borrow_mut().insert(setting.clone(), manner);
    }

    /// Starts the next boot: changes the boot id only.
    pub(crate) fn reboot(&self) {
        self.host.write("/proc/sys/kernel/random/boot_id", "boot-2\n").expect("scripted");
    }

    pub(crate) fn set(&self, setting: &Setting, value: &str) {
        self.host.write(&path(setting), value).expect("scripted");
    }

    pub(crate) fn now(&self, setting: &Setting) -> String {
        setting.read(&self.host).expect("scripted").to_string()
    }

    fn manner(&self, setting: &Setting) -> Manner {
        self.manners.borrow().get(setting).copied().unwrap_or(Manner::Obeys)
    }
}

impl ChangeTarget for Fake {
    fn host(&self) -> &Host {
        &self.host
    }

    fn read(&self, setting: &Setting) -> Result<SettingValue, SettingError> {
        self.fuse.event();
        setting.read(&self.host)
    }

    fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
        self.fuse.event();
        let name = setting.to_string();
        let half = format!("half-{value}");
        let result = match self.manner(setting) {
            Manner::Obeys => setting.write(&self.host, value),
            Manner::ObeysOnce => {
                self.behave(setting, Manner::Refuses(libc::EBUSY));
                setting.write(&self.host, value)
            }
            Manner::Refuses(errno) => Err(SettingError::Host {
                setting: name,
                source: HostError::Write {
                    path: path(setting),
                    value: value.to_string(),
                    source: io::Error::from_raw_os_error(errno),
                },
            }),
            Manner::Ignores => {
                let found = self.now(setting);
                Err(SettingError::Ignored { setting: name, wanted: value.to_string(), found })
            }
            // Restoring the original value `0` succeeds.
            Manner::HalfObeys if value.as_str() != "0" => {
                self.set(setting, &half);
                Err(SettingError::Partly { setting: name, wanted: value.to_string(), found: half })
            }
            Manner::HalfObeys => setting.write(&self.host, value),
        };
        self.fuse.event();
        result
    }
}

pub(crate) struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        // Thousands of syncs are faster in memory, if /dev/shm exists.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { directory: directory.expect("a directory") }
    }

    pub(crate) fn store(&self) -> StateStore {
        StateStore::at(self.directory.path().join("state"))
    }

    pub(crate) fn lock(&self) -> JournalWriter {
        self.store().lock().expect("locked")
    }
}

pub(crate) fn value(text: &str) -> SettingValue {
    SettingValue::new(text)
}

pub(crate) fn status(scratch: &Scratch, target: &impl ChangeTarget) -> JournalStatus {
    JournalStatus::of(&scratch.store().read().expect("read"), target.host())
}

/// Undoes until an undo has nothing to do. The first undos are killed at these events. Returns all
/// reports.
pub(crate) fn undo_until_finished(
    (target, fuse): (&impl ChangeTarget, &Fuse),
    scratch: &Scratch,
    id: Option<u64>,
    kills: &[u32],
) -> Vec<UndoReport> {
    let mut reports = Vec::new();
    for kill in kills.iter().copied().map(Some).chain([None, None]) {
        match fuse.killed_at(kill, || undo(&mut scratch.lock(), target, id, Asked)) {
            Some(Ok(report)) => reports.push(report),
            Some(Err(TuneError::NothingToUndo | TuneError::UndoneAlready { .. })) => break,
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
    }
    reports
}

pub(crate) fn begin() -> TuneStart<'static> {
    TuneStart::new("test", vec!["linerate".to_owned()])
}

/// Makes a tune of these changes. Refused changes do not end it.
pub(crate) fn tune(
    scratch: &Scratch,
    target: &impl ChangeTarget,
    start: TuneStart<'_>,
    changes: &[(Setting, SettingValue)],
) -> Result<(), TuneError> {
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, target, start)?;
    for (setting, to) in changes {
        transaction.change(target, setting, to)?;
    }
    transaction.end(None)
}
