//! Persisted sysctls, applied by the programs that read them at boot.

use std::path::Path;

use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::Lab;
use linerate_testkit::skip;
use linerate_tune::persist::{FileContent, InitSystem, PersistFiles, PersistTarget, SettingContext};

/// The path that systemd uses, and the path in the udev rules of Debian and others.
const SYSTEMD_SYSCTL: [&str; 2] = ["/usr/lib/systemd/systemd-sysctl", "/lib/systemd/systemd-sysctl"];

/// The only file for these sysctls.
fn sysctl_file(settings: &[(Setting, SettingValue)]) -> String {
    let target = PersistTarget {
        settings,
        surroundings: &SettingContext::default(),
        goal: "udp-server",
        tune: 1,
        program: "/usr/local/bin/linerate",
        state_dir: "/var/lib/linerate",
        init: InitSystem::Systemd,
    };
    match PersistFiles::of(&target).expect("files").files.remove(0).content {
        FileContent::Text(text) => text,
        FileContent::Link(_) => panic!("a link"),
    }
}

#[test]
fn boot_time_sysctl_programs_set_all_persisted_sysctls() {
    let test = "boot_time_sysctl_programs_set_all_persisted_sysctls";
    let lab = match Lab::builder().start() {
        Ok(lab) => lab,
        Err(error) => return skip(test, error),
    };
    let receiver = lab.receiver();
    let program = |name: &str, arguments: &[&str]| {
        receiver.run(|| Host::live().program(name, arguments, "")).expect("a host that runs")
    };
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
    let path = directory.path().join("file");
    std::fs::write(&path, sysctl_file(&settings)).expect("written");
    let path = path.to_str().expect("text");
    let host = Host::live_with_sys(receiver.sys_path().expect("a sysfs"));
    let systemd = SYSTEMD_SYSCTL.iter().find(|program| Path::new(program).exists());
    let readers = [("sysctl", vec!["-p", path]), (systemd.copied().unwrap_or("systemd-sysctl"), vec![path])];
    for (reader, arguments) in readers {
        let read = || settings.iter().map(|(setting, _)| setting.read(&host).expect("read")).collect();
        let before: Vec<SettingValue> = receiver.run(read).expect("a host that runs");
        assert!(
            settings.iter().zip(&before).all(|((setting, to), now)| !setting.same(to, now)),
            "{before:?}"
        );
        if let Err(error) = program(reader, &arguments) {
            skip(test, error.to_string());
            continue;
        }
        let check_and_restore = || {
            for ((setting, to), before) in settings.iter().zip(&before) {
                assert_eq!(setting.read(&host).expect("read"), *to, "{setting} by {reader}");
                setting.write(&host, before).expect("restored");
            }
        };
        receiver.run(check_and_restore).expect("a host that runs");
    }
}
