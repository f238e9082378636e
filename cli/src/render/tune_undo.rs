//! What became of undoing a tune, as text.

use linerate_tune::journal::record::{UndoOutcome, UndoReason};
use linerate_tune::transaction::{UndoReport, UndoneSetting};

use super::style::{TextStyle, TextTone};
use super::tune_plan::{count_with_noun, shown};

/// What was not put back, a line each, and a line that sums up. In `full`, what was put back too.
pub(crate) fn undo_text(undone: &UndoReport, full: bool, style: TextStyle) -> String {
    let told = undone.settings.iter().filter(|setting| full || !is_back(&setting.outcome));
    let mut lines: Vec<String> = told.map(|setting| line(setting, style)).collect();
    if undone.earlier_boot {
        lines.push(
            "It was made before the last boot, which ended its changes: what is told is what is so now."
                .to_owned(),
        );
    }
    if !undone.damaged_lines.is_empty() {
        let numbers: Vec<String> = undone.damaged_lines.iter().map(u64::to_string).collect();
        let text = format!(
            "Records of this tune in the journal are damaged (line {}): what they alone said is not put back.",
            numbers.join(", ")
        );
        lines.push(style.paint(TextTone::Warn, &text));
    }
    lines.push(style.paint(TextTone::Strong, &summary(undone)));
    lines.push(String::new());
    lines.join("\n")
}

/// How many of which outcome.
pub(crate) fn summary(undone: &UndoReport) -> String {
    let count =
        |is: fn(&UndoOutcome) -> bool| undone.settings.iter().filter(|setting| is(&setting.outcome)).count();
    let back = count(is_back);
    let parts: Vec<String> = [
        (
            count(|outcome| matches!(outcome, UndoOutcome::Drift { .. })),
            "changed by somebody else since, and left",
        ),
        (
            count(|outcome| matches!(outcome, UndoOutcome::Covered { .. })),
            "changed by a later tune, and left to it",
        ),
        (count(|outcome| matches!(outcome, UndoOutcome::Gone { .. })), "not there any more"),
        (
            count(|outcome| matches!(outcome, UndoOutcome::Failed { .. })),
            "refused by the host, and still to be undone",
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, words)| format!("; {count} {words}"))
    .collect();
    let tune = undone.tune;
    let why = match undone.why {
        UndoReason::Asked | UndoReason::Finished => "",
        UndoReason::Expired => " since its time is over",
        UndoReason::Unconfirmed => " since nobody confirmed it",
        UndoReason::Died => " since the program that made it died",
        UndoReason::Harmful => " since it did harm",
    };
    // One that was refused in part is open still.
    let done = if undone.has_failures() { "is not undone yet" } else { "undone" };
    format!("Tune {tune} {done}{why}: {} as before{}.", count_with_noun(back, "setting"), parts.concat())
}

fn line(setting: &UndoneSetting, style: TextStyle) -> String {
    let UndoneSetting { setting: knob, name, first, outcome, renamed_from } = setting;
    let renamed = renamed_from.as_ref().map_or_else(String::new, |was| format!(" (it was {was})"));
    let first = shown(knob, first);
    let (tone, word, what) = match outcome {
        UndoOutcome::Restored => (TextTone::Good, "restored", format!("{name}{renamed}: {first}")),
        UndoOutcome::Already => (TextTone::Good, "as before", format!("{name}{renamed}: {first}")),
        UndoOutcome::Drift { found } => (
            TextTone::Warn,
            "left",
            format!(
                "{name}{renamed}: {}, which somebody else set; before the tune it was {first}",
                shown(knob, found)
            ),
        ),
        UndoOutcome::Covered { by } => {
            (TextTone::Plain, "left", format!("{name}{renamed}: tune {by} changed it too, and puts it back"))
        }
        UndoOutcome::Gone { why } => (TextTone::Warn, "gone", format!("{name}{renamed}: {why}")),
        UndoOutcome::Failed { why, .. } => {
            (TextTone::Bad, "failed", format!("{name}{renamed}: {why}; before the tune it was {first}"))
        }
    };
    format!("{} {what}", style.paint(tone, &format!("{word:<9}")))
}

fn is_back(outcome: &UndoOutcome) -> bool {
    matches!(outcome, UndoOutcome::Restored | UndoOutcome::Already)
}
