//! What doctor would say once a plan is carried out.

use linerate_host::Severity;
use linerate_tune::TunePlan;
use linerate_tune::plan::PlanRehearsal;

use super::count_with_noun;
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};

/// What could not be seen when a plan was made; nothing where all was.
pub(crate) fn unseen(unseen: &[String], style: TextStyle) -> String {
    if unseen.is_empty() {
        return String::new();
    }
    let column = TextColumn { style, before: 2, label: 0 };
    let mut lines = vec![String::new(), style.paint(TextTone::Strong, "could not see")];
    lines.extend(unseen.iter().flat_map(|text| column.labelled("", text)));
    lines.push(String::new());
    lines.join("\n")
}

/// Findings above note that would remain, as far as a rehearsal on what was read can tell; nothing where none was made.
pub(crate) fn afterwards(
    plan: &TunePlan,
    rehearsal: Option<&PlanRehearsal>,
    full: bool,
    style: TextStyle,
) -> String {
    let Some(rehearsal) = rehearsal.filter(|_| !plan.changes.is_empty()) else { return String::new() };
    let column = TextColumn { style, before: 2, label: 8 };
    let mut lines = vec![String::new(), style.paint(TextTone::Strong, "what doctor would find then")];
    let above = || rehearsal.diagnosis.findings.iter().filter(|finding| finding.severity > Severity::Note);
    for finding in above() {
        let is_left = plan.left.iter().any(|left| left.finding == finding.id);
        let why = match is_left {
            true => "left as it is",
            false if plan.held_back.iter().any(|held| held.fixes(finding.id)) => "held back",
            false => finding.title.as_str(),
        };
        lines.extend(column.labelled_short(finding.severity.name(), &format!("{}: {why}", finding.id)));
    }
    if above().count() == 0 {
        lines.push("  nothing above note".to_owned());
    }
    let unrehearsed = &rehearsal.unrehearsed;
    if full {
        for (setting, why) in unrehearsed {
            lines.extend(column.labelled("untried", &format!("{setting}: {why}")));
        }
    } else if let Some((setting, why)) = unrehearsed.first() {
        let more = match unrehearsed.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "{} could not be rehearsed: {setting}{more}: {why}",
            count_with_noun(unrehearsed.len(), "change")
        );
        lines.extend(column.labelled_short("", &text));
    }
    lines.push(String::new());
    lines.join("\n")
}
