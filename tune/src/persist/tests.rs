mod killed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linerate_host::setting::QueueDirection;
use proptest::prelude::*;

use super::*;
use crate::journal::{JournalWriter, StateStore};

fn rps(interface: &str, queue: u32) -> Setting {
    Setting::QueueCpus { interface: interface.into(), direction: QueueDirection::Receive, queue }
}

fn device(interface: &str) -> DeviceIdentity {
    DeviceIdentity {
        interface: interface.into(),
        attached_at: Some(format!("pci0000:00/{interface}")),
        port: Some(0),
        address: "02:00:00:00:00:01".into(),
    }
}

fn surroundings(interfaces: &[&str]) -> SettingContext {
    let devices = interfaces.iter().map(|name| device(name)).collect();
    SettingContext { devices, ..SettingContext::default() }
}

pub(super) fn target<'a>(
    settings: &'a [(Setting, SettingValue)],
    surroundings: &'a SettingContext,
) -> PersistTarget<'a> {
    PersistTarget {
        settings,
        surroundings,
        goal: "udp-server",
        tune: 3,
        program: "/usr/local/bin/linerate",
        state_dir: "/var/lib/linerate",
        init: InitSystem::Systemd,
    }
}

fn sysctl(name: &str, value: &str) -> (Setting, SettingValue) {
    (Setting::sysctl(name), SettingValue::new(value))
}

fn example() -> Vec<(Setting, SettingValue)> {
    vec![
        sysctl("net.ipv4.udp_early_demux", "0"),
        sysctl("net.ipv4.conf.eth0/5.rp_filter", "0"),
        sysctl("net.netfilter.nf_conntrack_max", "1048576"),
        (rps("eth0", 1), SettingValue::new("c")),
        (Setting::IrqAffinity { irq: 31, action: "eth0-TxRx-1".into() }, SettingValue::new("2")),
        (Setting::IrqbalanceBans { pid: 612, started: 9 }, SettingValue::new("31")),
    ]
}

#[test]
fn settings_of_running_processes_are_not_persisted() {
    let surroundings = surroundings(&["eth0"]);
    let pin = (Setting::ThreadCpus { pid: 812, tid: 813, started: 9 }, SettingValue::new("2"));
    let (only_pins, mut mixed) = (vec![pin.clone(), pin.clone()], example());
    let error = PersistFiles::of(&target(&only_pins, &surroundings)).expect_err("nothing lasts");
    assert_eq!(
        error.to_string(),
        "CPUs of thread 813 of process 812 and 1 more: what is set of a running process ends with it and cannot last; \
         boost the server again when it has started"
    );
    let files = PersistFiles::of(&target(&mixed, &surroundings)).expect("files");
    mixed.push(pin);
    let files_with_pin = PersistFiles::of(&target(&mixed, &surroundings)).expect("files");
    assert_eq!(files_with_pin.files, files.files);
    let note = files_with_pin.notes.last().expect("a note");
    assert!(note.starts_with("Not written: CPUs of thread 813 of process 812: what is set"), "{note}");
}

fn file_listing(files: &PersistFiles) -> String {
    files.files.iter().fold(String::new(), |text, file| match &file.content {
        FileContent::Text(content) => format!("{text}--- {}\n{content}", file.path),
        FileContent::Link(target) => format!("{text}--- {} -> {target}\n", file.path),
    })
}

const EXPECTED: &str = include_str!("tests/persisted_files.txt");

#[test]
fn persisted_files_have_the_expected_paths_and_content() {
    let (settings, surroundings) = (example(), surroundings(&["eth0", "eth0.5"]));
    let files = PersistFiles::of(&target(&settings, &surroundings)).expect("files");
    assert_eq!(
        file_listing(&files),
        EXPECTED.replace("VERSION", env!("CARGO_PKG_VERSION")).replace("SANDBOX\n", unit::SANDBOX)
    );
    assert_eq!(files.notes, ["At boot /usr/local/bin/linerate is run: it has to stay there."]);
}

