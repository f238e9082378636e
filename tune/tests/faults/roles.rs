//! What this program is when a test starts it.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use linerate_host::{Host, Setting, SettingError, Value};
use linerate_tune::journal::Store;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::record::Until;
use linerate_tune::transaction::{Begin, Changed, Target, Transaction, boot_seconds, undo};
use linerate_tune::{Device, guard};

use crate::scene::{INTERFACE, changes};

/// Plays a role to its end.
pub(crate) fn play(role: &str, words: &[&str]) -> ExitCode {
    match (role, words) {
        ("tune", [directory, pace]) => tune(directory, &Paced::new(pace), None),
        ("undo", [directory, pace]) => {
            let mut writer = Store::at(*directory).lock().expect("locked");
            undo(&mut writer, &Paced::new(pace), None, Asked).expect("undone");
        }
        ("guarded", [directory, pace, "maker"]) => tune(directory, &Paced::new(pace), Some(Until::Maker {})),
        ("guarded", [directory, pace, seconds]) => {
            let seconds: u64 = seconds.parse().expect("a number");
            let until = Until::Confirmed { boot_seconds: boot_seconds() + seconds };
            tune(directory, &Paced::new(pace), Some(until));
        }
        ("guard", [directory, tune]) => {
            let tune = tune.parse().expect("a number");
            let undone = guard::run(&Store::at(*directory), tune, &Host::live());
            return if undone.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        ("disk", words) => crate::disk::play(words),
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

fn tune(directory: &str, target: &Paced, until: Option<Until>) {
    let store = Store::at(directory);
    let mut writer = store.lock().expect("locked");
    let devices = vec![Device::observe(target.host(), INTERFACE).expect("there")];
    let begin = Begin { goal: "test".to_owned(), argv: Vec::new(), devices, until, plan: None };
    let mut transaction = Transaction::begin(&mut writer, target, begin).expect("begun");
    let guard = until.map(|_| {
        let words = ["role", "guard", directory, &transaction.id().to_string()].map(Into::into);
        let guard = guard::start(words).expect("watches");
        println!("guard {}", guard.id());
        guard
    });
    for (setting, value) in changes() {
        let changed = transaction.change(target, &setting, &value).expect("journalled");
        assert!(matches!(changed, Changed::Made { .. }), "{setting}: {changed:?}");
    }
    transaction.end(None).expect("ended");
    drop(writer);
    println!("ended");
    // The maker is there until it is told to go.
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    drop(guard);
}

/// The host, whose reads and writes each wait for leave, where a test is to choose the moment of a kill.
struct Paced {
    host: Host,
    waits: bool,
}

impl Paced {
    fn new(pace: &str) -> Self {
        Self { host: Host::live(), waits: pace == "stepping" }
    }

    fn step(&self) {
        if self.waits {
            let mut output = std::io::stdout().lock();
            output.write_all(b"step\n").and_then(|()| output.flush()).expect("said");
            let _ = std::io::stdin().lock().read_line(&mut String::new());
        }
    }
}

impl Target for Paced {
    fn host(&self) -> &Host {
        &self.host
    }

    fn read(&self, setting: &Setting) -> Result<Value, SettingError> {
        self.step();
        setting.read(&self.host)
    }

    fn write(&self, setting: &Setting, value: &Value) -> Result<(), SettingError> {
        self.step();
        let result = setting.write(&self.host, value);
        self.step();
        result
    }
}
