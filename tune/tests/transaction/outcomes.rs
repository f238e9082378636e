//! Reports about changes that are refused, that others changed, or that are gone.

use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{Host, HostRecording, Setting, SettingError, SettingValue};
use linerate_tune::journal::JournalRecord;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::record::{UndoDeadline, UndoOutcome, UndoReason};
use linerate_tune::plan::PlannedChange;
use linerate_tune::status::{SettingState, TuneState};
use linerate_tune::transaction::{
    ChangeOutcome, ChangeTarget, TuneError, TuneStart, TuneTransaction, boot_seconds, confirm, due, undo,
    undo_overdue,
};
use linerate_tune::{NamedDevice, TunePlan};

use crate::fake::{self, Fake, Manner, Scratch, begin, setting, status, value};

fn tune(scratch: &Scratch, target: &impl ChangeTarget, start: TuneStart<'_>, setting: &Setting, to: &str) {
    fake::tune(scratch, target, start, &[(setting.clone(), value(to))]).expect("made");
}

#[test]
fn refused_write_reports_the_host_error_and_keeps_the_old_value() {
    for (manner, words) in [
        (Manner::Refuses(libc::EPERM), "Operation not permitted"),
        (Manner::Refuses(libc::EBUSY), "Device or resource busy"),
        (Manner::Refuses(libc::EINVAL), "Invalid argument"),
        (Manner::Ignores, "wrote '5', it still reads '0'"),
        (Manner::HalfObeys, "wrote '5', it reads 'half-5' now"),
    ] {
        let (fake, scratch) = (Fake::new(2), Scratch::new());
        fake.behave(&setting(1), manner);
        let mut writer = scratch.lock();
        let mut transaction = TuneTransaction::begin(&mut writer, &fake, begin()).expect("begun");
        transaction.change(&fake, &setting(0), &value("5")).expect("made");
        let result = transaction.change(&fake, &setting(1), &value("5")).expect("journalled");
        let ChangeOutcome::Refused { why } = result else { panic!("{result:?}") };
        assert!(why.contains(words), "{why}");
        assert_eq!(fake.now(&setting(1)), "0");
        transaction.end(Some(why.clone())).expect("ended");
        drop(writer);
        let status = status(&scratch, &fake);
        assert_eq!(status.tunes[0].state, TuneState::BrokeOff { why: why.clone() });
        assert!(!status.tunes[0].can_resume, "it has no plan");
        assert_eq!(status.tunes[0].settings[0].state, SettingState::InEffect);
        assert_eq!(status.tunes[0].settings[1].state, SettingState::NotMade { why: Some(why) });
        let report = undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");
        assert!(!report.has_failures() && !report.has_skipped());
        assert_eq!(fake.now(&setting(0)), "0");
    }
}

#[test]
fn tune_stays_open_until_undo_can_restore_its_settings() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    fake.behave(&setting(0), Manner::ObeysOnce);
    tune(&scratch, &fake, begin(), &setting(0), "5");
    let report = undo(&mut scratch.lock(), &fake, None, Asked).expect("journalled");
    assert!(report.has_failures());
    assert_eq!(status(&scratch, &fake).tunes[0].state, TuneState::UndoRefused);
    fake.behave(&setting(0), Manner::Obeys);
    let report = undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");
    assert_eq!(report.settings[0].outcome, UndoOutcome::Restored);
    assert!(status(&scratch, &fake).tunes.is_empty());
    let error = undo(&mut scratch.lock(), &fake, Some(1), Asked).expect_err("undone already");
    assert!(matches!(error, TuneError::UndoneAlready { tune: 1 }));
}

#[test]
fn values_that_differ_from_the_plan_are_not_overwritten() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, &fake, begin()).expect("begun");
    fake.set(&setting(0), "9");
    let error =
        transaction.change_from(&fake, &setting(0), &value("0"), &value("5")).expect_err("the value changed");
    let line = "net.fake.n0: it was '0' and is '9' now: somebody changed it since, make a new plan";
    assert_eq!(error.to_string(), line);
    assert_eq!(
        transaction.change_from(&fake, &setting(0), &value("0"), &value("9")).ok(),
        Some(ChangeOutcome::Already)
    );
    transaction.change(&fake, &setting(0), &value("5")).expect("made");
    fake.set(&setting(0), "6");
    assert!(transaction.change(&fake, &setting(0), &value("7")).is_err());
    transaction.end(Some(error.to_string())).expect("ended");
    let report = undo(&mut writer, &fake, None, Asked).expect("undone");
    assert_eq!(report.settings[0].outcome, UndoOutcome::Drift { found: value("6") });
    assert_eq!(fake.now(&setting(0)), "6");
}

