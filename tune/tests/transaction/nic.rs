//! A NIC whose settings reset each other, like those of igb.

use std::cell::Cell;
use std::collections::BTreeMap;

use linerate_host::setting::{QueueDirection, table_entries};
use linerate_host::{Host, HostError, Setting, SettingError, SettingValue};
use linerate_tune::NamedDevice;
use linerate_tune::journal::JournalRecord;
use linerate_tune::journal::record::UndoOutcome;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::status::{SettingState, TuneState};
use linerate_tune::transaction::{ChangeTarget, TuneError, TuneStart, UndoReport, undo};
use proptest::prelude::*;

use crate::fake::{self, Fuse, Scratch, begin, status, undo_until_finished, value};

/// The largest number of queues.
const QUEUES: u32 = 4;
const ENTRIES: usize = 8;
const CHANNELS: &str = "/calls/ethtool/eth0/channels.json";
/// Queue 0 has three times the weight of queue 1.
const WEIGHTS: &str = "0,0,0,1,0,0,0,1";

fn channels(interface: &str) -> Setting {
    Setting::Channels { interface: interface.to_owned() }
}

fn table(interface: &str) -> Setting {
    Setting::RssTable { interface: interface.to_owned() }
}

fn rps(interface: &str, queue: u32) -> Setting {
    Setting::QueueCpus { interface: interface.to_owned(), direction: QueueDirection::Receive, queue }
}

fn interrupt(prefix: &str, queue: u32) -> Setting {
    Setting::IrqAffinity { irq: 30 + queue, action: format!("{prefix}-TxRx-{queue}") }
}

/// Refuses fewer channels while the table names queues that would go. A change of channels resets
/// the table, RPS and interrupts.
struct Nic {
    host: Host,
    interface: String,
    /// The interface's name when it was brought up, which its interrupts keep.
    irq_prefix: String,
    /// Whether the kernel regards the table as the user's, so that drivers keep it when the channels
    /// change: since the last write, unless that wrote the default of the channels.
    has_user_table: Cell<bool>,
    fuse: Fuse,
}

/// The values of all settings in this order: channels, table, then RPS and affinity of each queue.
type State = Vec<String>;

