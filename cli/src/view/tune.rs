//! `linerate tune apply`, `undo`, `status` and `history`.

use linerate_host::{SettingValue, Severity};
use linerate_tune::journal::JournalCorruption;
use linerate_tune::journal::record::{UndoDeadline, UndoOutcome, UndoReason};
use linerate_tune::measure::ChangeMeasurement;
use linerate_tune::report::{AppliedChange, RemainingFinding, TuneApplyReport};
use linerate_tune::status::history::PastTune;
use linerate_tune::status::{JournalStatus, SettingState, SettingStatus, TuneHistory, TuneState, TuneStatus};
use linerate_tune::transaction::{ChangeOutcome, UndoReport, UndoneSetting, boot_seconds};

use super::measurement;
use super::tune_plan::value_text;
use crate::document::{Audience, Block, Document, Fact, Mark, Note, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{self, comma_list, count_with_noun};

/// Makes a command line for the reader: `undo 3` becomes `linerate tune undo 3`, with the option
/// for the state directory.
pub(crate) type TuneCommand<'a> = &'a dyn Fn(&str) -> String;

pub(super) fn default_command(subcommand: &str) -> String {
    format!("linerate tune {subcommand}")
}

impl CommandResult for TuneApplyReport {
    const SCHEMA: &'static str = "linerate.tune-apply/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        apply(envelope, &default_command)
    }
}

pub(crate) fn apply(envelope: &Envelope<TuneApplyReport>, command: TuneCommand<'_>) -> Document {
    let report = &envelope.result;
    let broke_off = report.broke_off.as_deref();
    let verdict = match (report.tune, broke_off) {
        (Some(tune), _) => apply_verdict(tune, &report.changes, broke_off),
        (None, Some(reason)) => format!("Nothing was changed: {reason}."),
        (None, None) => "Nothing was changed.".to_owned(),
    };
    let mut document = envelope.new_document("Tune", verdict);
    let findings = report.findings.as_deref().unwrap_or_default();
    let remaining: Vec<_> = findings.iter().filter(|finding| finding.severity > Severity::Note).collect();
    document.mark = Some(match (broke_off, remaining.len()) {
        _ if report.tune.is_none() => Mark::new(Tone::Plain, "nothing changed"),
        (Some(_), _) => Mark::new(Tone::Bad, "stopped"),
        (None, 0) => Mark::new(Tone::Good, "applied"),
        (None, _) => Mark::new(Tone::Warn, "applied, findings remain"),
    });
    document.about = format!("for {}", report.goal);
    document.tiles = vec![
        Tile::new(report.changes.len().to_string(), "", "changes"),
        Tile::new(remaining.len().to_string(), "", "findings above note that remain"),
    ];
    document.sections = vec![
        Section::new("What was changed").only_for(Audience::Page).with(change_table(&report.changes)),
        measurement::section(&report.measurement),
        remaining_findings(report.findings.is_some(), remaining),
    ];
    if report.undone {
        if broke_off.is_none() {
            let is_worse = report.measurement.value().is_some_and(ChangeMeasurement::is_worse);
            document.mark = Some(match is_worse {
                true => Mark::new(Tone::Bad, "undone: the service was worse"),
                false => Mark::new(Tone::Warn, "undone"),
            });
        }
    } else if let Some(tune) = report.tune {
        let broke_off = broke_off.is_some();
        document.sections.push(next_steps(tune, &report.changes, report.until, broke_off, command));
    }
    document
}

/// Number of changes, and the reason why some are missing.
pub(super) fn apply_verdict(tune: u64, changes: &[AppliedChange], broke_off: Option<&str>) -> String {
    let count = |outcome: &ChangeOutcome| changes.iter().filter(|step| step.outcome == *outcome).count();
    let already_text = match count(&ChangeOutcome::Already) {
        0 => String::new(),
        already_count => format!(", {already_count} had their value already"),
    };
    let made_text = count_with_noun(count(&ChangeOutcome::Made), "change");
    match broke_off {
        None => format!("Tune {tune}: {made_text} made and read back{already_text}."),
        Some(reason) => format!("Tune {tune} stopped with {made_text} made{already_text}: {reason}."),
    }
}

