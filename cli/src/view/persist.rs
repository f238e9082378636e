//! `linerate tune persist` and `unpersist`.

use linerate_tune::persist::{FileContent, PersistFiles, RemovedFiles};
use linerate_tune::report::PersistReport;

use crate::document::{Document, Section, Table};
use crate::envelope::{CommandResult, Envelope};
use crate::render::column::TextColumn;
use crate::render::format::count_with_noun;
use crate::render::style::{TextStyle, TextTone};

/// The files with their contents, settings that are not persistent, and notes.
pub(crate) fn preview(files: &PersistFiles, left_out: &[String], style: TextStyle) -> String {
    let column = TextColumn { style, before: 0, label: 0 };
    let mut lines = Vec::new();
    for file in &files.files {
        match &file.content {
            FileContent::Link(target) => {
                lines.push(style.paint(TextTone::Strong, &format!("{} -> {target}", file.path)));
            }
            FileContent::Text(text) => {
                lines.push(style.paint(TextTone::Strong, &file.path));
                lines.extend(text.lines().map(|line| format!("  {line}")));
            }
        }
        lines.push(String::new());
    }
    lines.extend(
        left_out.iter().flat_map(|setting| column.labelled("", &format!("Not persistent: {setting}."))),
    );
    lines.extend(files.notes.iter().flat_map(|note| column.labelled("", note)));
    lines.push(String::new());
    lines.join("\n")
}

impl CommandResult for PersistReport {
    const SCHEMA: &'static str = "linerate.tune-persist/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let write_result = &envelope.result.wrote;
        let verdict = format!("{} written.", count_with_noun(write_result.written.len(), "file"));
        let mut document = envelope.new_document("Persistent tune", verdict);
        document.sections = vec![files(&[
            ("written", &write_result.written),
            ("up to date", &write_result.already),
            ("removed", &write_result.removed),
            ("left, because it was changed since", &write_result.kept),
        ])];
        document
    }
}

impl CommandResult for RemovedFiles {
    const SCHEMA: &'static str = "linerate.tune-unpersist/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let RemovedFiles { removed, kept } = &envelope.result;
        let verdict = match removed.is_empty() && kept.is_empty() {
            true => "Nothing was made to persist.".to_owned(),
            false => format!("{} removed.", count_with_noun(removed.len(), "file")),
        };
        let mut document = envelope.new_document("Removed persistent tune", verdict);
        document.sections =
            vec![files(&[("removed", removed), ("left, because it was changed since", kept)])];
        document
    }
}

fn files(outcomes: &[(&str, &Vec<String>)]) -> Section {
    let rows =
        outcomes.iter().flat_map(|(outcome, paths)| paths.iter().map(move |path| [path.as_str(), outcome]));
    Section::default().with(Table::new("file | result").with_rows(rows))
}