#[test]
fn without_systemd_a_note_names_the_reapply_command() {
    let (settings, surroundings) = (example(), surroundings(&["eth0", "eth0.5"]));
    let files =
        PersistFiles::of(&PersistTarget { init: InitSystem::Other, ..target(&settings, &surroundings) })
            .expect("files");
    let paths: Vec<_> = files.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, [SYSCTL_FILE, DOCUMENT_FILE]);
    // No udev rule sets this sysctl when the interface appears, so it is in the document.
    assert!(!file_listing(&files).contains("net/ipv4/conf/eth0.5"), "{}", file_listing(&files));
    assert!(file_listing(&files).contains("net.ipv4.conf.eth0/5.rp_filter"), "{}", file_listing(&files));
    assert!(files.notes[0].contains("`/usr/local/bin/linerate tune reapply --file /etc/linerate/tune.json"));
}

#[test]
fn persist_refuses_unknown_devices_relative_paths_and_empty_tunes() {
    let settings = [(rps("eth0", 0), SettingValue::new("3"))];
    let no_devices = surroundings(&[]);
    let error = PersistFiles::of(&target(&settings, &no_devices)).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "eth0 rx-0/rps_cpus: the device of eth0 is not known, so that it would not be found again"
    );
    let eth0_device = surroundings(&["eth0"]);
    let error = PersistFiles::of(&PersistTarget { program: "linerate", ..target(&settings, &eth0_device) })
        .expect_err("refused");
    assert!(error.to_string().starts_with("linerate: not an absolute path"), "{error}");
    let drop_in = (Setting::UnitDropIn { unit: "ntpd.service".into() }, SettingValue::new("[Service]"));
    for (settings, message) in [
        (&[][..], "no tune is in effect, so that there is nothing to persist"),
        (&[drop_in], "the settings in effect require no files to persist"),
    ] {
        let error = PersistFiles::of(&target(settings, &eth0_device)).expect_err("refused");
        assert_eq!(error.to_string(), message);
    }
    let files =
        PersistFiles::of(&PersistTarget { program: "/root/linerate", ..target(&settings, &eth0_device) })
            .expect("files");
    assert!(files.notes[1].contains("SELinux"), "{:?}", files.notes);
}

#[test]
fn later_sysctl_files_with_other_values_are_reported() {
    let host = Host::scripted([
        ("/etc/sysctl.d/10-early.conf", "net.core.rmem_max = 1\n"),
        ("/etc/sysctl.d/99-late.conf", "\nnet.core.rmem_max = 3\nnet.core.wmem_max = 9\n"),
    ]);
    let settings = [sysctl("net.core.rmem_max", "7"), sysctl("net.core.wmem_max", "9")];
    assert_eq!(
        overridden(&settings, &SettingOwners::observe(&host)),
        [
            "net.core.rmem_max does not stay 7: sysctl.d sets 'net.core.rmem_max = 3' at boot, also over a tune that \
             persists, since its name is later (/etc/sysctl.d/99-late.conf:2)."
        ]
    );
}

#[test]
fn document_parse_errors_name_the_file_and_the_problem() {
    let error = |text: &str| PersistedSettings::parse(text, "tune.json").expect_err("refused").to_string();
    assert!(
        error("{").starts_with("tune.json: EOF while parsing an object at line 1 column 1"),
        "{}",
        error("{")
    );
    assert_eq!(
        error(r#"{"schema": "linerate.persisted/2"}"#),
        "tune.json: schema is 'linerate.persisted/2', this linerate reads linerate.persisted/1"
    );
    let text = r#"{"schema": "linerate.persisted/1", "version": "1", "goal": "", "tune": 1, "devices": [],
        "settings": [{"setting": {"rings": {"interface": "eth0"}}, "value": "rx 4096"}]}"#;
    assert_eq!(
        error(text),
        "tune.json: setting 1 (rings of eth0) is about eth0, which is not among the devices"
    );
}

