//! What tunes are in force, as text.

use linerate_host::SettingValue;
use linerate_tune::journal::JournalCorruption;
use linerate_tune::journal::record::{UndoDeadline, UndoReason};
use linerate_tune::status::{JournalStatus, SettingState, SettingStatus, TuneState, TuneStatus};

use super::column::TextColumn;
use super::format;
use super::style::{TextStyle, TextTone};
use super::tune_plan::{count_with_noun, shown};
use crate::command::tune::StateDirArgs;

/// A block for each tune, with the settings that are not as it left them. In `full`, with all of them.
pub(crate) fn status(status: &JournalStatus, place: &StateDirArgs, full: bool, style: TextStyle) -> String {
    let mut lines = trouble(status.trouble.as_ref(), &status.journal, style);
    if status.tunes.is_empty() {
        lines.push("No tune is in force.".to_owned());
    }
    for tune in &status.tunes {
        lines.extend(block(tune, place, full, style));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// What of the journal could not be read.
pub(crate) fn trouble(trouble: Option<&JournalCorruption>, journal: &str, style: TextStyle) -> Vec<String> {
    let text = match trouble {
        None => return Vec::new(),
        Some(JournalCorruption::Torn { line }) => format!(
            "{journal} line {line}: torn, as by a power loss while it was written: what it would have announced was not done."
        ),
        Some(damaged @ JournalCorruption::Damaged { .. }) => damage(damaged, journal),
        Some(JournalCorruption::Newer { line, why }) => format!(
            "{journal} line {line}: made by a newer linerate ({why}): only what is before it is told; use that version."
        ),
    };
    let column = TextColumn { style, before: 0, label: 0 };
    column.labelled("", &text).into_iter().map(|line| style.paint(TextTone::Warn, &line)).collect()
}

/// Which lines of the journal are damaged, and what follows from it; nothing for other trouble.
pub(crate) fn damage(trouble: &JournalCorruption, journal: &str) -> String {
    let JournalCorruption::Damaged { line, why, others } = trouble else { return String::new() };
    let more: Vec<String> = others.iter().map(u64::to_string).collect();
    let also = if more.is_empty() { String::new() } else { format!(", and lines {} too", more.join(", ")) };
    format!(
        "{journal} line {line} is damaged ({why}){also}. All other records are read and can be undone. What a damaged record \
         said is lost: compare the settings of its tune with `linerate tune history` and your own notes."
    )
}

/// A tune, and the settings of it that are not as it left them.
pub(super) fn block(tune: &TuneStatus, place: &StateDirArgs, full: bool, style: TextStyle) -> Vec<String> {
    let number = tune.tune;
    let column = TextColumn { style, before: 2, label: 10 };
    let heading = format!("tune {number}  {}  {}", tune.goal, format::utc(tune.unix_seconds));
    let mut lines = vec![style.paint(TextTone::Strong, &heading)];
    let (tone, text) = state(tune);
    lines.extend(column.labelled("", &text).into_iter().map(|line| style.paint(tone, &line)));
    lines.extend(column.labelled("end", &end(tune, place)));
    if tune.persisted {
        lines.extend(column.labelled("persists", "its settings are made again at boot"));
    }
    for setting in tune.settings.iter().filter(|setting| full || !is_as_left(&setting.state)) {
        lines.extend(line(setting, column));
    }
    let undo = place.command(&format!("undo {number}"));
    let resume = place.command("apply --resume");
    lines.extend(match tune.state {
        TuneState::BrokeOff { .. } | TuneState::Died if tune.earlier_boot == Some(false) => {
            column.labelled("do", &format!("{resume} finishes it, {undo} takes it back"))
        }
        TuneState::Running => Vec::new(),
        _ => column.labelled("undo", &undo),
    });
    lines
}

/// How far it came, and how many of its settings are in force.
fn state(tune: &TuneStatus) -> (TextTone, String) {
    let (tone, words) = match &tune.state {
        TuneState::Running => (TextTone::Plain, "it is being made or undone now".to_owned()),
        TuneState::Made => (TextTone::Plain, "made".to_owned()),
        TuneState::BrokeOff { why } => (TextTone::Bad, format!("broke off: {why}")),
        TuneState::Died => {
            (TextTone::Bad, "not finished: the program that made it was ended on the way".to_owned())
        }
        TuneState::UndoDied => {
            (TextTone::Bad, "half undone: the program that undid it was ended on the way".to_owned())
        }
        TuneState::UndoRefused => (TextTone::Bad, "undone but for what the host refused".to_owned()),
    };
    let count = |is: fn(&SettingState) -> bool| tune.settings.iter().filter(|one| is(&one.state)).count();
    let in_force = count(|state| matches!(state, SettingState::InForce));
    let of: Vec<String> = [
        (count(|state| matches!(state, SettingState::Reset)), "reset by a change of its own"),
        (count(|state| matches!(state, SettingState::ChangedBy { .. })), "changed by a later tune"),
        (count(|state| matches!(state, SettingState::NotMade { .. })), "not made"),
        (count(|state| matches!(state, SettingState::PutBack)), "put back"),
        (count(|state| matches!(state, SettingState::EndedByBoot)), "ended by the last boot"),
        (count(|state| matches!(state, SettingState::Drifted)), "changed by somebody else since"),
        (count(|state| matches!(state, SettingState::Gone { .. })), "gone"),
        (count(|state| matches!(state, SettingState::Unknown { .. })), "unknown"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, words)| format!(", {count} {words}"))
    .collect();
    (tone, format!("{words}; {} in force{}", count_with_noun(in_force, "setting"), of.concat()))
}

/// When it ends by itself, in words; empty where it does not.
fn end(tune: &TuneStatus, place: &StateDirArgs) -> String {
    let confirm = place.command(&format!("confirm {}", tune.tune));
    if let Some(why) = tune.overdue {
        let why = match why {
            UndoReason::Expired => "its time is over",
            UndoReason::Unconfirmed => "nobody confirmed it in time",
            UndoReason::Died => "the program that made it died",
            UndoReason::Asked | UndoReason::Finished | UndoReason::Harmful => "it was to be",
        };
        return format!("overdue: it should be undone by now, since {why}; the next apply or undo does it");
    }
    let left = tune.seconds_left.map(|seconds| format::elapsed(seconds as f64));
    match (tune.until, left) {
        (None, _) => String::new(),
        (Some(UndoDeadline::Time { .. }), Some(left)) => format!("undone by itself in {left}"),
        (Some(UndoDeadline::Confirmed { .. }), Some(left)) => {
            format!("undone by itself in {left} unless confirmed: {confirm}")
        }
        (Some(_), _) => format!("undone when its program ends, unless confirmed: {confirm}"),
    }
}

fn line(setting: &SettingStatus, column: TextColumn) -> Vec<String> {
    let value = |value: &Option<SettingValue>| {
        value.as_ref().map_or_else(|| "unknown".to_owned(), |value| shown(&setting.setting, value))
    };
    let name = &setting.name;
    let (from, to, now) = (value(&setting.from), value(&setting.to), value(&setting.now));
    let (label, text) = match &setting.state {
        SettingState::InForce => ("in force", format!("{name}: {now}, was {from}")),
        SettingState::NotMade { why } => {
            let why = why.as_ref().map_or_else(String::new, |why| {
                // The host's words name the setting.
                format!(": {}", why.strip_prefix(&format!("{name}: ")).unwrap_or(why))
            });
            ("not made", format!("{name}: {now}{why}"))
        }
        SettingState::Reset => ("reset", format!("{name}: {now}, was {from}")),
        SettingState::Drifted => {
            ("drifted", format!("{name}: {now}; the tune set {to}, before it was {from}"))
        }
        SettingState::ChangedBy { tune } => ("changed", format!("{name}: {now}, set by tune {tune}")),
        SettingState::PutBack => ("put back", format!("{name}: {now}")),
        SettingState::EndedByBoot => ("ended", format!("{name}: {now}; the tune set {to}")),
        SettingState::Gone { why } => ("gone", format!("{name}: {why}")),
        SettingState::Unknown { why } => ("unknown", format!("{name}: {why}")),
    };
    column.labelled(label, &text)
}

fn is_as_left(state: &SettingState) -> bool {
    matches!(state, SettingState::InForce | SettingState::Reset | SettingState::ChangedBy { .. })
}