pub(super) fn change_table(changes: &[AppliedChange]) -> Table {
    let outcome = |outcome: &ChangeOutcome| match outcome {
        ChangeOutcome::Made => "made".to_owned(),
        ChangeOutcome::Already => "had this value".to_owned(),
        ChangeOutcome::Refused { why } => format!("refused: {why}"),
    };
    Table::new("setting | from | to | result").with_rows(changes.iter().map(|change| {
        [change.name.clone(), change.from.clone(), change.to.clone(), outcome(&change.outcome)]
    }))
}

fn remaining_findings(is_known: bool, mut findings: Vec<&RemainingFinding>) -> Section {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let facts: Vec<Fact> = findings
        .iter()
        .map(|finding| {
            let text = format!("{}: {}", finding.id, finding.title);
            Fact { text_lines: Some(2), ..Fact::new(finding.severity.name(), text) }
        })
        .collect();
    let section = Section::new(match facts.len() {
        0 => String::new(),
        count => format!("doctor still reports {} above note", count_with_noun(count, "finding")),
    });
    match facts.is_empty() && is_known {
        true => section.with("doctor reports nothing above note now."),
        false => section.with(facts),
    }
}

/// Commands to finish, keep or undo the tune.
pub(super) fn next_steps(
    tune: u64,
    changes: &[AppliedChange],
    until: Option<UndoDeadline>,
    broke_off: bool,
    command: TuneCommand<'_>,
) -> Section {
    let mut facts = Vec::new();
    if broke_off {
        facts.push(Fact::new("to finish it", command("apply --resume")));
    }
    // A tune that failed at its first change has nothing to undo.
    let has_changed = !broke_off || changes.iter().any(|change| change.outcome == ChangeOutcome::Made);
    let deadline = until.filter(|_| has_changed).and_then(|until| Some((until, until.boot_seconds()?)));
    if let Some((until, end)) = deadline {
        let remaining = end.saturating_sub(boot_seconds());
        facts.push(Fact::new(
            "its end",
            format!("undone automatically in {}", format::elapsed(remaining as f64)),
        ));
        if until.takes_confirmation() {
            facts.push(Fact::new("to keep it", command(&format!("confirm {tune}"))));
        }
    }
    if has_changed {
        facts.push(Fact::new("to undo it", command(&format!("undo {tune}"))));
    }
    Section::default().only_for(Audience::Text).with(facts)
}

impl CommandResult for UndoReport {
    const SCHEMA: &'static str = "linerate.tune-undo/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        undo(envelope, true)
    }
}

/// `full` includes restored settings, and those that ended with their process.
pub(crate) fn undo(envelope: &Envelope<UndoReport>, full: bool) -> Document {
    let report = &envelope.result;
    let mut document = envelope.new_document("Undone tune", undo_summary(report));
    let restored_count = report.settings.iter().filter(|setting| setting.outcome.is_back()).count();
    let setting_count = report.settings.len();
    document.mark = Some(match restored_count == setting_count && report.damaged_lines.is_empty() {
        true => Mark::new(Tone::Good, "undone"),
        false => Mark::new(Tone::Warn, "settings were left"),
    });
    document.tiles = vec![Tile::new(
        format!("{restored_count} of {setting_count}"),
        "",
        "settings have their original values",
    )];
    document.notes.extend(undo_notes(report));
    let is_expected = |setting: &&UndoneSetting| match setting.outcome {
        UndoOutcome::Gone { .. } => setting.setting.is_of_process(),
        _ => setting.outcome.is_back(),
    };
    let rows = report.settings.iter().filter(|setting| full || !is_expected(setting));
    document.sections = vec![Section::new("Settings").with(rows.map(undo_fact).collect::<Vec<_>>())];
    document
}

fn undo_notes(report: &UndoReport) -> Vec<Note> {
    let mut notes = Vec::new();
    if report.earlier_boot {
        notes.push(Note::new(
            "The last boot ended the changes of this tune: the table has the values of now.",
        ));
    }
    if !report.damaged_lines.is_empty() {
        let text = format!(
            "Records of this tune in the journal are damaged (line {}); the settings in them are not restored.",
            comma_list(&report.damaged_lines)
        );
        notes.push(Note { tone: Tone::Warn, ..Note::new(text) });
    }
    notes
}

