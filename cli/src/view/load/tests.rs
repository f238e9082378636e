use std::time::Duration;

use linerate_load::capacity::{self, SearchEnd, SearchOptions};
use linerate_load::generator::GeneratorOptions;
use linerate_load::report::{SearchMethod, SearchReport};

use super::*;
use crate::origin::HostSummary;
use crate::render::load_fixtures;
use crate::render::style::TextStyle;
use crate::render::{html, text};

fn envelope_of<T: CommandResult>(report: T) -> Envelope<T> {
    Envelope::new(HostSummary::default(), None, report)
}

fn page(document: &Document) -> String {
    let page = html::page(document).expect("a page");
    for broken in ["<script", "NaN", "inf,", ",inf", "<warning>", "<lo>"] {
        assert!(!page.contains(broken), "{broken}");
    }
    page
}

fn plain(document: &Document) -> String {
    text::text(document, TextStyle { width: 100, colour: false })
}

fn curves(page: &str) -> usize {
    page.matches("<svg class=\"curves\"").count()
}

#[test]
fn a_slot_page_has_four_curves_over_time() {
    let page = page(&load_fixtures::envelope().document());
    assert_eq!(curves(&page), 4);
    for words in ["NOERROR", "code 11", "Missed:"] {
        assert!(page.contains(words), "{words}");
    }
    // Loss of 3 % in the second second.
    assert!(page.contains("lost of the requests of that time: 3.0 % at 1.5 s"), "{page}");
}

#[test]
fn a_slot_without_intervals_and_codes_has_a_page_without_curves() {
    let mut envelope = load_fixtures::envelope();
    envelope.result.outcome = load_fixtures::outcome(1.0, 3);
    envelope.result.outcome.intervals.clear();
    envelope.result.outcome.codes.clear();
    assert_eq!(curves(&page(&envelope.document())), 0);
}

#[test]
fn a_ramp_page_has_three_curves_over_the_rate() {
    let report = RampReport {
        generator: load_fixtures::generator(),
        steps: vec![load_fixtures::outcome(100.0, 0), load_fixtures::outcome(200.0, 30)],
        missed: vec!["at 200/s: 5.0 % of the requests were lost, over --max-loss 0.10 %".to_owned()],
    };
    let page = page(&envelope_of(report).document());
    assert_eq!(curves(&page), 3);
    assert!(page.contains("lost: 5.0 % at 200") && page.contains("Missed:"), "{page}");
}

fn generator() -> Box<dyn linerate_load::Generator> {
    let target = "127.0.0.1:9".parse().expect("an address");
    GeneratorOptions::new(vec![target]).start_socket().expect("a generator")
}

#[test]
fn an_unknown_overload_goodput_has_a_reason() {
    let overload_results =
        capacity::overload(&mut *generator(), 0.0, &[2.0], Duration::from_millis(1), Duration::ZERO)
            .expect("nothing is sent");
    let report = OverloadReport {
        generator: load_fixtures::generator(),
        capacity_per_second: 10.0,
        overload: overload_results,
    };
    assert!(page(&envelope_of(report).document()).contains("unknown: capacity is not known"));
}

#[test]
fn a_search_without_a_capacity_has_a_page_and_text() {
    // The budget is zero, so nothing is sent.
    let options = SearchOptions { budget: Duration::ZERO, ..SearchOptions::default() };
    let capacity = capacity::search_repeatedly(&mut *generator(), &options, 3).expect("a result");
    let mut report = SearchReport {
        generator: load_fixtures::generator(),
        method: SearchMethod {
            max_loss_ratio: 0.001,
            max_p99_ns: Some(1_000_000),
            resolution_ratio: 0.01,
            slot_seconds: 0.5,
            lead_in_seconds: 0.25,
            confirm_slot_seconds: 2.25,
            searches_wanted: 3,
        },
        capacity,
        overload: Vec::new(),
        missed: Vec::new(),
    };
    let document = envelope_of(report.clone()).document();
    assert!(page(&document).contains("Capacity: none: no rate holds"));
    let text = plain(&document);
    assert!(text.starts_with("Capacity: none: no rate holds\n"), "{text}");
    assert!(text.contains("99 % answered within 1.00"), "{text}");

    report.capacity.neighbourhood.ended = SearchEnd::Cancelled;
    let text = plain(&envelope_of(report.clone()).document());
    assert!(text.starts_with("Capacity: unknown: interrupted\n"), "{text}");

    // Two searches have no interval.
    let estimate = &mut report.capacity.transactions_per_second;
    (estimate.median, estimate.samples) = (1_000.0, 2);
    assert!(page(&envelope_of(report).document()).contains("highest rate that holds: median of 2 searches"));
}

#[test]
fn slot_text_has_counts_codes_and_warnings() {
    let text = plain(&load_fixtures::envelope().document());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("\nMissed: 1.0 % of the requests were lost"), "{text}");
    assert!(words.contains("sent 3,000, answered 2,970, lost 30 (1.0 %)"), "{text}");
    assert!(words.contains("NOERROR 2,963 (12 truncated), code 11 7"), "{text}");
    assert!(words.contains("Warning: a <warning> & more."), "{text}");
}

#[test]
fn requests_without_a_reply_have_reasons_that_add_up() {
    let mut envelope = load_fixtures::envelope();
    let outcome = &mut envelope.result.outcome;
    (outcome.answered, outcome.lost) = (outcome.sent - 100, 100);
    (outcome.corrupt, outcome.late) = (3, 5);
    outcome.self_watch.refused_by_link = 40;
    let reasons = unanswered(&envelope.result.outcome, "echo");
    let counts = reasons.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    assert_eq!(counts.collect::<Vec<_>>(), [40, 3, 5, 52], "{reasons}");
    assert!(!reasons.contains("--workload"), "{reasons}");
    envelope.result.outcome.answered = 0;
    assert!(plain(&envelope.document()).contains("--workload"), "nothing was answered");
    envelope.result.outcome.lost = 0;
    assert!(!plain(&envelope.document()).contains("no reply"));
}

#[test]
fn refused_requests_count_as_sent() {
    let mut envelope = load_fixtures::envelope();
    envelope.result.outcome.send_errors.refused = 50;
    for no_reply in [false, true] {
        envelope.result.no_reply = no_reply;
        let document = envelope.document();
        assert!(!page(&document).contains("not sent") && !plain(&document).contains("not sent"));
    }
}
