//! What is not done, and what the server's own configuration would fix.

use linerate_tune::boost::plan::ServerAdvice;

use super::heading;
use crate::command::boost::BoostPlanDocument;
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};

/// A reason, with all that it holds for.
pub(super) fn refusals(planned: &BoostPlanDocument<'_>, style: TextStyle) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    let refused = planned.boost.refusals.iter().map(|refusal| (refusal.why.as_str(), refusal.what.as_str()));
    let left = planned.boost.plan.left.iter().map(|left| (left.why.as_str(), left.title.as_str()));
    let told = |why: &str| planned.boost.refusals.iter().any(|refusal| refusal.why == why);
    for (why, what) in refused.chain(left.filter(|(why, _)| !told(why))) {
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, all)) => all.push(what),
            None => reasons.push((why, vec![what])),
        }
    }
    if reasons.is_empty() {
        return Vec::new();
    }
    let column = TextColumn { style, before: 4, label: 0 };
    let mut lines = heading("left as it is", style);
    for (why, what) in reasons {
        lines.extend(what.iter().map(|what| style.paint(TextTone::Warn, &format!("  {what}"))));
        lines.extend(column.labelled("", why));
    }
    lines
}

/// What it costs, the option, and where that is from.
pub(super) fn advice(advice: &[ServerAdvice], style: TextStyle) -> Vec<String> {
    if advice.is_empty() {
        return Vec::new();
    }
    let column = TextColumn { style, before: 2, label: 0 };
    let below = TextColumn { style, before: 4, label: 8 };
    let mut lines = heading("what the server's own configuration would fix", style);
    for one in advice {
        lines.extend(column.labelled("", &one.what));
        lines.extend(below.labelled("option", one.option.as_deref().unwrap_or_default()));
        lines.extend(below.labelled("source", one.source.as_deref().unwrap_or_default()));
    }
    lines
}
