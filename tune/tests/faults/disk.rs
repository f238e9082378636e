//! Disks without space.

use std::cell::Cell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use linerate_host::{Host, Setting, SettingError, SettingValue};
use linerate_tune::TunePlan;
use linerate_tune::journal::JournalError;
use linerate_tune::journal::StateStore;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::plan::PlannedChange;
use linerate_tune::transaction::{ChangeTarget, TuneError, TuneStart, TuneTransaction, undo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::TrialResult;

const SETTINGS: usize = 200;

fn setting(number: usize) -> Setting {
    Setting::sysctl(format!("net.fake.n{number}"))
}

fn host() -> Host {
    let file = |number| (format!("/proc/sys/net/fake/n{number}"), "0\n".to_owned());
    let boot = ("/proc/sys/kernel/random/boot_id".to_owned(), "boot-1\n".to_owned());
    Host::scripted((0..SETTINGS).map(file).chain([boot]))
}

fn begin(plan: Option<&TunePlan>) -> TuneStart<'_> {
    TuneStart { plan, ..TuneStart::new("test", Vec::new()) }
}

/// Runs a role in a file system of its own, which ends with the role.
fn in_file_system(mount: &str, words: &[&str]) -> TrialResult {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    let program = std::env::current_exe().expect("a program");
    let script = format!("mount {mount} \"$0\" && trap '' XFSZ && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script, path])
        .arg(program)
        .args(["role", "disk"])
        .args(words)
        .arg(path)
        .output()
        .map_err(|error| format!("unshare: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if stderr.contains("unshare failed") || stderr.starts_with("mount:") {
        return Err(stderr);
    }
    assert!(output.status.success(), "{stderr}");
    Ok(())
}

pub(crate) fn tune_is_refused_at_the_start_if_the_disk_is_full() -> TrialResult {
    in_file_system("-t tmpfs -o size=300k,mode=700 tmpfs", &["start"])
}

pub(crate) fn disk_that_fills_up_midway_loses_no_journal_record() -> TrialResult {
    // ramfs has no fallocate, so no space can be reserved.
    in_file_system("-t ramfs -o mode=700 ramfs", &["midway"])
}

pub(crate) fn values_that_a_change_reset_leave_space_for_its_undo() -> TrialResult {
    in_file_system("-t tmpfs -o size=600k,mode=700 tmpfs", &["resets"])
}

pub(crate) fn play(words: &[&str]) {
    match words {
        ["start", path] => start(&StateStore::at(*path)),
        ["midway", path] => midway(&StateStore::at(*path)),
        ["resets", path] => [false, true].into_iter().for_each(|adds| resets(path, adds)),
        _ => panic!("{words:?}"),
    }
}

fn start(store: &StateStore) {
    let host = host();
    let change = |number: usize| {
        PlannedChange::new(setting(number), SettingValue::new("0"), SettingValue::new("7"), "a test")
    };
    let mut plan = TunePlan { changes: (0..SETTINGS).map(change).collect(), ..TunePlan::new("test") };
    // Of 300 KiB, this file leaves too little for the plan and the space that the journal reserves.
    std::fs::write(store.directory().join("other"), vec![0; 200 << 10]).expect("written");
    let mut writer = store.lock().expect("locked");
    let error = TuneTransaction::begin(&mut writer, &host, begin(Some(&plan))).expect_err("no space");
    assert!(matches!(error, TuneError::Journal(JournalError::NoSpace { .. })), "{error}");
    assert!(writer.tunes().is_empty());
    drop(writer);
    assert!(store.read().expect("read").entries.is_empty());

    // With enough space, the tune reserves what it and its undo will write, before the disk fills
    // up.
    plan.changes.truncate(SETTINGS / 10);
    let mut writer = store.lock().expect("locked");
    let mut transaction = TuneTransaction::begin(&mut writer, &host, begin(Some(&plan))).expect("begun");
    fill_disk(&store.directory().join("filler"));
    for change in &plan.changes {
        transaction.change_from(&host, &change.setting, &change.from, &change.to).expect("journalled");
    }
    transaction.end(None).expect("ended");
    let report = undo(&mut writer, &host, None, Asked).expect("undone");
    assert_eq!(report.settings.len(), plan.changes.len());
    assert!(
        plan.changes.iter().all(|change| change.setting.read(&host).ok() == Some(SettingValue::new("0")))
    );

    // A later tune does not use the space for the undo of an earlier tune.
    for name in ["other", "filler"] {
        std::fs::remove_file(store.directory().join(name)).expect("removed");
    }
    for numbers in [0..80, 80..100] {
        let mut transaction = TuneTransaction::begin(&mut writer, &host, begin(None)).expect("begun");
        for number in numbers {
            transaction.change(&host, &setting(number), &SettingValue::new("7")).expect("journalled");
        }
        transaction.end(None).expect("ended");
    }
    fill_disk(&store.directory().join("filler"));
    let report = undo(&mut writer, &host, Some(2), Asked).expect("undone");
    assert_eq!(report.settings.len(), 80);
}

fn fill_disk(filler: &Path) {
    let mut filler = std::fs::File::create(filler).expect("made");
    let full = (0..1000).find_map(|_| filler.write_all(&[0; 4096]).err());
    assert_eq!(full.and_then(|error| error.raw_os_error()), Some(libc::ENOSPC));
}

/// A host on which a change of setting 0 resets the other settings. The disk fills up meanwhile.
struct ResettingHost {
    host: Host,
    filler: PathBuf,
    /// Whether the change adds half of the other settings, as a change of channels adds queues.
    adds: bool,
    is_changed: Cell<bool>,
}

impl ChangeTarget for ResettingHost {
    fn host(&self) -> &Host {
        &self.host
    }

    fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
        if !self.is_changed.replace(true) {
            fill_disk(&self.filler);
        }
        setting.write(&self.host, value)
    }

    fn dependents(&self, cause: &Setting) -> Vec<Setting> {
        let count = if self.adds && !self.is_changed.get() { SETTINGS / 2 } else { SETTINGS };
        (1..count).filter(|_| *cause == setting(0)).map(setting).collect()
    }
}

fn resets(directory: &str, adds: bool) {
    let filler = Path::new(directory).join("filler");
    let host = ResettingHost { host: host(), filler, adds, is_changed: Cell::default() };
    let store = StateStore::at(Path::new(directory).join(if adds { "adds" } else { "resets" }));
    let mut writer = store.lock().expect("locked");
    let mut transaction = TuneTransaction::begin(&mut writer, &host, begin(None)).expect("begun");
    let result = transaction.change(&host, &setting(0), &SettingValue::new("7"));
    assert!(
        if adds {
            matches!(result, Err(TuneError::Journal(JournalError::NoSpace { .. })))
        } else {
            result.is_ok()
        },
        "{adds}: {result:?}"
    );
    assert_eq!(setting(0).read(&host.host).expect("read").as_str(), "7");
    transaction.end(result.err().map(|error| error.to_string())).expect("ended");
    let report = undo(&mut writer, &host, None, Asked).expect("undone");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:?}");
    assert_eq!(setting(0).read(&host.host).expect("read").as_str(), "0");
    std::fs::remove_file(&host.filler).expect("removed");
}

fn midway(store: &StateStore) {
    let host = host();
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(8000), maximum: before.maximum }).expect("limited");
    let mut writer = store.lock().expect("locked");
    let mut transaction = TuneTransaction::begin(&mut writer, &host, begin(None)).expect("begun");
    let mut change = |number| transaction.change(&host, &setting(number), &SettingValue::new("7"));
    let refusal = (0..SETTINGS).find_map(|number| change(number).err().map(|error| (number, error)));
    let (number, error) = refusal.expect("the limit is met");
    let has_no_space = matches!(error, TuneError::Journal(JournalError::NoSpace { .. }));
    assert!(number > 2 && has_no_space, "{number}: {error}");
    assert!(matches!(change(number), Err(TuneError::Journal(JournalError::Broken { .. }))));
    drop(writer);
    let trouble = store.read().expect("read").trouble;
    assert!(trouble.is_none(), "{trouble:?}");

    // Every changed setting is in the journal.
    setrlimit(Resource::Fsize, before).expect("lifted");
    let report = undo(&mut store.lock().expect("locked"), &host, None, Asked).expect("undone");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:?}");
    assert!((0..SETTINGS).all(|number| setting(number).read(&host).ok() == Some(SettingValue::new("0"))));
}
