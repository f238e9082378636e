use std::time::Duration;

use linerate_load::capacity::{self, SearchOptions};
use linerate_load::generator::GeneratorBuilder;

use anyhow::Result;

use super::*;
use crate::command::load::overload::OverloadDocument;
use crate::command::load::ramp::RampDocument;
use crate::command::load::search::{SearchDocument, SearchMethod};
use crate::render::made_up_load;

/// What every page has to be.
fn checked(page: Result<String>) -> String {
    let page = page.expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for outside in ["http:", "https:", "src=", "<script", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for broken in ["NaN", "inf,", ",inf", "<warning>", "<lo>"] {
        assert!(!page.contains(broken), "{broken}");
    }
    page
}

fn curves(page: &str) -> usize {
    page.matches("<svg class=\"curves\"").count()
}

#[test]
fn a_slot_has_its_curves_over_time() {
    let page = checked(slot(&made_up_load::document()));
    assert_eq!(curves(&page), 4);
    for told in ["<h2>Rate</h2>", "<h2>Latency</h2>", "<h2>Loss</h2>", "NOERROR", "code 11", "Missed."] {
        assert!(page.contains(told), "{told}");
    }
    // Loss of 3 % in the second second, as its point says.
    assert!(page.contains("lost of the requests of that time: 3.0 % at 1.5 s"));
}

#[test]
fn a_slot_without_intervals_or_answers_is_a_page_too() {
    let mut document = made_up_load::document();
    document.outcome = made_up_load::outcome(1.0, 3);
    document.outcome.intervals.clear();
    document.outcome.codes.clear();
    let page = checked(slot(&document));
    assert_eq!(curves(&page), 0);
}

#[test]
fn a_ramp_has_its_curves_over_the_rate() {
    let document = RampDocument {
        schema: crate::command::load::ramp::SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        argv: vec!["linerate".to_owned()],
        host: None,
        generator: made_up_load::generator(),
        steps: vec![made_up_load::outcome(100.0, 0), made_up_load::outcome(200.0, 30)],
        warnings: Vec::new(),
    };
    let page = checked(ramp(&document));
    assert_eq!(curves(&page), 3);
    assert!(page.contains("lost: 5.0 % at 200"));
}

#[test]
fn overload_that_is_unknown_says_why() {
    let mut unknown = Vec::new();
    let mut generator = GeneratorBuilder::default()
        .targets(vec!["127.0.0.1:9".parse().expect("an address")])
        .start_socket()
        .expect("a generator");
    let slot = Duration::from_millis(1);
    unknown.extend(capacity::overload(&mut generator, 0.0, &[2.0], slot).expect("nothing is sent"));
    let document = OverloadDocument {
        schema: crate::command::load::overload::SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        argv: Vec::new(),
        started_unix_seconds: None,
        host: None,
        generator: made_up_load::generator(),
        capacity_per_second: 10.0,
        overload: unknown,
        warnings: Vec::new(),
    };
    let page = checked(overload(&document));
    assert!(page.contains("unknown: capacity is not known"));
}

#[test]
fn a_search_that_found_nothing_is_a_page_too() {
    let mut generator = GeneratorBuilder::default()
        .targets(vec!["127.0.0.1:9".parse().expect("an address")])
        .start_socket()
        .expect("a generator");
    // No time, so that nothing is sent.
    let options = SearchOptions { budget: Duration::ZERO, ..SearchOptions::default() };
    let capacity = capacity::search_repeatedly(&mut generator, &options, 3).expect("a result");
    let document = SearchDocument {
        schema: crate::command::load::search::SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        argv: Vec::new(),
        started_unix_seconds: None,
        host: None,
        generator: made_up_load::generator(),
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
        warnings: Vec::new(),
    };
    let page = checked(search(&document));
    assert!(page.contains("Capacity: none: no rate holds") && page.contains("99 % answered within 1.00"));
    let text = crate::render::load_search::text(&document);
    assert!(text.contains("capacity none: no rate holds\n"), "{text}");
}

#[test]
fn the_text_of_a_slot() {
    insta::assert_snapshot!(crate::render::load_text::slot(&made_up_load::document()));
}