proptest! {
    #[test]
    fn every_setting_is_in_one_file_and_parses_to_the_same_value(
        picks in prop::collection::vec((0u8..6, "[a-z0-9.@*=-]{1,8}", 0u32..200, "[0-9a-f ,]{1,12}"), 1..12)
    ) {
        let settings: Vec<_> = picks.into_iter().map(|(kind, word, number, value)| {
            let value = SettingValue::new(value);
            let setting = match kind {
                0 => Setting::sysctl(format!("net.core.{}", word.replace('.', "/"))),
                1 => Setting::sysctl("net.ipv4.conf.x.rp_filter").on_interface(&word),
                2 => Setting::IrqAffinity { irq: number, action: word },
                3 => Setting::Governor { cpu: number },
                4 => Setting::sysctl("net.netfilter.nf_conntrack_max"),
                _ => rps(&word, number),
            };
            (setting, value)
        }).collect();
        let mut interfaces: Vec<_> =
            settings.iter().filter_map(|(setting, _)| Some(setting.interface()?.into_owned())).collect();
        interfaces.sort();
        interfaces.dedup();
        let names: Vec<_> = interfaces.iter().map(String::as_str).collect();
        let surroundings = surroundings(&names);
        let files = PersistFiles::of(&target(&settings, &surroundings)).expect("files");
        let (mut sysctls, mut document_settings) = (Vec::new(), Vec::new());
        for file in &files.files {
            match &file.content {
                FileContent::Text(text) if file.path == SYSCTL_FILE => sysctls = assignments(text),
                FileContent::Text(text) if file.path == DOCUMENT_FILE => {
                    let document = PersistedSettings::parse(text, DOCUMENT_FILE).expect("a document");
                    prop_assert_eq!(&document.to_text().expect("text"), text);
                    let entries = document.settings.into_iter();
                    document_settings = entries.map(|entry| (entry.setting, entry.value)).collect();
                }
                _ => {}
            }
        }
        // Each file keeps the order, and no setting is lost.
        for (setting, value) in &settings {
            let is_in_document = document_settings.first() == Some(&(setting.clone(), value.clone()));
            let list = if is_in_document { &mut document_settings } else { &mut sysctls };
            prop_assert_eq!(list.first(), Some(&(setting.clone(), value.clone())));
            list.remove(0);
        }
        prop_assert!(sysctls.is_empty() && document_settings.is_empty());
    }
}

/// The settings in a file of sysctl.d, parsed like systemd 257 (src/sysctl/sysctl.c).
fn assignments(text: &str) -> Vec<(Setting, SettingValue)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=').expect("an assignment");
            let name = name.trim();
            let is_path = name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('/'));
            let swap = |letter| match letter {
                '.' => '/',
                '/' => '.',
                letter => letter,
            };
            let name = if is_path { name.chars().map(swap).collect() } else { name.to_owned() };
            (Setting::sysctl(name), SettingValue::new(value))
        })
        .collect()
}

/// A root directory with a file of another program, and a journal next to it.
struct Root {
    _directory: tempfile::TempDir,
    root: PathBuf,
    store: StateStore,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("etc/sysctl.d")).expect("made");
        std::fs::write(root.join("etc/sysctl.d/99-theirs.conf"), "kernel.pid_max = 1\n").expect("written");
        let store = StateStore::at(directory.path().join("state"));
        Self { root: root.canonicalize().expect("a path"), _directory: directory, store }
    }

    /// Waits, because a program that another test starts holds all locks of this process from
    /// fork(2) to execve(2).
    fn writer(&self) -> JournalWriter {
        self.store.lock_waiting().expect("locked")
    }

    fn write(&self, files: &PersistFiles) -> Result<WrittenFiles, PersistError> {
        files.write(&mut self.writer(), &self.root)
    }

    fn unpersist(&self) -> Result<Option<RemovedFiles>, PersistError> {
        unpersist(&mut self.writer())
    }

    fn standing_files(&self) -> StandingFiles {
        StandingFiles::of(&self.store.read().expect("a journal"))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// All files, links and directories below the root, with their content.
    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut tree = BTreeMap::new();
        walk(&self.root, &mut tree);
        tree
    }
}

fn walk(directory: &Path, tree: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        let content = if path.is_symlink() {
            format!("-> {}", std::fs::read_link(&path).expect("a link").display())
        } else if path.is_dir() {
            walk(&path, tree);
            "directory".to_owned()
        } else {
            std::fs::read_to_string(&path).expect("read")
        };
        tree.insert(path, content);
    }
}

fn first() -> PersistFiles {
    let (settings, surroundings) = (example(), surroundings(&["eth0", "eth0.5"]));
    PersistFiles::of(&target(&settings, &surroundings)).expect("files")
}

/// The files of a later tune, of another interface and without interrupts.
fn second() -> PersistFiles {
    let (settings, surroundings) = (
        [sysctl("net.core.rmem_max", "1"), (rps("eth1", 0), SettingValue::new("3"))],
        surroundings(&["eth1"]),
    );
    PersistFiles::of(&PersistTarget { tune: 4, ..target(&settings, &surroundings) }).expect("files")
}

