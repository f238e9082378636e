//! All tunes, a line each.

use linerate_tune::journal::record::UndoReason;
use linerate_tune::status::TuneHistory;
use linerate_tune::status::history::PastTune;

use super::format;
use super::style::TextStyle;
use super::tune_plan::count_with_noun;
use super::tune_status;

/// The tunes, the earliest first.
pub(crate) fn history(history: &TuneHistory, style: TextStyle) -> String {
    let mut lines = tune_status::trouble(history.trouble.as_ref(), &history.journal, style);
    if history.tunes.is_empty() {
        lines.push("No tune was ever made.".to_owned());
    }
    let widest = history.tunes.iter().map(|tune| tune.goal.chars().count()).max().unwrap_or(0);
    for tune in &history.tunes {
        lines.push(format!(
            "{:>4}  {}  {:<widest$}  {}",
            tune.tune,
            format::utc(tune.unix_seconds),
            tune.goal,
            story(tune)
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What became of a tune.
fn story(tune: &PastTune) -> String {
    let mut parts = vec![format!("{} written", count_with_noun(tune.written, "setting"))];
    if tune.refused > 0 {
        parts.push(format!("{} refused", tune.refused));
    }
    match &tune.broke_off {
        Some(why) => parts.push(format!("broke off: {why}")),
        None if !tune.complete => parts.push("not finished".to_owned()),
        None => {}
    }
    if tune.confirmed {
        parts.push("confirmed".to_owned());
    }
    if tune.persisted {
        parts.push("persists".to_owned());
    }
    if let Some(undo) = &tune.undo {
        let why = match undo.why {
            UndoReason::Asked => "",
            UndoReason::Expired => ", its time was over",
            UndoReason::Unconfirmed => ", nobody confirmed it",
            UndoReason::Harmful => ", it did harm",
            UndoReason::Died => ", its program died",
            UndoReason::Finished => ", what it was for was over",
        };
        let when = format::utc(undo.unix_seconds);
        parts.push(match undo.complete {
            true => format!("undone {when}{why}"),
            false => format!("half undone {when}{why}"),
        });
        if undo.left > 0 {
            parts.push(format!("{} left", undo.left));
        }
        if undo.refused > 0 {
            parts.push(format!("{} not put back", undo.refused));
        }
    }
    parts.join("; ")
}
