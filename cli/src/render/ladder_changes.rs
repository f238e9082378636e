//! The changes of a run on a real interface: the prompt before the run, and the settings after it.

use linerate_lab::ladder::host_run::{HostRunResult, PreparedRun};
use linerate_tune::plan::PlannedChange;

use super::format;
use super::style::{TextStyle, TextTone, wrap};
use crate::view::tune_plan;

/// The planned changes, step by step.
pub(crate) fn before(prepared: &PreparedRun, host: &str, from: &[String], style: TextStyle) -> String {
    let mut text = String::new();
    let mut paragraph = |tone: TextTone, words: &str| {
        for line in wrap(words, style.width) {
            text.push_str(&style.paint(tone, &line));
            text.push('\n');
        }
    };
    let (address, cpus) = (prepared.address(), format::cpu_list(prepared.cpus()));
    let server = match prepared.program() {
        Some((name, pid)) => format!("{name} (process {pid}) on {address}, which keeps running"),
        None => format!("linerate's server on {address} and CPUs {cpus}"),
    };
    paragraph(TextTone::Strong, &format!("A run on {host}: {server}, load from {}.", from.join(", ")));
    let boosted = prepared.boosted_steps();
    if !boosted.is_empty() {
        let sentence = format!(
            "Boost changes the server's sockets and threads for these steps, planned under load, recorded in the journal, \
             and restored at the end: {}.",
            boosted.join(", ")
        );
        paragraph(TextTone::Plain, &sentence);
    }
    let steps = prepared.by_step();
    if steps.is_empty() && prepared.program().is_some() {
        paragraph(TextTone::Plain, "No setting of the host changes.");
    } else if steps.is_empty() {
        paragraph(TextTone::Plain, "No setting of the host changes, only options of the server.");
    } else {
        paragraph(
            TextTone::Plain,
            "The run alternates these settings, records each change in the journal, and restores them at the end:",
        );
    }
    for (step, changes) in steps {
        text.push_str(&block(step.id, changes.into_iter()));
    }
    if !prepared.exclusions().is_empty() {
        text.push_str("During the run, so that other programs leave these settings alone:\n");
        text.push_str(&block("exclusion", prepared.exclusions().iter()));
    }
    if !prepared.skipped().is_empty() {
        text.push_str("Left as found:\n");
        for line in prepared.skipped() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// The state of the settings.
pub(crate) fn after(finished: &HostRunResult, command: &dyn Fn(&str) -> String, style: TextStyle) -> String {
    let Some(settings) = &finished.report.settings else { return String::new() };
    let line = match (settings.restored, settings.kept_tune) {
        (true, None) => "All settings are restored.".to_owned(),
        (true, Some(tune)) => format!(
            "The better settings are in place as tune {tune}: {} shows it, {} undoes it.",
            command("status"),
            command(&format!("undo {tune}"))
        ),
        (false, _) => {
            format!("Some settings are not restored; {} lists them.", command("status"))
        }
    };
    let tone = if settings.restored { TextTone::Plain } else { TextTone::Strong };
    let lines = wrap(&line, style.width).into_iter().map(|line| style.paint(tone, &line) + "\n");
    lines.collect()
}

/// A step's settings, one per line, with its name in the first line.
fn block<'c>(label: &str, changes: impl Iterator<Item = &'c PlannedChange>) -> String {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    changes
        .zip(labels)
        .map(|(change, label)| format!("  {label:<22} {}\n", tune_plan::one_line(change)))
        .collect()
}
