//! The page's structure; every figure comes from made-up fixtures.

use super::*;
use crate::render::made_up;

/// Elements that have no end tag in HTML.
const VOID: &[&str] = &["meta", "link", "br"];

fn page(report: &LadderReport) -> String {
    ladder(report).expect("rendered")
}

fn every_kind() -> Vec<LadderReport> {
    vec![
        made_up::ladder_run(),
        made_up::all_skipped(),
        made_up::little_known(),
        made_up::interrupted(),
        made_up::hostile(),
    ]
}

/// Names of the tags in order of appearance, an end tag with its slash, an empty one with it behind.
fn tags(html: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let end = rest[start..].find('>').expect("every tag is closed") + start;
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "a bare < in the text before: {tag}");
        let empty = if tag.ends_with('/') { "/" } else { "" };
        let name = tag.split([' ', '\n']).next().unwrap_or_default().trim_end_matches('/');
        tags.push(format!("{name}{empty}"));
        rest = &rest[end + 1..];
    }
    tags
}

#[test]
fn every_tag_is_balanced() {
    for report in every_kind() {
        let mut open: Vec<String> = Vec::new();
        for tag in tags(&page(&report)) {
            if tag.starts_with('!') || tag.ends_with('/') || VOID.contains(&tag.as_str()) {
                continue;
            }
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "in {open:?}"),
                None => open.push(tag),
            }
        }
        assert_eq!(open, Vec::<String>::new());
    }
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    for report in every_kind() {
        let page = page(&report);
        for banned in ["http:", "https:", "src=", "url(", "@import", "<script", " onload", "javascript:"] {
            assert!(!page.contains(banned), "{banned}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn every_text_is_escaped() {
    let page = page(&made_up::hostile());
    assert!(page.contains("&#60;script&#62;"));
    assert_eq!(page.matches("</title>").count(), page.matches("<title>").count());
}

#[test]
fn both_schemes_and_print_are_there() {
    let page = page(&made_up::ladder_run());
    assert!(page.contains("@media screen and (prefers-color-scheme: dark)"));
    assert!(page.contains("@media print"));
    assert!(page.contains("name=\"color-scheme\" content=\"light dark\""));
}

#[test]
fn every_plot_is_told_in_words() {
    let page = page(&made_up::ladder_run());
    let plots = page.matches("<svg role=\"img\">").count();
    assert_eq!(plots, page.matches("<svg role=\"img\">\n<title>").count());
    // 12 measured steps in three charts, and 11 + 6 published steps.
    assert_eq!(plots, 12 * 3 + 17);
    assert!(page.contains("reuseport: 231 k transactions a second, interval 225–236 k; ×1.24 the rate of irq-affinity-rps, better"));
}

#[test]
fn every_step_is_in_chart_table_and_list() {
    for report in [made_up::ladder_run(), made_up::all_skipped(), made_up::interrupted()] {
        let page = page(&report);
        for step in &report.steps {
            assert!(page.contains(&format!("<span class=\"name\">{}</span>", step.id)));
            assert!(page.contains(&format!("<th scope=\"row\">{}</th>", step.id)));
            assert!(page.contains(&format!("<summary><b>{}</b>", step.id)));
        }
    }
}

#[test]
fn skipped_steps_show_their_reason() {
    let report = made_up::ladder_run();
    let page = page(&report);
    assert_eq!(page.matches("<li class=\"skipped\">").count(), 2);
    assert!(page.contains("skipped: changes the whole host: ask for it with --host-wide"));
}

#[test]
fn published_ladders_say_that_they_were_not_measured() {
    let with = page(&made_up::ladder_run());
    assert!(with.contains("other hardware, not measured here</span>"));
    assert!(with.contains(
        "naive: 197–350 k packets a second, ×1.00 its own first step; published, not measured here"
    ));
    assert!(with.contains("Beside the ladder: xps ×4.65, from 1.09 M to 5.05 M."));
    assert!(!page(&made_up::little_known()).contains("id=\"published\""));
}

#[test]
fn charts_without_a_value_are_left_out() {
    let page = page(&made_up::little_known());
    assert!(!page.contains("id=\"latency\""));
    assert!(!page.contains("id=\"goodput\""));
    assert!(page.contains("this machine has no hardware counters"));
}

#[test]
fn an_interrupted_run_says_so_at_the_top() {
    let page = page(&made_up::interrupted());
    assert!(page.find("<b>Interrupted.</b>") < page.find("id=\"run\""));
}

#[test]
fn positions_stay_on_the_chart() {
    for report in every_kind() {
        let page = page(&report);
        let body = &page[page.find("<body>").expect("a body")..];
        for attribute in ["x1=\"", "x2=\"", "cx=\"", " x=\"", "left:"] {
            for rest in body.split(attribute).skip(1) {
                let number = rest.split('%').next().unwrap_or_default();
                let at: f64 = number.parse().unwrap_or_else(|_| panic!("{attribute}{number}"));
                assert!((0.0..=100.0).contains(&at), "{attribute}{at}");
            }
        }
    }
}

#[test]
fn structure() {
    let page = page(&made_up::ladder_run());
    let start = page.find("<body>").expect("a body");
    let outline: Vec<String> = page[start..]
        .lines()
        .filter(|line| {
            ["<h1", "<h2", "<h3", "<section", "<summary", "<dt"].iter().any(|tag| line.contains(tag))
        })
        .map(str::to_owned)
        .collect();
    insta::assert_snapshot!(outline.join("\n"));
}