#[test]
fn undoing_an_older_tune_passes_its_original_values_to_the_newer_tune() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    for to in ["5", "6"] {
        tune(&scratch, &fake, begin(), &setting(0), to);
    }
    assert_eq!(status(&scratch, &fake).tunes[0].settings[0].state, SettingState::ChangedBy { tune: 2 });
    let report = undo(&mut scratch.lock(), &fake, Some(1), Asked).expect("undone");
    assert_eq!(report.settings[0].outcome, UndoOutcome::Covered { by: 2 });
    assert_eq!(fake.now(&setting(0)), "6");
    undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");
    assert_eq!(fake.now(&setting(0)), "0");
}

#[test]
fn reboot_ends_a_tune_and_undo_reports_the_earlier_boot() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    tune(&scratch, &fake, begin(), &setting(0), "5");
    fake.reboot();
    fake.set(&setting(0), "0");
    let status = status(&scratch, &fake);
    assert_eq!(status.tunes[0].earlier_boot, Some(true));
    assert_eq!(status.tunes[0].settings[0].state, SettingState::EndedByBoot);
    let report = undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");
    assert!(report.earlier_boot && report.settings[0].outcome == UndoOutcome::Already);
}

#[test]
fn unconfirmed_tune_blocks_other_tunes_and_is_undone_after_its_deadline() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    let tune_until = |boot_seconds| {
        let until = Some(UndoDeadline::Confirmed { boot_seconds });
        tune(&scratch, &fake, TuneStart { until, ..begin() }, &setting(0), "5");
    };
    tune_until(boot_seconds() + 1000);
    assert!(undo_overdue(&mut scratch.lock(), &fake).expect("checked").is_empty());
    let error = TuneTransaction::begin(&mut scratch.lock(), &fake, begin()).expect_err("a tune waits");
    assert!(matches!(error, TuneError::Pending { tune: 1 }));
    assert_eq!(confirm(&mut scratch.lock(), &fake, None).expect("in time"), 1);
    assert!(matches!(confirm(&mut scratch.lock(), &fake, None), Err(TuneError::NothingToConfirm)));
    undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");

    tune_until(boot_seconds());
    assert!(status(&scratch, &fake).tunes[0].overdue.is_some());
    let error = confirm(&mut scratch.lock(), &fake, None).expect_err("too late");
    assert!(matches!(error, TuneError::TooLate { tune: 2 }), "{error}");
    let reports = undo_overdue(&mut scratch.lock(), &fake).expect("undone");
    assert_eq!((reports.len(), fake.now(&setting(0)).as_str()), (1, "0"));
}

#[test]
fn tune_with_a_refused_undo_cannot_be_confirmed() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    fake.behave(&setting(0), Manner::ObeysOnce);
    let until = Some(UndoDeadline::Confirmed { boot_seconds: boot_seconds() + 1000 });
    tune(&scratch, &fake, TuneStart { until, ..begin() }, &setting(0), "5");
    undo(&mut scratch.lock(), &fake, None, Asked).expect("journalled");
    let error = confirm(&mut scratch.lock(), &fake, None).expect_err("half undone");
    assert!(matches!(error, TuneError::TooLate { tune: 1 }), "{error}");
}