impl Nic {
    fn new(interface: &str, irq_prefix: &str, state: &[String]) -> Self {
        let entries = table_entries(&value(&state[1]), ENTRIES).expect("a table");
        let count = state[0].trim_start_matches("combined ");
        let call = |name: &str| format!("/calls/ethtool/{interface}/{name}.json");
        let mut files = vec![
            (format!("/sys/class/net/{interface}/ifindex"), "4\n".to_owned()),
            (format!("/sys/class/net/{interface}/address"), "02:00:00:00:00:01\n".to_owned()),
            (call("channels"), format!(r#"{{ "combined": {count}, "combined_max": {QUEUES} }}"#)),
            (call("rss"), format!(r#"{{ "table": {entries:?} }}"#)),
            ("/proc/sys/kernel/random/boot_id".to_owned(), "boot-1\n".to_owned()),
        ];
        for queue in 0..QUEUES {
            let (number, irq) = (queue as usize, 30 + queue);
            let rps = format!("/sys/class/net/{interface}/queues/rx-{queue}/rps_cpus");
            let vector = format!("/sys/class/net/{interface}/device/msi_irqs/{irq}");
            let affinity = format!("/proc/irq/{irq}/smp_affinity");
            files.push((rps, state[2 + 2 * number].clone()));
            files.push((affinity, state[3 + 2 * number].clone()));
            files.extend(
                [vector, format!("/proc/irq/{irq}/{irq_prefix}-TxRx-{queue}/x")]
                    .map(|path| (path, String::new())),
            );
        }
        let (interface, irq_prefix) = (interface.to_owned(), irq_prefix.to_owned());
        let host = Host::scripted(files);
        Self { host, interface, irq_prefix, has_user_table: Cell::default(), fuse: Fuse::default() }
    }

    /// Two channels, and a table that an administrator set.
    fn with_weights() -> Self {
        Self::new("eth0", "eth0", &state(2, WEIGHTS))
    }

    fn settings(&self) -> Vec<Setting> {
        let queues =
            (0..QUEUES).flat_map(|queue| [rps(&self.interface, queue), interrupt(&self.irq_prefix, queue)]);
        [channels(&self.interface), table(&self.interface)].into_iter().chain(queues).collect()
    }

    fn now(&self) -> State {
        self.settings().iter().map(|setting| setting.read(&self.host).expect("read").to_string()).collect()
    }

    fn channels_and_table(&self) -> (String, String) {
        let now = self.now();
        (now[0].clone(), now[1].clone())
    }

    /// Sets four channels, for which the driver makes another table.
    fn raise(&self, scratch: &Scratch) {
        let change = (channels("eth0"), value("combined 4"));
        fake::tune(scratch, self, begin(), &[change]).expect("journalled");
        assert_eq!(self.channels_and_table(), ("combined 4".to_owned(), "equal 4".to_owned()));
    }

    fn refuses(setting: &Setting) -> SettingError {
        let source = std::io::Error::from_raw_os_error(libc::EINVAL);
        let source = HostError::Call { what: format!("setting the {setting}"), source };
        SettingError::Host { setting: setting.to_string(), source }
    }

    fn table_queue_count(&self) -> u32 {
        let now = table(&self.interface).read(&self.host).expect("a table");
        table_entries(&now, ENTRIES).expect("entries").into_iter().max().map_or(0, |last| last + 1)
    }
}

/// A state with `count` channels and this table, and nothing else set.
fn state(count: u32, table: &str) -> State {
    let queues = (0..QUEUES).flat_map(|_| ["0".to_owned(), "f".to_owned()]);
    [format!("combined {count}"), table.to_owned()].into_iter().chain(queues).collect()
}

impl ChangeTarget for Nic {
    fn host(&self) -> &Host {
        &self.host
    }

    fn read(&self, setting: &Setting) -> Result<SettingValue, SettingError> {
        self.fuse.event();
        setting.read(&self.host)
    }

    fn write(&self, setting: &Setting, to: &SettingValue) -> Result<(), SettingError> {
        self.fuse.event();
        match setting {
            Setting::Channels { .. } => {
                let count: u32 = to.as_str().trim_start_matches("combined ").parse().expect("a number");
                if self.table_queue_count() > count {
                    return Err(Self::refuses(setting));
                }
                setting.write(&self.host, to)?;
                table(&self.interface).write(&self.host, &value(&format!("equal {count}")))?;
                for queue in 0..QUEUES {
                    rps(&self.interface, queue).write(&self.host, &value("0"))?;
                    interrupt(&self.irq_prefix, queue).write(&self.host, &value("f"))?;
                }
            }
            Setting::RssTable { .. } => {
                let count: u32 =
                    self.channels_and_table().0.trim_start_matches("combined ").parse().expect("a number");
                let entries = table_entries(to, ENTRIES).expect("a table");
                if entries.iter().any(|queue| *queue >= count) {
                    return Err(Self::refuses(setting));
                }
                setting.write(&self.host, to)?;
                self.has_user_table.set(!setting.same(to, &value(&format!("equal {count}"))));
            }
            _ => setting.write(&self.host, to)?,
        }
        self.fuse.event();
        Ok(())
    }
}

/// Undoes a tune, which has to restore all settings.
fn undo_completely(nic: &Nic, scratch: &Scratch, id: Option<u64>) -> UndoReport {
    let report = undo(&mut scratch.lock(), nic, id, Asked).expect("undone");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:#?}");
    report
}

#[test]
fn undo_restores_channels_and_rss_table_in_the_required_order() {
    let (nic, scratch) = (Nic::with_weights(), Scratch::new());
    let before = nic.channels_and_table();
    assert_eq!(before, ("combined 2".to_owned(), WEIGHTS.to_owned()));
    nic.raise(&scratch);
    let report = undo_completely(&nic, &scratch, None);
    assert_eq!(nic.channels_and_table(), before);
    let count = |setting: Setting| report.settings.iter().filter(|undo| undo.setting == setting).count();
    assert_eq!((count(channels("eth0")), count(table("eth0"))), (1, 1), "each setting is reported once");
    assert!(status(&scratch, &nic).tunes.is_empty());
}

/// The table is written while the channels of the tune exist, for which it is not the default.
#[test]
fn undo_leaves_a_default_rss_table_to_the_driver() {
    let (nic, scratch) = (Nic::new("eth0", "eth0", &state(2, "equal 2")), Scratch::new());
    nic.raise(&scratch);
    let report = undo_completely(&nic, &scratch, None);
    assert_eq!(nic.channels_and_table(), ("combined 2".to_owned(), "equal 2".to_owned()));
    assert!(!nic.has_user_table.get(), "{report:#?}");
}

/// If the first undo cannot restore the channels, the tune stays open until the table is restored,
/// too.
#[test]
fn tune_stays_open_until_channels_and_rss_table_are_restored() {
    let (nic, scratch) = (Nic::with_weights(), Scratch::new());
    let before = nic.channels_and_table();
    nic.raise(&scratch);
    let busy_nic = Nic { host: nic.host.refusing(CHANNELS, libc::EBUSY), ..nic };
    let report = undo(&mut scratch.lock(), &busy_nic, None, Asked).expect("journalled");
    assert!(report.has_failures());
    assert_eq!(status(&scratch, &busy_nic).tunes[0].state, TuneState::UndoRefused);
    let working_nic = Nic::with_weights();
    working_nic.host.write(CHANNELS, r#"{ "combined": 4, "combined_max": 4 }"#).expect("set");
    undo_completely(&working_nic, &scratch, None);
    assert_eq!(working_nic.channels_and_table(), before);
    assert!(status(&scratch, &working_nic).tunes.is_empty());
}

/// An earlier undo restored the table before the channels, whose change resets the table. Version
/// 0.1 then closed the tune, with the queues at 64/64 entries.
#[test]
fn rss_table_restored_before_the_channels_is_restored_again_later() {
    let (nic, scratch) = (Nic::with_weights(), Scratch::new());
    nic.raise(&scratch);
    {
        let mut writer = scratch.lock();
        let why = "channels of eth0: requested channel counts are too low".to_owned();
        for record in [
            JournalRecord::UndoBegun { tune: 1, why: Asked },
            JournalRecord::UndoDone {
                tune: 1,
                setting: channels("eth0"),
                outcome: UndoOutcome::Failed { why, found: Some(value("combined 4")) },
            },
            JournalRecord::UndoDone { tune: 1, setting: table("eth0"), outcome: UndoOutcome::Restored },
            JournalRecord::UndoEnded { tune: 1 },
        ] {
            writer.append(record).expect("appended");
        }
    }
    table("eth0").write(&nic.host, &value(WEIGHTS)).expect("written");
    undo_completely(&nic, &scratch, None);
    assert_eq!(nic.channels_and_table(), ("combined 2".to_owned(), WEIGHTS.to_owned()));
}

/// Tune 2 only changes the channels, which resets the mask that tune 1 set.
#[test]
fn undo_of_an_older_tune_passes_its_original_values_to_a_tune_that_reset_them() {
    let (nic, scratch) = (Nic::with_weights(), Scratch::new());
    let before = nic.now();
    tune(&nic, &scratch, &[(2, 3)]).expect("journalled");
    assert!(same(&nic, 2, &nic.now()[2], "8"));
    nic.raise(&scratch);
    let state = status(&scratch, &nic).tunes[0].settings[0].state.clone();
    assert_eq!(state, SettingState::ChangedBy { tune: 2 });
    for number in [1, 2] {
        undo_completely(&nic, &scratch, Some(number));
    }
    for (number, (before, now)) in before.iter().zip(nic.now()).enumerate() {
        assert!(same(&nic, number, before, &now), "{number}: {before} is {now} now");
    }
    assert!(status(&scratch, &nic).tunes.is_empty());
}

/// Undoing tune 1 changes the channels, which resets the mask that tune 2 set.
#[test]
fn undo_of_an_older_tune_keeps_values_of_a_later_tune_that_it_resets() {
    let (nic, scratch) = (Nic::with_weights(), Scratch::new());
    let before = nic.now();
    nic.raise(&scratch);
    tune(&nic, &scratch, &[(2, 3)]).expect("journalled");
    undo_completely(&nic, &scratch, Some(1));
    let now = nic.now();
    assert_eq!((&now[..2], same(&nic, 2, &now[2], "8")), (&before[..2], true), "{now:?}");
    let tunes = status(&scratch, &nic).tunes;
    assert_eq!((tunes.len(), &tunes[0].settings[0].state), (1, &SettingState::InEffect));
    undo(&mut scratch.lock(), &nic, Some(2), Asked).expect("undone");
    assert!(same(&nic, 2, &nic.now()[2], &before[2]));
}

/// The affinity of queue 0's interrupt is `1`, and a change of channels resets it to `f`.
fn with_placed_interrupt() -> Nic {
    let mut state = state(2, "equal 2");
    state[3] = "1".to_owned();
    Nic::new("eth0", "eth0", &state)
}

/// irqbalance moves the interrupts that no tune places.
#[test]
fn moved_interrupt_that_a_tune_only_reset_is_no_drift() {
    let (nic, scratch) = (with_placed_interrupt(), Scratch::new());
    nic.raise(&scratch);
    interrupt("eth0", 0).write(&nic.host, &value("4")).expect("moved");
    let status_before = status(&scratch, &nic);
    assert!(!status_before.needs_attention(), "{status_before:#?}");
    let report = undo(&mut scratch.lock(), &nic, None, Asked).expect("undone");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:#?}");
    assert!(same(&nic, 3, &nic.now()[3], "4"), "as irqbalance left it");
    assert!(status(&scratch, &nic).tunes.is_empty());
}

#[test]
fn setting_with_its_original_value_again_after_a_reset_is_in_effect() {
    let (nic, scratch) = (with_placed_interrupt(), Scratch::new());
    tune(&nic, &scratch, &[(0, 3), (3, 0)]).expect("journalled");
    assert!(same(&nic, 3, &nic.now()[3], "1"));
    let status = status(&scratch, &nic);
    assert!(!status.needs_attention(), "{status:#?}");
    let setting = status.tunes[0].settings.iter().find(|item| item.setting == interrupt("eth0", 0));
    let setting = setting.expect("a setting of the tune");
    assert_eq!((&setting.state, setting.to.as_ref()), (&SettingState::InEffect, Some(&value("1"))));
}

/// A change: the number of a setting, and the number of a value.
type Change = (usize, usize);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec((0..2 + 2 * QUEUES as usize, 0..4_usize), 1..10)
}

/// A value for a setting of this number.
fn value_of(number: usize, choice: usize) -> SettingValue {
    const TABLES: [&str; 4] = ["equal 1", "equal 2", WEIGHTS, "0,1,0,0,0,0,0,0"];
    match number {
        0 => value(&format!("combined {}", choice + 1)),
        1 => value(TABLES[choice]),
        _ => value(["1", "2", "4", "8"][choice]),
    }
}

/// Whether two values mean the same to the setting of this number.
fn same(nic: &Nic, number: usize, one: &str, other: &str) -> bool {
    nic.settings()[number].same(&value(one), &value(other))
}

fn tune(nic: &Nic, scratch: &Scratch, changes: &[Change]) -> Result<(), TuneError> {
    let devices = vec![NamedDevice::observe(&nic.host, &nic.interface)?];
    let change = |(number, choice): &Change| (nic.settings()[*number].clone(), value_of(*number, *choice));
    let changes: Vec<_> = changes.iter().map(change).collect();
    fake::tune(scratch, nic, TuneStart { devices, ..begin() }, &changes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Random tunes of settings that reset each other, with kills, changes by others, a new
    /// interface name and a flipped byte in the journal. Each setting is restored or reported.
    #[test]
    fn undo_restores_or_reports_every_nic_setting(
        start in (1..=QUEUES, any::<bool>()),
        changes in changes(),
        kill in prop::option::of(0..120_u32),
        others in prop::collection::btree_map(2..2 + 2 * QUEUES as usize, 0..4_usize, 0..3),
        rename in prop::option::of(any::<bool>()),
        flip in prop::option::of(any::<prop::sample::Index>()),
        undo_kills in prop::collection::vec(0..60_u32, 0..3),
    ) {
        crate::property::quiet();
        let scratch = Scratch::new();
        let (count, weighted) = start;
        let first = state(count, if weighted && count > 1 { WEIGHTS } else { "equal 1" });
        let nic = Nic::new("eth0", "eth0", &first);
        let first = nic.now();
        let result = nic.fuse.killed_at(kill, || tune(&nic, &scratch, &changes));
        let was_killed = result.is_none();
        if let Some(result) = result { result.expect("journalled") }
        let foreign: BTreeMap<usize, SettingValue> =
            others.into_iter().map(|(number, choice)| (number, value_of(number, choice))).collect();
        for (number, value) in &foreign {
            nic.settings()[*number].write(&nic.host, value).expect("written");
        }
        let nic = match rename {
            None => nic,
            // If it was renamed while it was up, its interrupts keep the old name.
            Some(is_up) => Nic::new("lan0", if is_up { "eth0" } else { "lan0" }, &nic.now()),
        };
        let tunes = scratch.store().read().expect("read").tunes();
        let in_effect: Vec<Setting> = tunes
            .iter()
            .flat_map(|tune| &tune.tracked)
            .filter(|tracked| tracked.is_in_effect())
            // Undo does not report the interrupts that a tune only reset and others moved.
            .filter(|tracked| tracked.wanted.is_some() || !matches!(tracked.setting, Setting::IrqAffinity { .. }))
            .map(|tracked| tracked.setting.clone())
            .collect();
        let journal = scratch.store().journal_path();
        let (mut is_damaged, mut is_joined) = (false, false);
        if let (Some(index), Ok(mut text)) = (flip, std::fs::read(&journal)) && !text.is_empty() {
            // Not the last newline: without it, the last line would only be torn.
            let at = index.index(text.len() - 1);
            is_joined = text[at] == b'\n';
            text[at] ^= 1;
            is_damaged = true;
            std::fs::write(&journal, text).expect("written");
        }
        let reports = undo_until_finished((&nic, &nic.fuse), &scratch, None, &undo_kills);
        let unrestored: Vec<&Setting> = reports
            .iter()
            .flat_map(|report| &report.settings)
            .filter(|undo| !undo.outcome.is_back())
            .map(|undo| &undo.setting)
            .collect();
        if is_damaged {
            let journal = scratch.store().read().expect("read");
            prop_assert!(journal.trouble.is_some(), "the damage is reported");
            prop_assert!(reports.iter().all(|report| !report.damaged_lines.is_empty()), "{reports:#?}");
            // The lost records may be the only ones of a change, or of what a change of channels resets.
            if is_joined || was_killed || changes.iter().any(|(number, _)| *number == 0) {
                return Ok(());
            }
        }
        let original = Nic::new("eth0", "eth0", &first);
        for (number, (before, now)) in first.iter().zip(nic.now()).enumerate() {
            let is_foreign = foreign.get(&number).is_some_and(|other| same(&nic, number, other.as_str(), &now));
            let is_reported = unrestored.contains(&&original.settings()[number]);
            let was_touched = in_effect.contains(&original.settings()[number]);
            let is_well = same(&nic, number, before, &now)
                || is_foreign && (is_reported || !was_touched)
                || is_damaged && is_reported;
            prop_assert!(is_well, "{}: {before} is {now} now\n{reports:#?}", original.settings()[number]);
        }
        let status = status(&scratch, &nic);
        prop_assert!(is_damaged || status.tunes.is_empty() || reports.is_empty(), "{status:#?}");
    }
}
