//! Snapshots of the table; every figure comes from made-up fixtures.

use super::*;
use crate::render::made_up;

fn plain(report: &LadderReport, width: usize) -> String {
    ladder(report, TextStyle { width, colour: false })
}

#[test]
fn wide_terminal() {
    insta::assert_snapshot!(plain(&made_up::ladder_run(), 160));
}

#[test]
fn hundred_columns() {
    insta::assert_snapshot!(plain(&made_up::ladder_run(), 100));
}

#[test]
fn narrow_terminal() {
    insta::assert_snapshot!(plain(&made_up::ladder_run(), 72));
}

#[test]
fn very_narrow_terminal() {
    insta::assert_snapshot!(plain(&made_up::ladder_run(), 44));
}

#[test]
fn in_colour() {
    let text = ladder(&made_up::ladder_run(), TextStyle { width: 100, colour: true });
    insta::assert_snapshot!(text.replace('\u{1b}', "ESC"));
}

#[test]
fn everything_skipped() {
    insta::assert_snapshot!(plain(&made_up::all_skipped(), 100));
}

#[test]
fn unknown_values() {
    insta::assert_snapshot!(plain(&made_up::little_known(), 100));
}

#[test]
fn interrupted() {
    insta::assert_snapshot!(plain(&made_up::interrupted(), 100));
}

#[test]
fn reverted_steps_are_told() {
    let mut report = made_up::ladder_run();
    report.method.policy = "keep-better".to_owned();
    report.steps[1].kept = false;
    assert!(plain(&report, 100).contains("worse, undone"));
}

#[test]
fn lines_fit_every_width_that_holds_the_names() {
    for report in
        [made_up::ladder_run(), made_up::all_skipped(), made_up::little_known(), made_up::interrupted()]
    {
        for width in 34..180 {
            for colour in [false, true] {
                let text = ladder(&report, TextStyle { width, colour });
                for line in text.lines() {
                    assert!(columns_of(line) <= width, "{width}: {line}");
                }
            }
        }
    }
}

#[test]
fn no_width_is_too_small_to_print() {
    for width in 0..34 {
        assert!(plain(&made_up::ladder_run(), width).contains("204 k"));
    }
}

#[test]
fn figures_are_never_broken() {
    for width in 34..180 {
        let text = plain(&made_up::ladder_run(), width);
        assert!(
            text.lines().any(|line| line.starts_with("pin-threads") && line.contains("279 k")),
            "{width}"
        );
    }
}

#[test]
fn colour_only_adds_escapes() {
    let mut bare = String::new();
    let mut in_escape = false;
    for character in ladder(&made_up::ladder_run(), TextStyle { width: 100, colour: true }).chars() {
        match character {
            '\u{1b}' => in_escape = true,
            'm' if in_escape => in_escape = false,
            _ if in_escape => {}
            _ => bare.push(character),
        }
    }
    let trimmed = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(trimmed(&bare), trimmed(&plain(&made_up::ladder_run(), 100)));
}