#[test]
fn a_tune_is_due_after_its_deadline_or_if_its_maker_is_gone() {
    use UndoDeadline::{Confirmed, Maker, Time};
    use UndoReason::{Died, Expired, Unconfirmed};
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    tune(&scratch, &fake, begin(), &setting(0), "5");
    let mut recorded = scratch.lock().tunes()[0].clone();
    let (boot, end) = (recorded.begun.boot.clone(), recorded.ended.clone());
    for (until, has_ended, maker_runs, expected) in [
        (Time { boot_seconds: 10 }, true, false, Some(Expired)),
        (Confirmed { boot_seconds: 10 }, true, true, Some(Unconfirmed)),
        (Confirmed { boot_seconds: 11 }, true, false, None),
        (Confirmed { boot_seconds: 11 }, false, true, None),
        (Confirmed { boot_seconds: 11 }, false, false, Some(Died)),
        (Maker {}, true, true, None),
        (Maker {}, true, false, Some(Died)),
    ] {
        recorded.begun.until = Some(until);
        recorded.ended = end.clone().filter(|_| has_ended);
        assert_eq!(due(&recorded, &boot, 10, maker_runs), expected, "{until:?} {has_ended} {maker_runs}");
    }
    assert_eq!(due(&recorded, "boot-2", 10, true), Some(Died));
}

/// The files of a host with an interface and these other files, each of one line.
fn interface_files<const COUNT: usize>(
    (name, index): (&str, u32),
    files: [(String, &str); COUNT],
) -> impl Iterator<Item = (String, String)> {
    let address = "02:00:00:00:00:01".to_owned();
    [
        (format!("/sys/class/net/{name}/ifindex"), index.to_string()),
        (format!("/sys/class/net/{name}/address"), address),
        ("/proc/sys/kernel/random/boot_id".to_owned(), "boot-1".to_owned()),
    ]
    .into_iter()
    .chain(files.map(|(path, text)| (path, text.to_owned())))
    .map(|(path, text)| (path, text + "\n"))
}

/// A host of one interface with a queue.
fn with_interface(name: &str, index: u32, mask: &str) -> Host {
    let queue = (format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"), mask);
    Host::scripted(interface_files((name, index), [queue]))
}

fn begin_for_device(host: &Host) -> TuneStart<'static> {
    TuneStart { devices: vec![NamedDevice::observe(host, "eth0").expect("there")], ..begin() }
}

fn rps(interface: &str) -> Setting {
    let direction = linerate_host::setting::QueueDirection::Receive;
    Setting::QueueCpus { interface: interface.to_owned(), direction, queue: 0 }
}

fn tune_rps(scratch: &Scratch) {
    let host = with_interface("eth0", 4, "00000000");
    tune(scratch, &host, begin_for_device(&host), &rps("eth0"), "3");
}

#[test]
fn status_and_undo_follow_a_renamed_interface() {
    let scratch = Scratch::new();
    tune_rps(&scratch);
    let host = with_interface("lan0", 4, "3");
    assert_eq!(status(&scratch, &host).tunes[0].settings[0].state, SettingState::InEffect);
    let report = undo(&mut scratch.lock(), &host, None, Asked).expect("undone");
    assert_eq!(report.settings[0].outcome, UndoOutcome::Restored);
    assert_eq!(report.settings[0].renamed_from.as_deref(), Some("eth0"));
    assert_eq!(rps("lan0").read(&host).expect("read"), value("00000000"));
}

#[test]
fn undo_skips_interfaces_that_were_replaced() {
    for host in [with_interface("eth0", 5, "3"), with_interface("eth1", 5, "3")] {
        let scratch = Scratch::new();
        tune_rps(&scratch);
        assert!(matches!(status(&scratch, &host).tunes[0].settings[0].state, SettingState::Gone { .. }));
        let report = undo(&mut scratch.lock(), &host, None, Asked).expect("undone");
        assert!(matches!(report.settings[0].outcome, UndoOutcome::Gone { .. }));
        let interface = if host.read("/sys/class/net/eth0/ifindex").is_ok() { "eth0" } else { "eth1" };
        assert_eq!(rps(interface).read(&host).expect("read"), value("3"));
    }
}

/// A host with an interface in the network namespace `inode`. `device` is the interface's device,
/// unless it is virtual.
fn in_namespace(inode: u64, name: &str, index: u32, device: Option<&str>, value: &str) -> Host {
    let paths = [
        format!("/sys/class/net/{name}/device/sriov_numvfs"),
        format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"),
        "/proc/sys/net/ipv4/udp_early_demux".to_owned(),
        "/proc/sys/kernel/timer_migration".to_owned(),
    ];
    let files = interface_files((name, index), paths.map(|path| (path, value)));
    let links = [("/proc/thread-self/ns/net".to_owned(), format!("net:[{inode}]"))];
    let device = device.into_iter().flat_map(|device| {
        let class = format!("/sys/class/net/{name}");
        let device_link = (format!("{class}/device"), format!("../../../{device}"));
        [device_link, (class, format!("../../devices/pci0000:00/{device}/net/{name}"))]
    });
    Host::rehearsal(HostRecording::from_files(files).with_links(links.into_iter().chain(device)))
}

