//! A host of a few sysctls that fails on order.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use linerate_host::{Host, HostError, Setting, SettingError, SettingValue};
use linerate_tune::journal::{JournalWriter, StateStore};
use linerate_tune::transaction::{ChangeTarget, TuneStart};

/// How a setting takes a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Obeys,
    /// With this error number.
    Refuses(i32),
    /// Says nothing and does nothing.
    Ignores,
    HalfObeys,
    /// The first write as it should, and refuses all others.
    ObeysOnce,
}

/// The host, which can end the program that works on it.
pub(crate) struct Fake {
    host: Host,
    manners: RefCell<BTreeMap<Setting, Manner>>,
    fuse: Fuse,
}

/// Events until the program is ended; none for never.
#[derive(Default)]
pub(crate) struct Fuse(Cell<Option<u32>>);

/// What ends the program.
struct Killed;

pub(crate) fn setting(number: usize) -> Setting {
    Setting::sysctl(format!("net.fake.n{number}"))
}

fn path(setting: &Setting) -> String {
    format!("/proc/sys/{}", setting.to_string().replace('.', "/"))
}

impl Fuse {
    /// Does what a program does that is ended at its Nth event, if it gets so far. None where it
    /// was ended.
    pub(crate) fn killed_at<T>(&self, event: Option<u32>, program: impl FnOnce() -> T) -> Option<T> {
        self.0.set(event);
        let result = catch_unwind(AssertUnwindSafe(program));
        self.0.set(None);
        match result {
            Ok(result) => Some(result),
            Err(panic) if panic.is::<Killed>() => None,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    pub(crate) fn event(&self) {
        match self.0.get() {
            Some(0) => panic_any(Killed),
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

    /// The next boot: all that is not kept is as at first.
    pub(crate) fn reboot(&self) {
        self.host.write("/proc/sys/kernel/random/boot_id", "boot-2\n").expect("scripted");
    }

    pub(crate) fn set(&self, setting: &Setting, value: &str) {
        self.host.write(&path(setting), value).expect("scripted");
    }

    pub(crate) fn now(&self, setting: &Setting) -> String {
        setting.read(&self.host).expect("scripted").to_string()
    }

    /// Does what a program does that is ended at its Nth event, if it gets so far. None where it was ended.
    pub(crate) fn killed_at<T>(&self, event: Option<u32>, program: impl FnOnce() -> T) -> Option<T> {
        self.fuse.killed_at(event, program)
    }

    fn event(&self) {
        self.fuse.event();
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
        self.event();
        setting.read(&self.host)
    }

    fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
        self.event();
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
            // Put back it is by the same program, which then is obeyed.
            Manner::HalfObeys if value.as_str() != "0" => {
                self.set(setting, &half);
                Err(SettingError::Partly { setting: name, wanted: value.to_string(), found: half })
            }
            Manner::HalfObeys => setting.write(&self.host, value),
        };
        self.event();
        result
    }
}

/// A state directory of its own.
pub(crate) struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        // Thousands of syncs are quicker in memory, where there is some.
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

pub(crate) fn begin() -> TuneStart<'static> {
    TuneStart::new("test", vec!["linerate".to_owned()])
}
