//! Persisted settings: applied by the programs that read sysctls at boot, and reapplied on a host
//! with interfaces.

use std::path::{Path, PathBuf};

use linerate_host::setting::QueueDirection;
use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::Lab;
use linerate_testkit::skip;
use linerate_tune::journal::StateStore;
use linerate_tune::persist::{
    self, DOCUMENT_FILE, FileContent, InitSystem, PersistFiles, PersistTarget, PersistedSettings,
    SYSCTL_FILE, SettingContext,
};

/// The path that systemd uses, and the path in the udev rules of Debian and others.
const SYSTEMD_SYSCTL: [&str; 2] = ["/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl"];

fn lab(test: &str) -> Option<Lab> {
    Lab::builder().queues(2).start().map_err(|error| skip(test, error.to_string())).ok()
}

fn host(lab: &Lab) -> Host {
    Host::live_with_sys(lab.receiver().sys_path().expect("a sysfs"))
}

fn on_receiver<T: Send>(lab: &Lab, work: impl FnOnce() -> T + Send) -> T {
    lab.receiver().run(work).expect("a host that runs")
}

fn files(settings: &[(Setting, SettingValue)], surroundings: &SettingContext) -> PersistFiles {
    let target = PersistTarget {
        settings,
        surroundings,
        goal: "udp-server",
        tune: 1,
        program: "/usr/local/bin/linerate",
        state_dir: "/var/lib/linerate",
        init: InitSystem::Systemd,
    };
    PersistFiles::of(&target).expect("files")
}

/// Writes one of the files, unchanged, to a directory.
fn write_file(files: &PersistFiles, path: &str, directory: &Path) -> PathBuf {
    let file = files.files.iter().find(|file| file.path == path).expect("among them");
    let FileContent::Text(text) = &file.content else { panic!("a link") };
    let path = directory.join("file");
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn boot_time_sysctl_programs_set_all_persisted_sysctls() {
    let test = "boot_time_sysctl_programs_set_all_persisted_sysctls";
    let Some(lab) = lab(test) else { return };
    let program =
        |name: &str, arguments: &[&str]| on_receiver(&lab, || Host::live().program(name, arguments, ""));
    // A name with a dot, such as that of a VLAN interface.
    if let Err(error) = program("ip", &["link", "add", "x.5-y", "type", "veth", "peer", "name", "z"]) {
        return skip(test, error.to_string());
    }
    let names =
        ["net.ipv4.conf.eth0.accept_local", "net.ipv4.conf.x/5-y.accept_local", "net.ipv4.ip_default_ttl"];
    let settings: Vec<_> = names
        .iter()
        .zip(["1", "1", "77"])
        .map(|(name, to)| (Setting::sysctl(*name), SettingValue::new(to)))
        .collect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = write_file(&files(&settings, &SettingContext::default()), SYSCTL_FILE, directory.path());
    let path = path.to_str().expect("text");
    let host = host(&lab);
    let systemd = SYSTEMD_SYSCTL.iter().find(|program| Path::new(program).exists());
    let readers = [("sysctl", vec!["-p", path]), (systemd.copied().unwrap_or("systemd-sysctl"), vec![path])];
    for (reader, arguments) in readers {
        let before: Vec<_> = on_receiver(&lab, || {
            settings.iter().map(|(setting, _)| setting.read(&host).expect("read")).collect()
        });
        assert!(
            settings.iter().zip(&before).all(|((setting, to), now)| !setting.same(to, now)),
            "{before:?}"
        );
        if let Err(error) = program(reader, &arguments) {
            skip(test, error.to_string());
            continue;
        }
        on_receiver(&lab, || {
            for ((setting, to), before) in settings.iter().zip(&before) {
                assert_eq!(setting.read(&host).expect("read"), *to, "{setting} by {reader}");
                setting.write(&host, before).expect("restored");
            }
        });
    }
}

#[test]
fn persisted_settings_are_reapplied_on_a_host_with_interfaces() {
    let test = "persisted_settings_are_reapplied_on_a_host_with_interfaces";
    let Some(lab) = lab(test) else { return };
    let host = host(&lab);
    let queue = |direction, queue| Setting::QueueCpus { interface: "eth0".into(), direction, queue };
    let settings = [
        (queue(QueueDirection::Receive, 0), SettingValue::new("2")),
        (queue(QueueDirection::Receive, 1), SettingValue::new("1")),
        (queue(QueueDirection::Transmit, 0), SettingValue::new("1")),
        (Setting::sysctl("net.ipv4.ip_default_ttl"), SettingValue::new("77")),
    ];
    let directory = tempfile::tempdir().expect("a directory");
    let store = StateStore::at(directory.path().join("state"));
    on_receiver(&lab, || {
        let surroundings = SettingContext::observe(&host, &settings).expect("observed");
        let path = write_file(&files(&settings, &surroundings), DOCUMENT_FILE, directory.path());
        let document = PersistedSettings::parse(&std::fs::read_to_string(path).expect("read"), DOCUMENT_FILE)
            .expect("parsed");
        let reapply = |only| persist::reapply(&store, &host, &document, only, Vec::new()).expect("done");
        let result = reapply(Some("eth0"));
        assert!(!result.has_failures() && result.settings.len() == 3, "{result:?}");
        for (setting, to) in &settings[..3] {
            assert!(setting.same(to, &setting.read(&host).expect("read")), "{setting}");
        }
        assert_eq!(reapply(None).tune, None);
        settings[0].0.write(&host, &SettingValue::new("0")).expect("written");
        let result = reapply(None);
        let changed_lines: Vec<_> = result
            .settings
            .iter()
            .filter(|setting| setting.outcome != persist::ReapplyOutcome::Already)
            .map(ToString::to_string)
            .collect();
        assert_eq!((result.tune, changed_lines.len()), (Some(2), 1), "{changed_lines:?}");
    });
}