/// The kernel moves physical interfaces of a deleted network namespace to the initial one. Settings of
/// the machine stay.
#[test]
fn undo_restores_physical_interfaces_of_a_deleted_network_namespace() {
    let settings = [
        Setting::VirtualFunctions { interface: "eth0".to_owned() },
        Setting::sysctl("net.ipv4.conf.eth0.rp_filter"),
        Setting::sysctl("net.ipv4.udp_early_demux"),
        Setting::sysctl("kernel.timer_migration"),
    ];
    let card = Some("0000:01:00.0");
    for (device, name, device_now, is_back) in [
        (card, "eth0", card, true),
        (card, "dev0", card, true),
        (card, "eth0", Some("0000:02:00.0"), false),
        (None, "eth0", None, false),
    ] {
        let scratch = Scratch::new();
        let host = in_namespace(7, "eth0", 4, device, "0");
        let changes = settings.clone().map(|setting| (setting, value("1")));
        fake::tune(&scratch, &host, begin(), &changes).expect("made");
        let host = in_namespace(1, name, 9, device_now, "1");
        let is_in_effect = status(&scratch, &host).tunes[0].settings[0].state == SettingState::InEffect;
        assert_eq!(is_in_effect, is_back, "{name} {device_now:?}");
        let report = undo(&mut scratch.lock(), &host, None, Asked).expect("undone");
        for undo in &report.settings {
            let expected = undo.setting == settings[3] || is_back && undo.setting == settings[0];
            assert_eq!(undo.outcome == UndoOutcome::Restored, expected, "{name} {device_now:?}: {undo:?}");
            assert_eq!(matches!(undo.outcome, UndoOutcome::Gone { .. }), !expected, "{undo:?}");
        }
        let now = Setting::VirtualFunctions { interface: name.to_owned() }.read(&host).expect("read");
        assert_eq!(now.as_str(), if is_back { "0" } else { "1" });
    }
}

#[test]
fn change_is_refused_if_the_interface_was_replaced_midway() {
    let scratch = Scratch::new();
    let host = with_interface("eth0", 4, "00000000");
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, &host, begin_for_device(&host)).expect("begun");
    let replaced_host = with_interface("eth0", 5, "0");
    let result = transaction.change(&replaced_host, &rps("eth0"), &value("3")).expect("journalled");
    assert_eq!(result, ChangeOutcome::Refused { why: "eth0 is another device now".to_owned() });
}

fn plan(settings: usize) -> TunePlan {
    let change = |number| PlannedChange::new(setting(number), value("0"), value("5"), "a test");
    TunePlan { changes: (0..settings).map(change).collect(), ..TunePlan::new("test") }
}

fn apply(transaction: &mut TuneTransaction<'_>, fake: &Fake, plan: &TunePlan) -> Vec<ChangeOutcome> {
    let change = |change: &PlannedChange| {
        transaction.change_from(fake, &change.setting, &change.from, &change.to).expect("journalled")
    };
    plan.changes.iter().map(change).collect()
}

