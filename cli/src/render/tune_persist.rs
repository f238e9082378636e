//! Files that make a tune last, as text.

use linerate_tune::persist::{FileContent, PersistFiles, RemovedFiles, WrittenFiles};

use super::column::TextColumn;
use super::style::{TextStyle, TextTone};

/// What is to be written, whole, and what a person should know of it.
pub(crate) fn files(files: &PersistFiles, left_out: &[String], style: TextStyle) -> String {
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
    for setting in left_out {
        lines.extend(column.labelled("", &format!("Not made to last: {setting}.")));
    }
    for note in &files.notes {
        lines.extend(column.labelled("", note));
    }
    lines.push(String::new());
    lines.join("\n")
}

pub(crate) fn written_text(wrote: &WrittenFiles, unpersist: &str) -> String {
    let mut lines = listed("written", &wrote.written);
    lines.extend(listed("is so already", &wrote.already));
    lines.extend(listed("removed", &wrote.removed));
    lines.extend(listed("left, since somebody changed it", &wrote.left));
    lines.push(format!("To remove them: {unpersist}"));
    lines.push(String::new());
    lines.join("\n")
}

pub(crate) fn removed_text(removed: &RemovedFiles) -> String {
    let mut lines = listed("removed", &removed.removed);
    lines.extend(listed("left, since somebody changed it", &removed.left));
    lines.push(String::new());
    lines.join("\n")
}

fn listed(word: &str, paths: &[String]) -> Vec<String> {
    paths.iter().map(|path| format!("{path}: {word}")).collect()
}