/// Number of settings per outcome.
pub(crate) fn undo_summary(report: &UndoReport) -> String {
    let count = |matches_outcome: fn(&UndoOutcome) -> bool| {
        report.settings.iter().filter(|setting| matches_outcome(&setting.outcome)).count()
    };
    let restored_text = count_with_noun(count(UndoOutcome::is_back), "setting");
    let other_outcomes: Vec<String> = [
        (count(|outcome| matches!(outcome, UndoOutcome::Drift { .. })), "changed by others since, and left"),
        (
            count(|outcome| matches!(outcome, UndoOutcome::Covered { .. })),
            "changed by a later tune, and left to it",
        ),
        (count(|outcome| matches!(outcome, UndoOutcome::Gone { .. })), "gone"),
        (
            count(|outcome| matches!(outcome, UndoOutcome::Failed { .. })),
            "refused by the host, and still to be undone",
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, words)| format!("; {count} {words}"))
    .collect();
    let reason_text = match undo_reason(report.why) {
        "" => String::new(),
        reason => format!(" because {reason}"),
    };
    // A tune with a refused setting is still open.
    let state_text = if report.has_failures() { "is not undone yet" } else { "undone" };
    format!(
        "Tune {} {state_text}{reason_text}: {restored_text} as before{}.",
        report.tune,
        other_outcomes.concat()
    )
}

/// Reason of an undo; empty if the user requested it.
fn undo_reason(reason: UndoReason) -> &'static str {
    match reason {
        UndoReason::Asked | UndoReason::Finished => "",
        UndoReason::Expired => "its time is over",
        UndoReason::Unconfirmed => "it was not confirmed",
        UndoReason::Died => "the program that made it died",
        UndoReason::Harmful => "it did harm",
        UndoReason::Unmeasured => "the service could not be measured with it",
        UndoReason::Measured => "to measure the service without it",
    }
}

fn undo_fact(setting: &UndoneSetting) -> Fact {
    let UndoneSetting { setting: setting_key, name, original, outcome, renamed_from } = setting;
    let rename_text =
        renamed_from.as_ref().map_or_else(String::new, |former_name| format!(" (it was {former_name})"));
    let original = value_text(setting_key, original);
    let (label, text) = match outcome {
        UndoOutcome::Restored => ("restored", original),
        UndoOutcome::Already => ("as before", original),
        UndoOutcome::Drift { found } => (
            "left",
            format!(
                "{}, set by others since; before the tune it was {original}",
                value_text(setting_key, found)
            ),
        ),
        UndoOutcome::Covered { by } => ("left", format!("changed by tune {by}, which restores it")),
        UndoOutcome::Gone { why } => ("gone", why.clone()),
        UndoOutcome::Failed { why, .. } => ("failed", format!("{why}; before the tune it was {original}")),
    };
    Fact::new(label, format!("{name}{rename_text}: {text}"))
}

impl CommandResult for JournalStatus {
    const SCHEMA: &'static str = "linerate.tune-status/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        status(envelope, &default_command, true)
    }
}

/// One section per tune with the settings that differ from it; `full` adds the other settings.
pub(crate) fn status(envelope: &Envelope<JournalStatus>, command: TuneCommand<'_>, full: bool) -> Document {
    let status = &envelope.result;
    let verdict = match status.tunes.len() {
        0 => "No tune is in effect.".to_owned(),
        tunes => format!("{} in effect.", count_with_noun(tunes, "tune")),
    };
    let mut document = envelope.new_document("Tunes in effect", verdict);
    document.notes.extend(journal_note(status.trouble.as_ref(), &status.journal));
    if !status.persisted_files.is_empty() && !status.tunes.iter().any(|tune| tune.persisted) {
        let text = format!("Files apply settings at boot: {} removes them.", command("unpersist"));
        document.notes.push(Note::new(text));
    }
    document.sections = status.tunes.iter().map(|tune| status_section(tune, command, full)).collect();
    document
}

/// The unreadable part of the journal.
pub(crate) fn journal_note(corruption: Option<&JournalCorruption>, journal: &str) -> Option<Note> {
    let text = match corruption? {
        JournalCorruption::Torn { line } => format!(
            "{journal} line {line} is torn, as by a power loss during the write. The change that it announces was not made."
        ),
        damage @ JournalCorruption::Damaged { .. } => journal_damage(damage, journal),
        JournalCorruption::Newer { line, why } => format!(
            "{journal} line {line} was written by a newer linerate ({why}). Only the lines before it are read: use that version."
        ),
    };
    Some(Note { tone: Tone::Warn, ..Note::new(text) })
}