#[test]
fn a_killed_new_or_reopened_tune_is_resumed_from_its_plan() {
    // Each change has four events: a read, the start and the end of a write, and a read. The first
    // change of a reopened tune is in effect already and has one event, a read.
    let new_tune = (0..12).map(|kill| (kill, 3, false));
    for (kill, settings, is_reopened) in new_tune.chain((0..5).map(|kill| (kill, 2, true))) {
        let (fake, scratch) = (Fake::new(settings), Scratch::new());
        if is_reopened {
            tune(&scratch, &fake, begin(), &setting(0), "5");
        }
        let original_plan = plan(settings);
        let completed = fake.fuse.killed_at(Some(kill), || {
            let mut writer = scratch.lock();
            let begin = TuneStart { plan: Some(&original_plan), ..begin() };
            let transaction = match is_reopened {
                true => TuneTransaction::reopen(&mut writer, &fake, 1, &original_plan),
                false => TuneTransaction::begin(&mut writer, &fake, begin),
            };
            apply(&mut transaction.expect("begun"), &fake, &original_plan);
        });
        assert!(completed.is_none(), "{kill}");
        assert_eq!(status(&scratch, &fake).tunes[0].state, TuneState::Died);
        let mut writer = scratch.lock();
        let (mut transaction, saved_plan) = TuneTransaction::resume(&mut writer, &fake).expect("resumed");
        assert_eq!((transaction.id(), &saved_plan), (1, &original_plan));
        let results = apply(&mut transaction, &fake, &saved_plan);
        let already_count = results.iter().filter(|result| **result == ChangeOutcome::Already).count();
        let least_count = if is_reopened { 1 } else { kill as usize / 4 };
        assert!(already_count >= least_count, "{kill}: {results:?}");
        transaction.end(None).expect("ended");
        let error = TuneTransaction::resume(&mut writer, &fake).expect_err("the tune is complete");
        assert!(matches!(error, TuneError::NothingToResume));
        drop(writer);
        let status = status(&scratch, &fake);
        assert!(!status.needs_attention(), "{status:?}");
        assert_eq!(status.tunes[0].settings.len(), settings);
        let report = undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");
        assert!(report.settings.iter().all(|setting| setting.outcome == UndoOutcome::Restored));
        assert!((0..settings).all(|number| fake.now(&setting(number)) == "0"), "{kill}");
    }
}

/// Resuming it would change settings behind the back of the later tune.
#[test]
fn tune_before_another_tune_in_effect_cannot_be_resumed() {
    let (fake, scratch) = (Fake::new(2), Scratch::new());
    let original_plan = plan(2);
    let mut writer = scratch.lock();
    let begin_with_plan = TuneStart { plan: Some(&original_plan), ..begin() };
    let mut transaction = TuneTransaction::begin(&mut writer, &fake, begin_with_plan).expect("begun");
    transaction.change(&fake, &setting(0), &value("5")).expect("made");
    transaction.end(Some("it was interrupted".to_owned())).expect("ended");
    drop(writer);
    let can_resume = || status(&scratch, &fake).tunes[0].can_resume;
    assert!(can_resume());
    tune(&scratch, &fake, begin(), &setting(1), "7");
    assert!(!can_resume());
    let error = TuneTransaction::resume(&mut scratch.lock(), &fake).expect_err("not the last one");
    assert!(matches!(error, TuneError::NothingToResume));
    undo(&mut scratch.lock(), &fake, Some(2), Asked).expect("undone");
    assert!(can_resume());
    let mut writer = scratch.lock();
    let (transaction, _) = TuneTransaction::resume(&mut writer, &fake).expect("resumed");
    assert_eq!(transaction.id(), 1);
}

#[test]
fn undo_of_a_reopened_tune_restores_the_first_original_values() {
    let (fake, scratch) = (Fake::new(2), Scratch::new());
    tune(&scratch, &fake, begin(), &setting(0), "5");
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::reopen(&mut writer, &fake, 1, &plan(2)).expect("reopened");
    for (number, to) in [(0, "6"), (1, "7")] {
        let result = transaction.change(&fake, &setting(number), &value(to)).expect("made");
        assert!(matches!(result, ChangeOutcome::Made), "{result:?}");
    }
    transaction.end(None).expect("ended");
    drop(writer);
    let status = status(&scratch, &fake);
    assert!(!status.needs_attention() && status.tunes.len() == 1, "{status:?}");
    let report = undo(&mut scratch.lock(), &fake, None, Asked).expect("undone");
    assert!(!report.has_skipped() && !report.has_failures());
    assert_eq!((fake.now(&setting(0)), fake.now(&setting(1))), ("0".to_owned(), "0".to_owned()));
    let error =
        TuneTransaction::reopen(&mut scratch.lock(), &fake, 1, &plan(2)).expect_err("the tune is undone");
    assert!(matches!(error, TuneError::UndoneAlready { tune: 1 }));
}

