//! The changes of a run on a real interface: the prompt before the run, and the settings after it.

use linerate_lab::ladder::host_run::PreparedRun;
use linerate_lab::ladder::report::WarningKind;
use linerate_lab::ladder::run::LadderOutcome;
use linerate_tune::plan::PlannedChange;

use super::format;
use super::style::{TextStyle, TextTone, wrap};
use crate::view::tune_plan;

/// The planned changes, step by step.
pub(crate) fn before(prepared_run: &PreparedRun, host: &str, sources: &[String], style: TextStyle) -> String {
    let mut text = String::new();
    let mut add_paragraph = |tone: TextTone, text_line: &str| {
        for line in wrap(text_line, style.width) {
            text.push_str(&style.paint(tone, &line));
            text.push('\n');
        }
    };
    let (address, cpus) = (prepared_run.address, format::cpu_list(&prepared_run.server_cpus));
    let server = match prepared_run.program() {
        Some((name, pid)) => format!("{name} (process {pid}) on {address}, which keeps running"),
        None => format!("linerate's server on {address} and CPUs {cpus}"),
    };
    add_paragraph(TextTone::Strong, &format!("A run on {host}: {server}, load from {}.", sources.join(", ")));
    let boosted_steps = prepared_run.boosted_steps();
    if !boosted_steps.is_empty() {
        let sentence = format!(
            "Boost changes the server's sockets and threads for these steps, planned under load, recorded in the journal, \
             and restored at the end: {}.",
            boosted_steps.join(", ")
        );
        add_paragraph(TextTone::Plain, &sentence);
    }
    let steps = prepared_run.by_step();
    if steps.is_empty() && prepared_run.program().is_some() {
        add_paragraph(TextTone::Plain, "No setting of the host changes.");
    } else if steps.is_empty() {
        add_paragraph(TextTone::Plain, "No setting of the host changes, only options of the server.");
    } else {
        add_paragraph(
            TextTone::Plain,
            "The run alternates these settings, records each change in the journal, and restores them at the end:",
        );
    }
    for (step, changes) in steps {
        text.push_str(&block(step.id, changes.into_iter()));
    }
    if !prepared_run.exclusions().is_empty() {
        text.push_str("During the run, so that other programs leave these settings alone:\n");
        text.push_str(&block("exclusion", prepared_run.exclusions().iter()));
    }
    if !prepared_run.skipped().is_empty() {
        text.push_str("Left as found:\n");
        for line in prepared_run.skipped() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// The state of the settings.
pub(crate) fn after(
    run_result: &LadderOutcome,
    command: &dyn Fn(&str) -> String,
    style: TextStyle,
) -> String {
    let Some(settings) = &run_result.report.settings else { return String::new() };
    let is_kept = run_result.warnings.iter().all(|warning| warning.kind != WarningKind::NotKept);
    let line = match (settings.restored, settings.kept_tune) {
        (true, None) => "All settings are restored.".to_owned(),
        (true, Some(tune)) => format!(
            "{} better settings are in place as tune {tune}: {} shows it, {} undoes it.",
            if is_kept { "The" } else { "Not all" },
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