/// The damaged lines of the journal; empty for other corruption.
pub(crate) fn journal_damage(corruption: &JournalCorruption, journal: &str) -> String {
    let JournalCorruption::Damaged { line, why, others } = corruption else { return String::new() };
    let further_text =
        if others.is_empty() { String::new() } else { format!(", and lines {} too", comma_list(others)) };
    format!(
        "{journal} line {line} is damaged ({why}){further_text}. All other records are read and can be undone. The content of a \
         damaged record is lost: compare the settings of its tune with `linerate tune history` and your own notes."
    )
}

pub(super) fn status_section(tune: &TuneStatus, command: TuneCommand<'_>, full: bool) -> Section {
    let number = tune.tune;
    let (tone, text) = state_text(tune);
    let mut facts = vec![Fact::new("end", end_text(tune, command))];
    if tune.persisted {
        facts.push(Fact::new("persists", "its settings are applied again at boot"));
    }
    let settings = tune.settings.iter().filter(|setting| full || !is_as_left(setting));
    facts.extend(settings.map(setting_fact));
    let undo = command(&format!("undo {number}"));
    if tune.can_resume {
        facts.push(Fact::new("to finish it", command("apply --resume")));
    }
    if tune.state != TuneState::Running {
        facts.push(Fact::new("to undo it", undo));
    }
    facts.retain(|fact| !fact.value.is_empty());
    Section::new(format!("tune {number}  {}  {}", tune.goal, format::utc(tune.unix_seconds)))
        .with(Block::Paragraph(tone, text))
        .with(facts)
}

/// Progress of the tune, and the number of its settings per state.
fn state_text(tune: &TuneStatus) -> (Tone, String) {
    let (tone, words) = match &tune.state {
        TuneState::Running => (Tone::Plain, "in progress now".to_owned()),
        TuneState::Made => (Tone::Plain, "made".to_owned()),
        TuneState::BrokeOff { why } => (Tone::Bad, format!("stopped: {why}")),
        TuneState::Died => (Tone::Bad, "not finished: its program was killed".to_owned()),
        TuneState::UndoDied => (Tone::Bad, "half undone: the program that undid it was killed".to_owned()),
        TuneState::UndoRefused => (Tone::Bad, "undone except for settings that the host refused".to_owned()),
    };
    let count = |matches_state: fn(&SettingState) -> bool| {
        tune.settings.iter().filter(|setting| matches_state(&setting.state)).count()
    };
    let in_effect = count(|state| matches!(state, SettingState::InEffect));
    let other_states: Vec<String> = [
        (count(|state| matches!(state, SettingState::Reset)), "reset by another change of this tune"),
        (count(|state| matches!(state, SettingState::ChangedBy { .. })), "changed by a later tune"),
        (count(|state| matches!(state, SettingState::NotMade { .. })), "not made"),
        (count(|state| matches!(state, SettingState::Restored)), "restored"),
        (count(|state| matches!(state, SettingState::EndedByBoot)), "ended by the last boot"),
        (count(|state| matches!(state, SettingState::Drifted)), "changed by others since"),
        (count(|state| matches!(state, SettingState::Gone { .. })), "gone"),
        (count(|state| matches!(state, SettingState::OtherNamespace { .. })), "in another network namespace"),
        (count(|state| matches!(state, SettingState::Unknown { .. })), "unknown"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, words)| format!(", {count} {words}"))
    .collect();
    (tone, format!("{words}; {} in effect{}", count_with_noun(in_effect, "setting"), other_states.concat()))
}

/// The time when linerate undoes the tune by itself; empty for never.
fn end_text(tune: &TuneStatus, command: TuneCommand<'_>) -> String {
    if let Some(undo_cause) = tune.overdue {
        let cause_text = match undo_reason(undo_cause) {
            "" => "it was to be",
            cause => cause,
        };
        return format!("overdue: it should be undone because {cause_text}; the next apply or undo does it");
    }
    let confirm = command(&format!("confirm {}", tune.tune));
    let remaining = tune.seconds_left.map(|seconds| format::elapsed(seconds as f64));
    match (tune.until, remaining) {
        (None, _) => String::new(),
        (Some(UndoDeadline::Time { .. }), Some(remaining)) => format!("undone automatically in {remaining}"),
        (Some(UndoDeadline::Confirmed { .. }), Some(remaining)) => {
            format!("undone automatically in {remaining} unless confirmed: {confirm}")
        }
        (Some(_), _) => format!("undone when its program ends unless confirmed: {confirm}"),
    }
}

