use std::collections::BTreeMap;

use linerate_host::stage::socket::SocketProtocol;
use linerate_tune::boost::replicas::{CopyState, ReplicaSetState};
use linerate_tune::boost::report::BoostedServerState;
use linerate_tune::journal::record::{UndoOutcome, UndoReason};
use linerate_tune::status::{SettingState, SettingStatus, TuneState, TuneStatus};
use linerate_tune::transaction::{UndoReport, UndoneSetting};

use super::*;
use crate::origin::HostSummary;
use crate::render::style::TextStyle;
use crate::render::text;

const WIDE: TextStyle = TextStyle { width: 100, colour: false };

/// A master that holds all sockets, and two workers with a socket of each group. The agreement has
/// the packets of the delivery.
pub(crate) fn nsd() -> BoostPlanReport {
    serde_json::from_str(include_str!("tests/plan.json")).expect("a plan")
}

/// The plan in effect: its changes, places, refusals and advice are those of [`nsd`], and `before`
/// is `DeliveryCounts::of` its server.
pub(crate) fn nsd_applied() -> BoostApplyReport {
    serde_json::from_str(include_str!("tests/applied.json")).expect("a report")
}

fn plain_text(document: &Document) -> String {
    text::text(document, WIDE)
}

fn plan_text(report: BoostPlanReport, full: bool) -> String {
    plain_text(&plan(&Envelope::new(HostSummary::default(), None, report), full))
}

#[test]
fn a_plan_has_a_verdict_the_server_and_the_changes() {
    insta::assert_snapshot!(plan_text(nsd(), false));
}

#[test]
fn a_full_plan_has_every_cpu_and_reason() {
    insta::assert_snapshot!(plan_text(nsd(), true));
}

#[test]
fn a_server_that_cannot_be_boosted_is_reported_with_the_reason() {
    let mut report = nsd();
    report.boost.plan.changes.clear();
    report.agreement = Known::unknown("no BTF");
    let text = plan_text(report.clone(), false).replace('\n', " ");
    assert!(
        text.starts_with(
            "nsd on port 53: where its packets are delivered is not known (no BTF). Nothing can be done from outside: \
             tcp 0.0.0.0:53: is steered already"
        ),
        "{text}"
    );
    report.boost.refusals.clear();
    let text = plan_text(report, false);
    assert!(text.starts_with("nsd on port 53: nothing to change; where "), "{text}");
}

fn delivery(packets: u64, on_arrival_cpu: u64) -> DeliveryCounts {
    let agreement = DeliveryAgreement { packets, on_arrival_cpu, ..DeliveryAgreement::default() };
    DeliveryCounts { seconds: Some(2.0), agreement: Known::Value(agreement) }
}

fn apply_text(verification: BoostVerification, now: Option<DeliveryCounts>) -> String {
    let changes = Vec::new();
    let before = delivery(2_000, 1_000);
    let report = BoostApplyReport { tune: Some(3), changes, before, now, verification, ..nsd_applied() };
    plain_text(&apply(&Envelope::new(HostSummary::default(), None, report), &default_command))
}

#[test]
fn delivery_before_and_after_is_shown_side_by_side() {
    let conformity = PlanConformity { packets: 4_000, as_planned: 4_000, ..PlanConformity::default() };
    let verification = BoostVerification::AsPlanned { conformity, replies_per_request: Some([1.0, 0.99]) };
    insta::assert_snapshot!(apply_text(verification, Some(delivery(4_000, 4_000))));
    let verification = BoostVerification::AsPlanned { conformity, replies_per_request: None };
    let text = apply_text(verification, None).replace('\n', " ");
    assert!(text.contains("Not verified: whether the server answers as"), "{text}");
}

#[test]
fn wrong_delivery_and_harmful_boosts_are_reported() {
    let conformity =
        PlanConformity { packets: 1_000, as_planned: 700, in_other_socket: 200, on_other_cpu: 100 };
    let text = apply_text(BoostVerification::Elsewhere { conformity }, None).replace('\n', " ");
    assert!(text.contains("Only 70 % of 1,000 datagrams were delivered as planned: 200 were put"), "{text}");
    let text = apply_text(BoostVerification::Harmful { why: "it sent less".into() }, None);
    assert!(text.contains("Undone, because it sent less.") && !text.contains("to undo it"), "{text}");
}

