use linerate_host::HostRecording;
use linerate_host::recording::RecordedEntry;
use linerate_host::setting::QueueDirection;

use super::*;
use crate::persist::tests::target;
use crate::persist::{DOCUMENT_FILE, FileContent, PersistFiles, SettingContext};

/// A host with a NIC of two queues, with this name, at this place of the device tree, and with
/// interrupts from `first_irq` on.
fn recording(name: &str, place: &str, first_irq: u32) -> HostRecording {
    let mut recording = HostRecording::new();
    let mut file = |path: String, content: &str| recording.insert_file(path, content);
    let base = format!("/sys/class/net/{name}");
    file("/proc/sys/kernel/random/boot_id".into(), "0d7a4b4e-0000-0000-0000-000000000000\n");
    file("/proc/sys/net/netfilter/nf_conntrack_max".into(), "65536\n");
    file("/proc/1/comm".into(), "init\n");
    file("/sys/devices/system/cpu/online".into(), "0-3\n");
    for (path, content) in
        [("ifindex", "2\n"), ("address", "02:00:00:00:00:07\n"), ("dev_port", "0\n"), ("operstate", "up\n")]
    {
        file(format!("{base}/{path}"), content);
    }
    file(format!("/calls/ethtool/{name}/driver.json"), r#"{"name": "ixgbe"}"#);
    let mut table = "  CPU0 CPU1 CPU2 CPU3\n".to_owned();
    for queue in 0..2 {
        let irq = first_irq + queue;
        table.push_str(&format!("{irq}: 0 0 0 0 PCI-MSI {queue}-edge {name}-TxRx-{queue}\n"));
        file(format!("{base}/queues/rx-{queue}/rps_cpus"), "0\n");
        file(format!("{base}/queues/tx-{queue}/xps_cpus"), "0\n");
        file(format!("{base}/device/msi_irqs/{irq}"), "msix\n");
        file(format!("/proc/irq/{irq}/smp_affinity"), "f\n");
        file(format!("/proc/irq/{irq}/{name}-TxRx-{queue}/x"), "");
    }
    file("/proc/interrupts".into(), &table);
    recording.insert(base.clone(), RecordedEntry::Link(format!("../../devices/{place}/net/{name}")));
    recording.insert(format!("{base}/device"), RecordedEntry::Link(format!("../../../{place}")));
    recording
}

const PLACE: &str = "pci0000:00/0000:00:02.0";

fn rps(interface: &str) -> Setting {
    Setting::QueueCpus { interface: interface.into(), direction: QueueDirection::Receive, queue: 1 }
}

fn irq(number: u32, interface: &str) -> Setting {
    Setting::IrqAffinity { irq: number, action: format!("{interface}-TxRx-1") }
}

fn conntrack() -> Setting {
    Setting::sysctl("net.netfilter.nf_conntrack_max")
}

/// The document of a tune on the host with `eth0`.
fn document() -> PersistedSettings {
    let host = Host::rehearsal(recording("eth0", PLACE, 100));
    let settings = [
        (conntrack(), SettingValue::new("1048576")),
        (irq(101, "eth0"), SettingValue::new("2")),
        (rps("eth0"), SettingValue::new("c")),
    ];
    let surroundings = SettingContext::observe(&host, &settings).expect("there");
    let files = PersistFiles::of(&target(&settings, &surroundings)).expect("files");
    let file = files.files.iter().find(|file| file.path == DOCUMENT_FILE).expect("written");
    let FileContent::Text(text) = &file.content else { panic!("a link") };
    PersistedSettings::parse(text, DOCUMENT_FILE).expect("parsed")
}

fn reapply_document(host: &Host, store: &StateStore, only: Option<&str>) -> ReapplyResult {
    reapply(store, host, &document(), only, vec!["linerate".into(), "tune".into(), "reapply".into()])
        .expect("done")
}

fn lines(result: &ReapplyResult) -> Vec<String> {
    result.settings.iter().map(ToString::to_string).collect()
}

fn store() -> (tempfile::TempDir, StateStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = StateStore::at(directory.path().join("state"));
    (directory, store)
}

fn current_value(host: &Host, setting: &Setting) -> String {
    setting.read(host).expect("read").to_string()
}

#[test]
fn reapply_finds_renamed_devices_and_renumbered_interrupts() {
    let (_directory, store) = store();
    let host = Host::rehearsal(recording("lan0", PLACE, 140));
    let result = reapply_document(&host, &store, None);
    assert_eq!(
        lines(&result),
        [
            "net.netfilter.nf_conntrack_max: 65536 -> 1048576",
            "affinity of IRQ 141 (lan0-TxRx-1): f -> 2",
            "lan0 rx-1/rps_cpus: 0 -> c"
        ]
    );
    assert!(!result.has_failures());
    assert_eq!(result.tune, Some(1));
    let journal = store.read().expect("a journal");
    let tune = &journal.tunes()[0];
    assert_eq!((tune.begun.goal.as_str(), tune.is_unfinished()), (GOAL, false));
    assert_eq!(tune.begun.devices[0].interface, "lan0");
}

#[test]
fn reapply_of_values_in_effect_writes_no_journal_entry() {
    let (_directory, store) = store();
    let host = Host::rehearsal(recording("eth0", PLACE, 100));
    reapply_document(&host, &store, None);
    let before = store.read().expect("a journal").entries.len();
    let result = reapply_document(&host, &store, None);
    assert_eq!(result.tune, None);
    assert!(result.settings.iter().all(|setting| setting.outcome == ReapplyOutcome::Already), "{result:?}");
    assert_eq!(store.read().expect("a journal").entries.len(), before);
}

#[test]
fn missing_device_is_no_failure_and_other_settings_are_applied() {
    let (_directory, store) = store();
    let mut recording = recording("eth0", "pci0000:00/0000:00:09.0", 100);
    recording.insert_file("/sys/class/net/eth0/address", "02:00:00:00:00:99\n");
    let host = Host::rehearsal(recording);
    let result = reapply_document(&host, &store, None);
    let why =
        "no interface is attached at pci0000:00/0000:00:02.0, and none has the address 02:00:00:00:00:07";
    assert_eq!(
        lines(&result),
        [
            format!("affinity of IRQ 101 (eth0-TxRx-1): not set, {why}"),
            format!("eth0 rx-1/rps_cpus: not set, {why}"),
            "net.netfilter.nf_conntrack_max: 65536 -> 1048576".to_owned(),
        ]
    );
    assert!(!result.has_failures());
    assert_eq!(current_value(&host, &rps("eth0")), "0");
}

#[test]
fn reapply_for_one_interface_sets_only_its_settings() {
    let (_directory, store) = store();
    let host = Host::rehearsal(recording("eth0", PLACE, 100));
    let result = reapply_document(&host, &store, Some("eth0"));
    assert_eq!(result.settings.len(), 2);
    assert_eq!(
        (current_value(&host, &rps("eth0")), current_value(&host, &conntrack())),
        ("0000000c".into(), "65536".into())
    );
    assert_eq!(reapply_document(&host, &store, Some("eth1")), ReapplyResult::default());
}

#[test]
fn refused_setting_is_reported_and_other_settings_are_applied() {
    let (_directory, store) = store();
    let mut recording = recording("eth0", PLACE, 100);
    let failure = serde_json::from_str(r#"{"errno": 13}"#).expect("a failure");
    recording.insert("/proc/sys/net/netfilter/nf_conntrack_max", RecordedEntry::Failed(failure));
    let host = Host::rehearsal(recording);
    let result = reapply_document(&host, &store, None);
    assert!(result.has_failures());
    let line = &lines(&result)[0];
    assert!(line.starts_with("net.netfilter.nf_conntrack_max: not set to 1048576: "), "{line}");
    assert_eq!(current_value(&host, &rps("eth0")), "0000000c");
}

/// A host with irqbalance and an interrupt in place.
fn with_irqbalance() -> HostRecording {
    let mut recording = recording("eth0", PLACE, 100);
    let stat = "612 (irqbalance) S 1 612 612 0 -1 4194304 1 0 0 0 5 3 0 0 20 0 2 0 1234 8 9 10\n";
    recording.insert_file("/proc/irq/101/smp_affinity", "2\n");
    recording.insert_file("/proc/612/comm", "irqbalance\n");
    recording.insert_file("/proc/612/cmdline", "/usr/sbin/irqbalance\0--foreground\0");
    recording.insert_file("/proc/612/stat", stat);
    recording
}

#[test]
fn interrupt_in_place_that_irqbalance_would_move_is_a_failure() {
    let (_directory, store) = store();
    let result = reapply_document(&Host::rehearsal(with_irqbalance()), &store, Some("eth0"));
    let line = &lines(&result)[0];
    let start =
        "affinity of IRQ 101 (eth0-TxRx-1): not set to 2: it has this value now, but irqbalance would";
    assert!(line.starts_with(start) && result.has_failures(), "{line}");
}

#[test]
fn settings_that_reset_the_link_are_made_first() {
    let (_directory, store) = store();
    let mut recording = recording("eth0", PLACE, 100);
    let channels = r#"{ "combined": 1, "combined_max": 2 }"#;
    recording.insert_file("/calls/ethtool/eth0/channels.json", channels);
    let mut document = document();
    document.settings.push(PersistedSetting {
        setting: Setting::Channels { interface: "eth0".into() },
        value: SettingValue::new("combined 2"),
        vector: None,
    });
    let result = reapply(&store, &Host::rehearsal(recording), &document, None, Vec::new()).expect("done");
    let lines = lines(&result);
    assert_eq!(
        (lines[0].as_str(), lines.len()),
        ("channels of eth0: combined 1 -> combined 2", 4),
        "{lines:?}"
    );
}

#[test]
fn reapply_ends_its_tunes_of_earlier_boots_whose_values_are_gone() {
    let in_boot = |boot: &str, rps: &str| {
        let mut recording = recording("eth0", PLACE, 100);
        recording.insert_file("/proc/sys/kernel/random/boot_id", format!("{boot}\n"));
        recording.insert_file("/sys/class/net/eth0/queues/rx-1/rps_cpus", format!("{rps}\n"));
        Host::rehearsal(recording)
    };
    // In the second case another program of the new boot sets the same mask.
    for (rps, expected_tunes) in [("0", &[2][..]), ("c", &[1, 2])] {
        let (_directory, store) = store();
        for host in [in_boot("one", "0"), in_boot("two", rps)] {
            assert!(!reapply_document(&host, &store, None).has_failures());
            assert_eq!(current_value(&host, &self::rps("eth0")).trim_start_matches('0'), "c");
        }
        let tunes = store.read().expect("a journal").tunes();
        let open_tunes: Vec<u64> =
            tunes.iter().filter(|tune| tune.is_open()).map(|tune| tune.begun.tune).collect();
        assert_eq!(open_tunes, expected_tunes, "{rps}");
    }
}

#[test]
fn restarted_irqbalance_gets_its_interrupt_bans_again() {
    let (_directory, store) = store();
    let mut recording = with_irqbalance();
    let setup = r#"{"interval_seconds": 10, "banned": [24]}"#;
    recording.insert_file("/calls/irqbalance/612/setup.json", setup);
    let host = Host::rehearsal(recording);
    let result = reapply_document(&host, &store, Some("eth0"));
    assert_eq!(
        lines(&result),
        [
            "affinity of IRQ 101 (eth0-TxRx-1): is 2 already",
            "interrupts that irqbalance (612) leaves alone: 24 -> 24,101",
            "eth0 rx-1/rps_cpus: 0 -> c"
        ]
    );
}