fn setting_fact(setting: &SettingStatus) -> Fact {
    let text_of = |value: &Option<SettingValue>| {
        value.as_ref().map_or_else(|| "unknown".to_owned(), |value| value_text(&setting.setting, value))
    };
    let name = &setting.name;
    let (original, target, current) = (text_of(&setting.from), text_of(&setting.to), text_of(&setting.now));
    let (label, text) = match &setting.state {
        SettingState::InEffect => ("in effect", format!("{name}: {current}, was {original}")),
        SettingState::NotMade { why } => {
            // The host's message begins with the setting.
            let reason =
                why.as_ref().map(|reason| reason.strip_prefix(&format!("{name}: ")).unwrap_or(reason));
            (
                "not made",
                format!(
                    "{name}: {current}{}",
                    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
                ),
            )
        }
        SettingState::Reset => ("reset", format!("{name}: {current}, was {original}")),
        SettingState::Drifted => {
            ("drifted", format!("{name}: {current}; the tune set {target}, originally {original}"))
        }
        SettingState::ChangedBy { tune } => ("changed", format!("{name}: {current}, set by tune {tune}")),
        SettingState::Restored => ("restored", format!("{name}: {current}")),
        SettingState::EndedByBoot => ("ended", format!("{name}: {current}; the tune set {target}")),
        SettingState::Gone { why } => ("gone", format!("{name}: {why}")),
        SettingState::OtherNamespace { why } => ("not here", format!("{name}: {why}")),
        SettingState::Unknown { why } => ("unknown", format!("{name}: {why}")),
    };
    Fact::new(label, text)
}

fn is_as_left(setting: &SettingStatus) -> bool {
    match setting.state {
        SettingState::InEffect | SettingState::Reset | SettingState::ChangedBy { .. } => true,
        // Servers replace their workers.
        SettingState::Gone { .. } => setting.setting.is_of_process(),
        _ => false,
    }
}

impl CommandResult for TuneHistory {
    const SCHEMA: &'static str = "linerate.tune-history/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let history = &envelope.result;
        let verdict = match history.tunes.len() {
            0 => "No tune was ever made.".to_owned(),
            tunes => format!("{} in {}.", count_with_noun(tunes, "tune"), history.journal),
        };
        let mut document = envelope.new_document("Tune history", verdict);
        document.notes.extend(journal_note(history.trouble.as_ref(), &history.journal));
        let tunes = history.tunes.iter().map(|tune| {
            let text = format!("{}  {}: {}", format::utc(tune.unix_seconds), tune.goal, past_states(tune));
            Fact::new(tune.tune.to_string(), text)
        });
        document.sections = vec![Section::default().with(tunes.collect::<Vec<_>>())];
        document
    }
}

fn past_states(tune: &PastTune) -> String {
    let mut states = vec![format!("{} written", count_with_noun(tune.written, "setting"))];
    if tune.refused > 0 {
        states.push(format!("{} refused", tune.refused));
    }
    match &tune.broke_off {
        Some(why) => states.push(format!("stopped: {why}")),
        None if !tune.complete => states.push("not finished".to_owned()),
        None => {}
    }
    if tune.confirmed {
        states.push("confirmed".to_owned());
    }
    if tune.persisted {
        states.push("persists".to_owned());
    }
    if let Some(undo) = &tune.undo {
        let undo_state = if undo.complete { "undone" } else { "half undone" };
        let reason_text = match undo_reason(undo.why) {
            _ if undo.why == UndoReason::Finished => ": its purpose is over".to_owned(),
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        states.push(format!("{undo_state} {}{reason_text}", format::utc(undo.unix_seconds)));
        if undo.skipped > 0 {
            states.push(format!("{} left", undo.skipped));
        }
        if undo.refused > 0 {
            states.push(format!("{} not restored", undo.refused));
        }
    }
    states.join("; ")
}
