use linerate_host::Scope;
use linerate_host::setting::table_entries;

use super::*;
use crate::journal::StateStore;
use crate::journal::record::UndoReason;
use crate::plan::tests::{change_lines, recordings};
use crate::transaction::{ChangeOutcome, TuneStart, TuneTransaction, undo};

fn host(fixture: &str) -> Host {
    host_with(fixture, &[])
}

fn host_with(fixture: &str, answers: &[(&str, &str)]) -> Host {
    let mut recording = recordings(fixture).swap_remove(0);
    for (path, answer) in answers.iter().chain(&[("/proc/sys/kernel/random/boot_id", "boot-1\n")]) {
        recording.insert_file(*path, *answer);
    }
    Host::rehearsal(recording)
}

fn flow_plan(
    host: &Host,
    interface: &str,
    packets: &str,
    cpu: u32,
    rps: bool,
) -> Result<TunePlan, FlowError> {
    let request = FlowRequest { interface: interface.into(), cpu, packets: packets.parse()?, rps };
    let scope = Scope { interfaces: vec![interface.to_owned()], ..Scope::default() };
    plan(host, &PacketPath::observe(host, &scope), &request)
}

/// Applies all changes, then undoes them. Returns the refusals, and the values before the undo.
fn apply_and_undo(host: &Host, plan: &TunePlan) -> (Vec<String>, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut writer = StateStore::at(directory.path().join("state")).lock().expect("locked");
    let start = TuneStart { plan: Some(plan), ..TuneStart::new("flow", Vec::new()) };
    let mut transaction = TuneTransaction::begin(&mut writer, host, start).expect("begun");
    let mut refusals = Vec::new();
    for change in &plan.changes {
        let result = transaction.change_from(host, &change.setting, &change.from, &change.to);
        if let ChangeOutcome::Refused { why } = result.expect("journalled") {
            refusals.push(why);
        }
    }
    transaction.end(None).expect("ended");
    let applied_values = values(host, plan);
    let report = undo(&mut writer, host, None, UndoReason::Asked).expect("undone");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:#?}");
    for change in &plan.changes {
        let now = change.setting.read(host).expect("read");
        assert!(change.setting.same(&now, &change.from), "{}: {now}", change.setting);
    }
    (refusals, applied_values)
}

fn values(host: &Host, plan: &TunePlan) -> Vec<String> {
    plan.changes.iter().map(|change| change.setting.read(host).expect("read").to_string()).collect()
}

#[test]
fn flow_plan_reserves_a_queue_and_undo_restores_every_setting() {
    let host = host("million-packets");
    let plan = flow_plan(&host, "eth2", "dst 192.0.2.5 udp port 4321", 3, false).expect("planned");
    let table = plan.changes.last().expect("the table");
    let entries = table_entries(&table.to, 128).expect("a table");
    let count = |queue| entries.iter().filter(|entry| **entry == queue).count();
    assert_eq!((count(3), (0..11).map(count).sum::<usize>()), (0, 128));
    assert_eq!(
        change_lines(&plan)[..2],
        [
            "eth2 ntuple-filters: off -> on",
            "rule 0 for flows of eth2:  -> flow-type udp4 dst-ip 192.0.2.5 dst-port 4321 action 3",
        ]
    );
    assert_eq!(plan.changes.len(), 3, "{:#?}", change_lines(&plan));
    let interrupt = |target: &TargetSetting| matches!(target.setting, Setting::IrqAffinity { irq: 93, .. });
    assert!(plan.target.iter().any(interrupt), "irqbalance has to leave the interrupt alone");
    let (refusals, values) = apply_and_undo(&host, &plan);
    assert_eq!(refusals, [""; 0]);
    assert_eq!(values[1], "flow-type udp4 dst-ip 192.0.2.5 dst-port 4321 action 3");
    // The same for a virtual machine, on a CPU without a queue: the last queue's interrupt moves
    // there.
    let plan = flow_plan(&host, "eth2", "ether dst 52:54:00:AA:bb:01", 20, false).expect("planned");
    let lines = change_lines(&plan);
    assert!(lines[1].ends_with("flow-type ether dst 52:54:00:aa:bb:01 action 10"), "{lines:?}");
    assert!(lines[2].ends_with("000400 -> 00100000"), "{lines:?}");
    assert_eq!(apply_and_undo(&host, &plan).0, [""; 0]);
}

