//! What a climb on a real interface changes: before it, for a person to agree with, and after it.

use linerate_lab::ladder::host_climb::{HostRunResult, PreparedRun};
use linerate_tune::plan::PlannedChange;

use super::format;
use super::style::{TextStyle, TextTone, wrap};
use super::tune_plan;

/// What is going to be done, step by step.
pub(crate) fn before(prepared: &PreparedRun, host: &str, from: &[String], style: TextStyle) -> String {
    let mut text = String::new();
    let mut paragraph = |tone: TextTone, words: &str| {
        for line in wrap(words, style.width) {
            text.push_str(&style.paint(tone, &line));
            text.push('\n');
        }
    };
    let first = format!(
        "A climb on {host}: a server of our own on {} and CPUs {}, load from {}.",
        prepared.address(),
        format::cpu_list(prepared.cpus()),
        from.join(", ")
    );
    paragraph(TextTone::Strong, &first);
    let steps = prepared.by_step();
    if steps.is_empty() {
        paragraph(TextTone::Plain, "No setting of the host is changed: only the server's options are.");
    } else {
        paragraph(
            TextTone::Plain,
            "These settings go back and forth while it lasts, each change journalled, and are put back at the end:",
        );
    }
    for (step, changes) in steps {
        text.push_str(&block(step.id, changes.into_iter()));
    }
    if !prepared.agreements().is_empty() {
        text.push_str("So that others leave them alone, for as long as it lasts:\n");
        text.push_str(&block("agreement", prepared.agreements().iter()));
    }
    if !prepared.left().is_empty() {
        text.push_str("Left as found:\n");
        for left in prepared.left() {
            text.push_str(&format!("  {left}\n"));
        }
    }
    text
}

/// Where the settings stand.
pub(crate) fn after(finished: &HostRunResult, command: &dyn Fn(&str) -> String, style: TextStyle) -> String {
    let Some(settings) = &finished.report.settings else { return String::new() };
    let line = match (settings.restored, settings.kept_tune) {
        (true, None) => "All settings are as they were before.".to_owned(),
        (true, Some(tune)) => format!(
            "What proved better is in place as tune {tune}: {} shows it, {} takes it back.",
            command("status"),
            command(&format!("undo {tune}"))
        ),
        (false, _) => {
            format!("Not all settings are as they were before; {} tells.", command("status"))
        }
    };
    let tone = if settings.restored { TextTone::Plain } else { TextTone::Strong };
    let lines = wrap(&line, style.width).into_iter().map(|line| style.paint(tone, &line) + "\n");
    lines.collect()
}

/// A step's settings, a line each, its name beside the first.
fn block<'c>(label: &str, changes: impl Iterator<Item = &'c PlannedChange>) -> String {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    changes
        .zip(labels)
        .map(|(change, label)| format!("  {label:<22} {}\n", tune_plan::one_line(change)))
        .collect()
}
