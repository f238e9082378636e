use linerate_host::Known;
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::boost::delivery::PlanConformity;

use super::*;
use crate::render::boost_plan::sample::nsd;

const WIDE: TextStyle = TextStyle { width: 100, colour: false };

fn landed(packets: u64, on_arrival_cpu: u64) -> DeliveryCounts {
    let agreement = DeliveryAgreement { packets, on_arrival_cpu, ..DeliveryAgreement::default() };
    DeliveryCounts { seconds: Some(2.0), agreement: Known::Value(agreement) }
}

fn told(verification: &BoostVerification, now: Option<DeliveryCounts>) -> String {
    let sample = nsd();
    let document = BoostApplyDocument {
        schema: "linerate.boost-apply/1",
        version: "0.1.0",
        argv: Vec::new(),
        started_unix_seconds: Some(1_700_000_000),
        tune: Some(3),
        goal: "boost nsd on port 53",
        host: "ns1",
        until: None,
        changes: &[],
        broke_off: None,
        places: &sample.boost.places,
        refusals: &[],
        advice: &[],
        before: landed(2_000, 1_000),
        now,
        verification,
    };
    let line = <BoostApplyTestArgs as clap::Parser>::parse_from(["test"]);
    boost_report(&document, true, &line.place, WIDE)
}

#[derive(clap::Parser)]
struct BoostApplyTestArgs {
    #[command(flatten)]
    place: StateDirArgs,
}

#[test]
fn before_and_now_are_side_by_side() {
    let conformity = PlanConformity { packets: 4_000, as_planned: 4_000, ..PlanConformity::default() };
    let verification = BoostVerification::AsPlanned { conformity, replies_per_request: None };
    let text = told(&verification, Some(landed(4_000, 4_000)));
    assert!(text.replace('\n', " ").contains("Not verified: whether the server answers as"), "{text}");
    let verification = BoostVerification::AsPlanned { conformity, replies_per_request: Some([1.0, 0.99]) };
    let text = told(&verification, Some(landed(4_000, 4_000)));
    let verdict = "Verified: 100 % of 4,000 datagrams landed as planned, and the server sent 0.99 replies per \
                   request (1.00 before).";
    assert!(text.replace('\n', " ").contains(verdict), "{text}");
    for line in [
        "Tune 3: 0 changes made and read back.",
        "  datagrams read a second          1.00 k  2.00 k",
        "  read on the CPU they arrived on    50 %   100 %",
        "to take it back linerate tune undo 3",
    ] {
        assert!(text.lines().any(|told| told == line), "no '{line}' in\n{text}");
    }
}

#[test]
fn what_lands_elsewhere_and_what_is_not_known_is_said() {
    let conformity =
        PlanConformity { packets: 1_000, as_planned: 700, in_other_socket: 200, on_other_cpu: 100 };
    let text = told(&BoostVerification::Elsewhere { conformity }, None).replace('\n', " ");
    assert!(text.contains("Only 70 % of 1,000 datagrams landed as planned: 200 were put into"), "{text}");
    let text = told(&BoostVerification::Harmful { why: "it sent less".into() }, None);
    assert!(text.contains("Undone, because it sent less.") && !text.contains("take it back"), "{text}");
    let text = told(&BoostVerification::NotJudged { why: "no BTF".into() }, None);
    assert!(text.contains("Not verified: no BTF.\n"), "{text}");
}

#[test]
fn events_are_a_line_each() {
    let lost = WatchEvent::Lost { pid: 813, tid: 813, done: vec!["CPU 0's packets go to 814".into()] };
    let line = event(&lost);
    assert!(line.ends_with("  thread 813 of process 813 is gone: CPU 0's packets go to 814\n"), "{line}");
    assert!(event(&WatchEvent::Ended).ends_with("the server is gone, and the boost with it\n"));
}
