use super::*;
use crate::render::style::TextStyle;
use crate::render::text;

const WIDE: TextStyle = TextStyle { width: 100, colour: false };
const NARROW: TextStyle = TextStyle { width: 60, colour: false };

fn plan(plan: &TunePlan, host: &str, full: bool, style: TextStyle) -> String {
    text::text(&document(&PlannedTune::of_plan(plan.clone(), host), full), style)
}

fn sample() -> TunePlan {
    serde_json::from_str(include_str!("tests/plan.json")).expect("a plan")
}

#[test]
fn a_plan_is_grouped_by_interface_and_kind() {
    insta::assert_snapshot!(plan(&sample(), "ns1", false, WIDE));
}

#[test]
fn the_full_plan_has_every_detail() {
    insta::assert_snapshot!(plan(&sample(), "ns1", true, NARROW));
}

#[test]
fn an_empty_plan_prints_nothing_to_change() {
    let empty = TunePlan { changes: Vec::new(), skipped: Vec::new(), cpus: Vec::new(), ..sample() };
    assert_eq!(plan(&empty, "ns1", false, WIDE), "Nothing to change on ns1 for udp-server.\n");
}

#[test]
fn held_back_changes_have_a_reason_a_first_fix_and_an_effect() {
    let mut waiting = sample();
    let changes = std::mem::take(&mut waiting.changes);
    waiting.held_back.push(linerate_tune::plan::HeldBackChanges {
        until_fixed: "socket.shared-by-threads".into(),
        why: "20 threads serve one socket.".into(),
        fix_first: "Open a socket per thread.".into(),
        effect: "270,000 to 17,000 transactions/s.".into(),
        source: "Makita 2016".into(),
        changes,
    });
    let text = plan(&waiting, "ns1", false, WIDE);
    assert!(text.starts_with("Nothing to change on ns1 for udp-server. 4 changes held back."), "{text}");
    for words in ["20 threads serve one socket", "a socket per thread", "270,000 to 17,000", "--anyway"] {
        assert!(text.contains(words), "no '{words}' in {text}");
    }
    assert!(
        text.contains("and 2 more (--full)") && plan(&waiting, "ns1", true, WIDE).contains("audit"),
        "{text}"
    );
}

#[test]
fn cpu_ranges_keep_the_order_of_the_cpus() {
    assert_eq!(cpu_runs_text(&[0, 1, 2, 10, 11, 5]), "0-2, then 10-11, then 5");
    assert_eq!(cpu_runs_text(&[0, 2, 4, 6, 8, 10]), "0 2 4 6 8 10");
}
