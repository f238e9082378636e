//! What applying a plan did, as text.

use linerate_host::Severity;
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::transaction::boot_seconds;

use super::column::TextColumn;
use super::format;
use super::style::{TextStyle, TextTone};
use super::tune_plan::count_with_noun;
use crate::command::tune::StateDirArgs;
use crate::command::tune::apply::carrying::{AppliedChange, ChangeOutcome};
use crate::command::tune::apply::document::TuneApplyDocument;

/// What was done, what doctor still finds, and how to go back.
pub(crate) fn apply_report(
    applied: &TuneApplyDocument<'_>,
    unread: Option<&str>,
    in_effect: bool,
    place: &StateDirArgs,
    style: TextStyle,
) -> String {
    let mut lines = vec![String::new()];
    let (tone, text) = outcome_line(applied.tune, applied.changes, applied.broke_off);
    lines.extend(whole(style).labelled("", &text).into_iter().map(|line| style.paint(tone, &line)));
    lines.extend(remaining(applied, unread, style));
    if applied.broke_off.is_some() {
        lines.push(to_resume(place, style));
    }
    if in_effect {
        lines.extend(ways_back(applied.tune, applied.until, place, style));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// How many changes were made, and why not all.
pub(super) fn outcome_line(
    tune: u64,
    changes: &[AppliedChange],
    broke_off: Option<&str>,
) -> (TextTone, String) {
    let made = changes.iter().filter(|step| step.outcome == ChangeOutcome::Made).count();
    let already = changes.iter().filter(|step| step.outcome == ChangeOutcome::Already).count();
    let already = if already == 0 { String::new() } else { format!(", {already} were so already") };
    let changes = count_with_noun(made, "change");
    match broke_off {
        None => (TextTone::Good, format!("Tune {tune}: {changes} made and read back{already}.")),
        Some(why) => (TextTone::Bad, format!("Tune {tune} broke off with {changes} made{already}: {why}.")),
    }
}

fn remaining(applied: &TuneApplyDocument<'_>, unread: Option<&str>, style: TextStyle) -> Vec<String> {
    let Some(findings) = &applied.findings else {
        let why = unread.unwrap_or_default();
        return whole(style).labelled("", &format!("What doctor finds now could not be seen: {why}."));
    };
    let mut above: Vec<_> = findings.iter().filter(|finding| finding.severity > Severity::Note).collect();
    above.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    if above.is_empty() {
        return vec!["Doctor finds nothing above note now.".to_owned()];
    }
    let mut lines = vec![format!("Doctor still finds {} above note:", count_with_noun(above.len(), "thing"))];
    let column = TextColumn { style, before: 2, label: 8 };
    for finding in above {
        let text = format!("{}: {}", finding.id, finding.title);
        lines.extend(column.labelled_short(finding.severity.name(), &text));
    }
    lines
}

/// How to finish a tune that broke off.
pub(super) fn to_resume(place: &StateDirArgs, style: TextStyle) -> String {
    next_step_column(style).labelled("to go on", &place.command("apply --resume")).join("\n")
}

/// How a tune that is in effect ends, and how to keep or undo it.
pub(super) fn ways_back(
    tune: u64,
    until: Option<UndoDeadline>,
    place: &StateDirArgs,
    style: TextStyle,
) -> Vec<String> {
    let column = next_step_column(style);
    let mut lines = Vec::new();
    if let Some((seconds, takes_confirmation)) = until.and_then(ends_in) {
        let end = format!("undone by itself in {}", format::elapsed(seconds as f64));
        lines.extend(column.labelled("its end", &end));
        if takes_confirmation {
            lines.extend(column.labelled("to keep it", &place.command(&format!("confirm {tune}"))));
        }
    }
    lines.extend(column.labelled("to take it back", &place.command(&format!("undo {tune}"))));
    lines
}

fn next_step_column(style: TextStyle) -> TextColumn {
    TextColumn { style, before: 0, label: 16 }
}

/// Seconds until it is undone, and whether a confirmation averts that.
fn ends_in(until: UndoDeadline) -> Option<(u64, bool)> {
    Some((until.boot_seconds()?.saturating_sub(boot_seconds()), until.takes_confirmation()))
}

fn whole(style: TextStyle) -> TextColumn {
    TextColumn { style, before: 0, label: 0 }
}
