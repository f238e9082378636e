//! The roles in which a test starts this program.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use linerate_host::{Host, Setting, SettingError, SettingValue};
use linerate_tune::journal::StateStore;
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::transaction::{
    ChangeOutcome, ChangeTarget, TuneStart, TuneTransaction, boot_seconds, undo,
};
use linerate_tune::{NamedDevice, guard};

use crate::scene::{INTERFACE, changes};

pub(crate) fn play(role: &str, words: &[&str]) -> ExitCode {
    match (role, words) {
        ("tune", [directory, pace]) => tune(directory, &PacedHost::new(pace), None),
        ("undo", [directory, pace]) => {
            let mut writer = StateStore::at(*directory).lock().expect("locked");
            undo(&mut writer, &PacedHost::new(pace), None, Asked).expect("undone");
        }
        ("guarded", [directory, pace]) => {
            let until = UndoDeadline::Confirmed { boot_seconds: boot_seconds() + 1000 };
            tune(directory, &PacedHost::new(pace), Some(until));
        }
        ("guard", [directory, tune]) => {
            let tune = tune.parse().expect("a number");
            let result = guard::run(&StateStore::at(*directory), tune, &Host::live());
            return if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        ("disk", words) => crate::disk::play(words),
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

fn tune(directory: &str, target: &PacedHost, until: Option<UndoDeadline>) {
    let store = StateStore::at(directory);
    let mut writer = store.lock().expect("locked");
    let devices = vec![NamedDevice::observe(target.host(), INTERFACE).expect("there")];
    let begin = TuneStart { devices, until, ..TuneStart::new("test", Vec::new()) };
    let mut transaction = TuneTransaction::begin(&mut writer, target, begin).expect("begun");
    let guard = until.map(|_| {
        let words = ["role", "guard", directory, &transaction.id().to_string()].map(Into::into);
        let guard = guard::start(words).expect("watches");
        println!("guard {}", guard.id());
        guard
    });
    for (setting, value) in changes() {
        let result = transaction.change(target, &setting, &value).expect("journalled");
        assert!(matches!(result, ChangeOutcome::Made), "{setting}: {result:?}");
    }
    transaction.end(None).expect("ended");
    drop(writer);
    println!("ended");
    // The maker stays until its standard input has a line or closes.
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    drop(guard);
}

/// The live host. If it waits, each read and write needs a line of input, so that a test chooses
/// the moment of a kill.
struct PacedHost {
    host: Host,
    waits: bool,
}

impl PacedHost {
    fn new(pace: &str) -> Self {
        Self { host: Host::live(), waits: pace == "stepping" }
    }

    fn step(&self) {
        if self.waits {
            let mut output = std::io::stdout().lock();
            output.write_all(b"step\n").and_then(|()| output.flush()).expect("written");
            let _ = std::io::stdin().lock().read_line(&mut String::new());
        }
    }
}

impl ChangeTarget for PacedHost {
    fn host(&self) -> &Host {
        &self.host
    }

    fn read(&self, setting: &Setting) -> Result<SettingValue, SettingError> {
        self.step();
        setting.read(&self.host)
    }

    fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
        self.step();
        let result = setting.write(&self.host, value);
        self.step();
        result
    }
}