#[test]
fn each_watch_event_is_reported_in_one_line() {
    let done = vec!["CPU 0's packets go to 814".into(), "814 is pinned".into()];
    for (watch_event, expected) in [
        (
            WatchEvent::Lost { pid: 813, tid: 813, done },
            "thread 813 of process 813 is gone: CPU 0's packets go to 814; 814 is pinned",
        ),
        (
            WatchEvent::Found { pid: 813, tid: 815, done: Vec::new() },
            "thread 815 of process 813 is new: nothing was to be changed",
        ),
        (WatchEvent::NotDone { why: "pin 815: refused".into() }, "not done: pin 815: refused"),
        (WatchEvent::Ended, "the server is gone, and the boost with it"),
        (WatchEvent::Undone, "the boost was undone"),
    ] {
        let line = event(&watch_event);
        assert!(line.ends_with(&format!("  {expected}\n")) && line.lines().count() == 1, "{line}");
    }
}

/// Copies whose supervisor was killed; one copy has ended.
fn replicas() -> ReplicaSetState {
    let copy = |copy, processes: &[u32], restarts| CopyState {
        copy,
        processes: processes.to_vec(),
        cpus: match processes {
            [] => Known::unknown("it has ended"),
            _ => Known::Value([copy].into_iter().collect()),
        },
        restarts: Known::Value(restarts),
    };
    let copies = vec![copy(0, &[813, 815], 0), copy(1, &[], 2)];
    ReplicaSetState { supervisor: 812, is_supervised: false, is_replaced: false, ports: vec![123], copies }
}

fn status_report() -> BoostStatusReport {
    let socket = |cookie, present, packets| SteeredSocket {
        cookie,
        present,
        packets_by_cpu: BTreeMap::from([(0, packets)]),
    };
    let steered = SteeredSockets {
        by_cpu: BTreeMap::from([(0, vec![41]), (1, vec![42]), (2, vec![41])]),
        sockets: vec![socket(41, true, 12_345), socket(42, false, 7)],
        hashed_by_cpu: BTreeMap::from([(1, 9)]),
    };
    let tune = TuneStatus {
        tune: 3,
        unix_seconds: 1_767_225_600,
        version: "0.1.0".into(),
        argv: ["linerate", "boost", "--port", "53", "apply", "--no-pin"].map(str::to_owned).into(),
        goal: "boost nsd on port 53".into(),
        devices: Vec::new(),
        earlier_boot: Some(false),
        state: TuneState::Made,
        until: None,
        seconds_left: None,
        overdue: None,
        persisted: false,
        can_resume: false,
        settings: Vec::new(),
    };
    let now =
        BoostedServerState { delivery: delivery(1_000, 1_000), unread_sockets: vec![42], changes_wanted: 1 };
    let local = "0.0.0.0:53".parse().expect("an address");
    let group = SteeredGroup { protocol: SocketProtocol::Udp, local, steered: Known::Value(Some(steered)) };
    BoostStatusReport {
        journal: "/var/lib/linerate/journal".into(),
        trouble: None,
        holder: None,
        boosts: vec![ActiveBoost { tune, groups: vec![group], now: Known::Value(now) }],
        replicas: Known::Value(vec![replicas()]),
    }
}

#[test]
fn an_active_boost_shows_its_counters_and_problems() {
    let status_text = |report| {
        plain_text(&status(&Envelope::new(HostSummary::default(), None, report), &default_command, false))
    };
    insta::assert_snapshot!(status_text(status_report()));
    let none =
        BoostStatusReport { boosts: Vec::new(), replicas: Known::Value(Vec::new()), ..status_report() };
    assert_eq!(status_text(none), "No boost is in effect.\n");
}

#[test]
fn settings_that_ended_with_their_process_are_only_counted_unless_all_are_shown() {
    let setting = linerate_host::Setting::ThreadCpus { pid: 7, tid: 8, started: 1 };
    let (name, why) = ("thread 8".to_owned(), "it has ended".to_owned());
    let original = linerate_host::SettingValue::new("0-3");
    let outcome = UndoOutcome::Gone { why: why.clone() };
    let (from, to, now, state) = (None, None, None, SettingState::Gone { why });
    let mut active = status_report();
    active.boosts[0].tune.settings =
        vec![SettingStatus { setting: setting.clone(), name: name.clone(), from, to, now, state }];
    let settings = vec![UndoneSetting { setting, name, renamed_from: None, original, outcome }];
    let (why, earlier_boot, damaged_lines) = (UndoReason::Asked, false, Vec::new());
    let undone = UndoReport { tune: 3, why, earlier_boot, settings, damaged_lines };
    let active = Envelope::new(HostSummary::default(), None, active);
    let undone = Envelope::new(HostSummary::default(), None, undone);
    for full in [false, true] {
        for document in [status(&active, &default_command, full), crate::view::tune::undo(&undone, full)] {
            let text = plain_text(&document);
            assert!(text.contains("1 gone") && text.contains("thread 8") == full, "{text}");
        }
    }
}
