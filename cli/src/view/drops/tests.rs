use linerate_host::Known;
use linerate_trace::drops::{AccountingPath, PacketAccounting, StageLoss};

use super::*;
use crate::origin::HostSummary;
use crate::render::style::TextStyle;
use crate::render::{html, text};

const STYLE: TextStyle = TextStyle { width: 110, colour: false };

/// 1,000 requests, of which a rule drops 100, and replies to the others.
pub(crate) fn accounting() -> PacketAccounting {
    serde_json::from_str(include_str!("tests/accounting.json")).expect("an accounting")
}

fn envelope(accounting: PacketAccounting, full: bool) -> Envelope<DropsResult> {
    let result = DropsResult { full, ..DropsResult::new(accounting) };
    Envelope::new(HostSummary::default(), Some(0), result)
}

fn drops_text(accounting: &PacketAccounting, full: bool) -> String {
    text::text(&envelope(accounting.clone(), full).document(), STYLE)
}

#[test]
fn the_page_shows_losses_and_has_no_script() {
    let page = html::page(&envelope(accounting(), false).document()).expect("a page");
    assert!(page.contains("100 lost:") && page.contains("a rule of netfilter dropped it"), "{page}");
    assert!(!page.contains("<script"), "{page}");
}

#[test]
fn the_verdict_is_first_and_stages_without_loss_are_folded() {
    let text = drops_text(&accounting(), false);
    let first = text.lines().next().expect("a line");
    assert_eq!(first, "Requests: 1,000 in, 100 lost: a rule of netfilter dropped it (nf_hook_slow).");
    assert!(
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("netfilter-rule · in nf_hook_slow+0xb1 · eth0 · kfree_skb reason NETFILTER_DROP")
    );
    assert!(text.contains("See the counters of the rules."));
    assert!(text.contains("(1 stage that lost nothing: --full)") && !text.contains("\n  link "), "{text}");
    assert!(drops_text(&accounting(), true).contains("\n  link "));
}

#[test]
fn unaccounted_packets_are_reported_with_a_likely_place() {
    let mut ledger = accounting();
    ledger.requests.stages[1].unaccounted = Known::Value(7);
    ledger.requests.stages[1].likely = vec!["packets on their way when counting ended".into()];
    let text = drops_text(&ledger, false);
    assert!(text.lines().next().is_some_and(|line| line.ends_with("7 unaccounted for.")), "{text}");
    assert!(text.contains("unaccounted: 7") && text.contains("perhaps: packets on their way"), "{text}");
}

#[test]
fn all_answered_is_reported_only_if_every_count_is_known() {
    let mut ledger = accounting();
    for path in [&mut ledger.requests, &mut ledger.replies] {
        path.stages.iter_mut().for_each(|stage| {
            stage.losses.clear();
            (stage.packets_in, stage.packets_out) = (Known::Value(9), Known::Value(9));
        });
    }
    let text = drops_text(&ledger, false);
    assert!(text.starts_with("All of 9 requests were answered; nothing is unaccounted for.\n"), "{text}");
    ledger.replies.stages[1].packets_out = Known::unknown("nobody says");
    assert!(
        drops_text(&ledger, false).starts_with("Requests: 9 in, none lost.\n\nReplies: 9 in, none lost.\n")
    );
    ledger.replies.stages[0].waiting = 2;
    assert!(drops_text(&ledger, false).contains("none lost, 2 waiting at the end."));
}

#[test]
fn the_counting_overhead_is_reported() {
    let mut ledger = accounting();
    let text = drops_text(&ledger, false);
    assert!(text.contains("2.1 % of one CPU") && text.contains("61 ns"), "{text}");
    ledger.overhead = Known::unknown("it was not timed");
    assert!(drops_text(&ledger, false).contains("is not known: it was not timed"));
}

#[test]
fn the_verdict_sums_minor_losses_and_uses_the_singular() {
    let mut ledger = accounting();
    ledger.requests.stages[2].losses[0].packets = 10;
    let loss = ledger.requests.stages[2].losses[0].clone();
    for name in ["a", "b", "c"] {
        ledger.requests.stages[2].losses.push(StageLoss { name: name.to_owned(), ..loss.clone() });
    }
    ledger.requests.stages[3].forwarded = 60;
    let words = |ledger: &PacketAccounting| {
        drops_text(ledger, false).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = words(&ledger);
    assert!(text.starts_with("Requests: 1,000 in, 60 forwarded, 10 lost: "), "{text}");
    assert!(text.contains("10 lost in 1 other way."), "{text}");
    ledger.requests.stages[2].losses.push(StageLoss { name: "d".to_owned(), packets: 2, ..loss });
    let text = words(&ledger);
    assert!(text.contains("12 lost in 2 other ways."), "{text}");
}

#[test]
fn an_accounting_without_packets_is_not_a_success() {
    let empty = PacketAccounting {
        requests: AccountingPath::default(),
        replies: AccountingPath::default(),
        ..accounting()
    };
    assert!(drops_text(&empty, false).contains("No packets were seen"));
}