#[test]
fn new_sockets_of_a_group_are_steered_again_but_no_group_that_another_program_released() {
    let calls = ("/calls/steering/udp/127.0.0.1:53.json", "\"none\"");
    let host = Host::scripted([("/proc/sys/kernel/random/boot_id", "boot-1\n"), calls]);
    let local = "127.0.0.1:53".parse().expect("an address");
    let steering = Setting::Steering { namespace: 1, protocol: SocketProtocol::Udp, local };
    let scratch = Scratch::new();
    tune(&scratch, &host, begin(), &steering, "by-cpu 0:1 1:2");
    steering.write(&host, &value("none")).expect("scripted");
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::reopen(&mut writer, &host, 1, &plan(0)).expect("reopened");
    let error = transaction.change(&host, &steering, &value("by-cpu 0:1 1:3")).expect_err("released");
    assert!(matches!(error, TuneError::ChangedSince { .. }), "{error}");
    let result = transaction.change(&host, &steering, &value("by-cpu 0:3 1:4"));
    assert!(matches!(result, Ok(ChangeOutcome::Made)), "{result:?}");
}

#[test]
fn a_tune_of_an_earlier_boot_is_not_reopened() {
    let (fake, scratch) = (Fake::new(1), Scratch::new());
    tune(&scratch, &fake, begin(), &setting(0), "5");
    fake.reboot();
    let error = TuneTransaction::reopen(&mut scratch.lock(), &fake, 1, &plan(1)).expect_err("another boot");
    assert!(matches!(error, TuneError::EarlierBoot { tune: 1 }));
    let error = TuneTransaction::reopen(&mut scratch.lock(), &fake, 2, &plan(1)).expect_err("no such");
    assert!(matches!(error, TuneError::NoSuchTune { tune: 2 }));
}

#[test]
fn managed_interrupt_that_the_kernel_moved_within_its_mask_is_undone() {
    const AFFINITY: &str = "/proc/irq/30/smp_affinity";
    const EFFECTIVE: &str = "/proc/irq/30/effective_affinity_list";
    let host = Host::scripted([
        ("/proc/sys/kernel/random/boot_id", "boot-1\n"),
        ("/sys/devices/system/cpu/smt/control", "on\n"),
        ("/proc/irq/30/virtio1-req.0/x", ""),
        (AFFINITY, "3\n"),
        (EFFECTIVE, "1\n"),
    ]);
    let scratch = Scratch::new();
    tune(&scratch, &host, begin(), &Setting::SmtControl, "off");
    host.write(EFFECTIVE, "0\n").expect("scripted");
    let host = host.refusing(AFFINITY, libc::EPERM);
    let report = undo(&mut scratch.lock(), &host, None, Asked).expect("journalled");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:?}");
    assert!(status(&scratch, &host).tunes.is_empty());
}

#[test]
fn refused_undo_does_not_block_other_tunes() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    fake.behave(&setting(0), Manner::ObeysOnce);
    let until = Some(UndoDeadline::Time { boot_seconds: boot_seconds() + 3600 });
    tune(&scratch, &fake, TuneStart { until, ..begin() }, &setting(0), "5");
    let error = TuneTransaction::begin(&mut scratch.lock(), &fake, begin()).expect_err("it is pending");
    assert!(matches!(error, TuneError::Pending { tune: 1 }));
    let report = undo(&mut scratch.lock(), &fake, Some(1), Asked).expect("journalled");
    assert!(report.has_failures(), "{report:?}");
    tune(&scratch, &fake, begin(), &setting(1), "5");
    fake.reboot();
    let reports = undo_overdue(&mut scratch.lock(), &fake).expect("journalled");
    assert!(reports[0].has_failures(), "{reports:?}");
    tune(&scratch, &fake, begin(), &setting(2), "5");
    assert_eq!((fake.now(&setting(1)), fake.now(&setting(2))), ("5".to_owned(), "5".to_owned()));
}

#[test]
fn unpersist_removes_the_files_of_all_tunes() {
    let (fake, scratch) = (Fake::new(2), Scratch::new());
    for (number, id) in [1, 2].into_iter().enumerate() {
        tune(&scratch, &fake, begin(), &setting(number), "5");
        scratch.lock().append(JournalRecord::Persisted { tune: id, files: Vec::new() }).expect("appended");
    }
    let persisted = || status(&scratch, &fake).tunes.iter().map(|tune| tune.persisted).collect::<Vec<_>>();
    assert_eq!(persisted(), [true, true]);
    let record = JournalRecord::Unpersisted { tune: 2, removed: Vec::new(), left: Vec::new() };
    scratch.lock().append(record).expect("appended");
    assert_eq!(persisted(), [false, false]);
}

