//! A lab's receiver, whose settings are changed.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use linerate_host::setting::{NapiKnob, NftFamily, Offload, QueueDirection};
use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::{Lab, LabChild};
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::{JournalWriter, StateStore};
use linerate_tune::status::JournalStatus;
use linerate_tune::transaction::{UndoReport, undo};

pub(crate) const INTERFACE: &str = "eth0";

pub(crate) struct Scene {
    lab: Lab,
    pub(crate) host: Host,
    directory: tempfile::TempDir,
}

/// The changes of a tune, in order. The channels, which remove and add queues, are in the middle.
pub(crate) fn changes() -> Vec<(Setting, SettingValue)> {
    let interface = || INTERFACE.to_owned();
    let queue = |direction, queue| Setting::QueueCpus { interface: interface(), direction, queue };
    let table = "linerate_test";
    let rules = format!(
        "table inet {table} {{\n\tchain c {{\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\tudp dport 53 notrack\n\t}}\n}}"
    );
    let mut changes = vec![
        (queue(QueueDirection::Receive, 0), SettingValue::new("3")),
        (Setting::sysctl("net.ipv4.conf.eth0.rp_filter"), SettingValue::new("2")),
        (
            Setting::Offload { interface: interface(), offload: Offload::GenericReceive },
            SettingValue::new("off"),
        ),
        (Setting::Channels { interface: interface() }, SettingValue::new("rx 1 tx 1")),
        (
            Setting::Napi { interface: interface(), knob: NapiKnob::GroFlushTimeout },
            SettingValue::new("20000"),
        ),
        (Setting::sysctl("net.ipv4.udp_early_demux"), SettingValue::new("0")),
        // The same sysctl again, as in a run of `ladder`.
        (Setting::sysctl("net.ipv4.conf.eth0.rp_filter"), SettingValue::new("1")),
    ];
    if Host::live().program("nft", &["--version"], "").is_ok() {
        changes.push((
            Setting::NftTable { family: NftFamily::Inet, table: table.to_owned() },
            SettingValue::new(rules),
        ));
    }
    changes
}

/// All compared settings: those that are changed, and the CPU masks of all queues.
fn compared_settings() -> Vec<Setting> {
    let queues = [QueueDirection::Receive, QueueDirection::Transmit].into_iter().flat_map(|direction| {
        (0..2).map(move |queue| Setting::QueueCpus { interface: INTERFACE.to_owned(), direction, queue })
    });
    changes().into_iter().map(|(setting, _)| setting).chain(queues).collect()
}

impl Scene {
    /// Creates a lab, or returns the reason why that is not possible.
    pub(crate) fn new() -> Result<Self, String> {
        let lab = Lab::builder().start().map_err(|error| error.to_string())?;
        let sys = lab.receiver().sys_path().map_err(|error| error.to_string())?;
        let host = Host::live_with_sys(sys);
        let directory = tempfile::tempdir().expect("a directory");
        let scene = Self { lab, host, directory };
        // Masks of queues that a change of channels removes, so that the tests see whether they
        // return.
        for (direction, mask) in [(QueueDirection::Receive, "1"), (QueueDirection::Transmit, "2")] {
            let setting = Setting::QueueCpus { interface: INTERFACE.to_owned(), direction, queue: 1 };
            let result = scene.inside(|| setting.write(&scene.host, &SettingValue::new(mask)));
            result.map_err(|error| format!("no second queue: {error}"))?;
        }
        Ok(scene)
    }

    /// Runs `work` on the receiver.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.lab.receiver().run(work).expect("the host runs")
    }

    pub(crate) fn store(&self) -> StateStore {
        StateStore::at(self.directory.path().join("state"))
    }

    pub(crate) fn delete_journal(&self) {
        match std::fs::remove_dir_all(self.store().directory()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    pub(crate) fn lock(&self) -> JournalWriter {
        self.store().lock().expect("locked")
    }

    pub(crate) fn status(&self) -> JournalStatus {
        self.inside(|| JournalStatus::of(&self.store().read().expect("read"), &self.host))
    }

    pub(crate) fn undo(&self) -> UndoReport {
        self.inside(|| undo(&mut self.lock(), &self.host, None, Asked).expect("undone"))
    }

    /// The value of every compared setting, or the error of reading it.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let read = |setting: Setting| {
            let value =
                setting.read(&self.host).map_or_else(|error| error.to_string(), |value| value.to_string());
            (setting.to_string(), value)
        };
        self.inside(|| compared_settings().into_iter().map(read).collect())
    }

    /// Starts this program in a role on the receiver.
    pub(crate) fn start(&self, wrapper: &[&str], role: &[&str]) -> LabChild {
        let program = std::env::current_exe().expect("a program");
        let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).arg("role").args(role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.lab.receiver().spawn(command).expect("started")
    }

    pub(crate) fn directory(&self) -> String {
        self.store().directory().to_str().expect("text").to_owned()
    }
}