fn assert_written(root: &Root, files: &PersistFiles) {
    let tree = root.tree();
    for file in &files.files {
        let expected = match &file.content {
            FileContent::Text(text) => text.clone(),
            FileContent::Link(target) => format!("-> {target}"),
        };
        assert_eq!(tree.get(&root.path(&file.path)), Some(&expected), "{}", file.path);
    }
    let written_files =
        tree.iter().filter(|(path, content)| *content != "directory" && !path.ends_with("99-theirs.conf"));
    assert_eq!(written_files.count(), files.files.len(), "{tree:#?}");
}

#[test]
fn later_tunes_replace_persisted_files_and_unpersist_removes_all() {
    let root = Root::new();
    let before = root.tree();
    let report = root.write(&first()).expect("written");
    assert_eq!(report.written.len(), first().files.len());
    assert_written(&root, &first());
    let second_report = root.write(&first()).expect("written");
    assert_eq!((second_report.written.len(), second_report.already.len()), (0, first().files.len()));
    let replacement = root.write(&second()).expect("written");
    assert!(
        replacement.removed.iter().any(|path| path.contains("irqbalance.service.wants")),
        "{replacement:?}"
    );
    assert_eq!(replacement.kept, Vec::<String>::new());
    assert_written(&root, &second());
    assert_eq!(root.standing_files().tune, Some(4));
    let removal = root.unpersist().expect("removed").expect("some");
    assert_eq!(removal.kept, Vec::<String>::new());
    assert_eq!(root.tree(), before);
    assert_eq!(root.unpersist().expect("removed"), None);
}

#[test]
fn files_below_other_roots_stay_until_unpersist() {
    let root = Root::new();
    let image = root.path("mnt/image");
    std::fs::create_dir_all(&image).expect("made");
    let before = root.tree();
    root.write(&first()).expect("written");
    let on_host = root.tree();
    let in_image = second().write(&mut root.writer(), &image).expect("written");
    assert_eq!((in_image.written.len(), in_image.removed.len()), (second().files.len(), 0));
    assert!(on_host.iter().all(|entry| root.tree().get(entry.0) == Some(entry.1)));
    // Fewer files on the host again do not empty the image.
    let removed = root.write(&second()).expect("written").removed;
    assert!(removed.iter().all(|path| !path.starts_with(image.to_str().expect("text"))), "{removed:?}");
    assert_eq!(root.standing_files().paths().count(), 2 * second().files.len());
    root.unpersist().expect("removed").expect("some");
    assert_eq!(root.tree(), before);
}

#[test]
fn files_of_other_programs_are_neither_replaced_nor_removed() {
    let root = Root::new();
    let foreign_file = root.path(SYSCTL_FILE);
    std::fs::write(&foreign_file, "net.core.rmem_max = 9\n").expect("written");
    let before = root.tree();
    let error = root.write(&first()).expect_err("refused");
    assert_eq!(
        error.to_string(),
        format!(
            "{}: not written by linerate as it is, and so not replaced; move it away",
            foreign_file.display()
        )
    );
    assert_eq!(root.tree(), before);
    assert_eq!(root.standing_files(), StandingFiles::default());
    std::fs::remove_file(&foreign_file).expect("removed");
    root.write(&first()).expect("written");
    std::fs::write(&foreign_file, "net.core.rmem_max = 9\n").expect("written");
    let error = root.write(&second()).expect_err("refused").to_string();
    assert!(error.contains("not written by linerate"), "{error}");
    let removal = root.unpersist().expect("removed").expect("some");
    assert_eq!(removal.kept, [foreign_file.display().to_string()]);
    assert_eq!(root.tree(), before);
}

#[test]
fn symlinked_directories_are_refused_before_any_file_is_written() {
    let root = Root::new();
    std::fs::create_dir(root.path("elsewhere")).expect("made");
    std::os::unix::fs::symlink("../elsewhere", root.path("etc/systemd")).expect("linked");
    let before = root.tree();
    let error = root.write(&first()).expect_err("refused");
    assert_eq!(
        error.to_string(),
        format!(
            "{} is a symbolic link, and nothing is written through one",
            root.path("etc/systemd").display()
        )
    );
    assert_eq!(root.tree(), before);
}