#[test]
fn ntuple_rules_that_the_nic_ignores_or_refuses_are_reported() {
    for answer in ["ignored", "refused"] {
        let rule = "/calls/ethtool/eth2/ntuple/0.json";
        let host = host("million-packets");
        let host = match answer {
            "ignored" => host.ignoring(rule).ignoring("/calls/ethtool/eth2/ntuple.json"),
            _ => host.refusing(rule, libc::EINVAL),
        };
        let plan = flow_plan(&host, "eth2", "dst 192.0.2.5 udp port 53", 3, false).expect("planned");
        let (refusals, _) = apply_and_undo(&host, &plan);
        assert!(refusals.len() == 1 && refusals[0].starts_with("rule 0 for flows of eth2"), "{refusals:?}");
    }
}

#[test]
fn planning_fails_if_ntuple_filters_are_fixed_off() {
    let changeable = |answer| [("/calls/ethtool/eth2/changeable/ntuple-filters.json", answer)];
    let plan_with = |answer| {
        flow_plan(&host_with("million-packets", &changeable(answer)), "eth2", "udp port 53", 3, false)
    };
    assert!(plan_with("true").is_ok());
    let error = plan_with("false").expect_err("fixed").to_string();
    let words = "eth2 cannot direct flows to queues: its driver has ntuple-filters switched off (ethtool -k: [fixed]): \
                 --rps moves all packets of eth2 to CPU 3 instead";
    assert_eq!(error, words);
}

#[test]
fn existing_ntuple_rules_keep_their_locations_and_queues() {
    let host = host("million-packets");
    let existing = Setting::NtupleRule { interface: "eth2".into(), location: 0 };
    existing.write(&host, &SettingValue::new("flow-type udp4 dst-port 53 action 3")).expect("written");
    let error = flow_plan(&host, "eth2", "udp port 53", 4, false).expect_err("a rule exists");
    assert_eq!(error.to_string(), "eth2 has a rule for these packets: rule 0 sends them to queue 3");
    let plan = flow_plan(&host, "eth2", "udp port 123", 3, false).expect("planned");
    let lines = change_lines(&plan).join("\n");
    assert!(lines.contains("rule 1 for flows of eth2:  -> flow-type udp4 dst-port 123 action 10"), "{lines}");
    assert!(lines.contains("rule 2 for flows of eth2:  -> flow-type udp6 dst-port 123 action 10"), "{lines}");
    assert!(
        plan.skipped[0].title.contains("CPU 3 also has the packets of queues 3 of eth2"),
        "{:?}",
        plan.skipped
    );
}

#[test]
fn without_ntuple_rules_a_flow_plan_requires_rps() {
    let host = host("small-vm");
    let error = flow_plan(&host, "ens3", "udp port 53", 1, false).expect_err("no rules").to_string();
    let words = "ens3 cannot direct flows to queues: its driver has no rules for flows (ethtool -n): --rps moves all \
                 packets of ens3 to CPU 1 instead";
    assert_eq!(error, words);
    let plan = flow_plan(&host, "ens3", "udp port 53", 1, true).expect("planned");
    assert!(plan.skipped[0].title.contains("Other packets of ens3"), "{:?}", plan.skipped);
    assert!(!plan.changes.is_empty());
    assert_eq!(apply_and_undo(&host, &plan).0, [""; 0]);
    let error = flow_plan(&host, "ens3", "udp port 53", 64, false).expect_err("no CPU").to_string();
    assert!(error.starts_with("CPU 64 is not online: online are 0"), "{error}");
    assert!(matches!(flow_plan(&host, "ens9", "udp port 53", 1, true), Err(FlowError::Host(_))));
}

#[test]
fn valid_flow_matches_round_trip_and_invalid_ones_are_rejected() {
    for text in [
        "dst 192.0.2.5 udp port 53",
        "dst 2001:db8::1 tcp port 53",
        "udp port 1",
        "ether dst 02:00:00:00:00:01",
    ] {
        assert_eq!(text.parse::<FlowMatch>().expect(text).to_string(), text);
    }
    for text in [
        "",
        "dst",
        "dst 192.0.2.5",
        "dst host udp port 53",
        "udp port 0",
        "udp port 65536",
        "udp 53",
        "sctp port 1",
        "udp port 53 or 54",
        "ether dst 02:00:00:00:00",
        "ether dst 02:00:00:00:00:zz",
        "ether src 02:00:00:00:00:01",
    ] {
        let error = text.parse::<FlowMatch>().expect_err("invalid").to_string();
        assert!(error.starts_with(&format!("'{text}' is no match: ")), "{error}");
    }
    let error = "ether dst ff:ff:ff:ff:ff:ff".parse::<FlowMatch>().expect_err("a group").to_string();
    assert!(error.starts_with("ff:ff:ff:ff:ff:ff is a group address"), "{error}");
}