/// A host on which a write of the number of virtual functions is killed after it wrote 0.
struct KilledDuringWrite(Host);

impl ChangeTarget for KilledDuringWrite {
    fn host(&self) -> &Host {
        &self.0
    }

    fn write(&self, setting: &Setting, _: &SettingValue) -> Result<(), SettingError> {
        setting.write(&self.0, &value("0")).expect("scripted");
        std::panic::panic_any("ended");
    }
}

#[test]
fn undo_restores_a_setting_after_a_write_that_was_killed_midway() {
    let functions = ("/sys/class/net/eth0/device/sriov_numvfs".to_owned(), "4");
    let files = interface_files(("eth0", 4), [functions]);
    let scratch = Scratch::new();
    let host = KilledDuringWrite(Host::scripted(files));
    let setting = Setting::VirtualFunctions { interface: "eth0".to_owned() };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut writer = scratch.lock();
        let mut transaction = TuneTransaction::begin(&mut writer, &host, begin()).expect("begun");
        let _ = transaction.change(&host, &setting, &value("8"));
    }));
    assert!(result.is_err());
    assert_eq!(setting.read(&host.0).expect("read"), value("0"));
    let report = undo(&mut scratch.lock(), &host.0, None, Asked).expect("undone");
    assert_eq!(report.settings[0].outcome, UndoOutcome::Restored);
    assert_eq!(setting.read(&host.0).expect("read"), value("4"));
}

/// A host with one interface and one interrupt. The interrupt has the name that the interface had
/// when it was brought up.
fn with_interrupt(name: &str, action: &str, mask: &str) -> Host {
    let files = [
        (format!("/sys/class/net/{name}/device/msi_irqs/30"), "msix"),
        (format!("/proc/irq/30/{action}/x"), ""),
        ("/proc/irq/30/smp_affinity".to_owned(), mask),
    ];
    Host::scripted(interface_files((name, 4), files))
}

#[test]
fn status_and_undo_follow_interrupts_of_a_renamed_interface() {
    // Renamed while it was up, then while it was down.
    for action in ["eth0-TxRx-0", "lan0-TxRx-0"] {
        let scratch = Scratch::new();
        let host = with_interrupt("eth0", "eth0-TxRx-0", "00000001");
        let setting = |action: &str| Setting::IrqAffinity { irq: 30, action: action.to_owned() };
        tune(&scratch, &host, begin_for_device(&host), &setting("eth0-TxRx-0"), "2");
        let renamed_host = with_interrupt("lan0", action, "00000002");
        let state = status(&scratch, &renamed_host).tunes[0].settings[0].state.clone();
        assert_eq!(state, SettingState::InEffect, "{action}");
        let report = undo(&mut scratch.lock(), &renamed_host, None, Asked).expect("undone");
        assert_eq!(report.settings[0].outcome, UndoOutcome::Restored, "{action}");
        assert_eq!(setting(action).read(&renamed_host).expect("read"), value("00000001"));
    }
}

/// Another device that has the same name keeps its affinities.
#[test]
fn undo_skips_interrupts_of_another_device_with_the_same_name() {
    let scratch = Scratch::new();
    let host = with_interrupt("eth0", "eth0-TxRx-0", "00000001");
    let setting = Setting::IrqAffinity { irq: 30, action: "eth0-TxRx-0".to_owned() };
    tune(&scratch, &host, begin_for_device(&host), &setting, "2");
    let other_device = with_interrupt("eth0", "eth0-TxRx-0", "00000002");
    other_device.write("/sys/class/net/eth0/ifindex", "9\n").expect("another device");
    let report = undo(&mut scratch.lock(), &other_device, None, Asked).expect("undone");
    assert!(matches!(report.settings[0].outcome, UndoOutcome::Gone { .. }), "{report:?}");
    assert_eq!(setting.read(&other_device).expect("read"), value("00000002"));
}
