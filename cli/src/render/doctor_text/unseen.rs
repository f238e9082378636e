//! What could not be seen, grouped by what stood in the way.

use linerate_host::diagnosis::UnknownItem;

use crate::render::style::{TextStyle, TextTone, wrap};

/// Groups beyond these are counted, not shown, but in the full form.
const MOST: usize = 8;

/// A line a reason.
pub(super) fn lines(unknown: &[UnknownItem], full: bool, style: TextStyle) -> Vec<String> {
    let groups = if full { groups(unknown) } else { merge_similar(unknown) };
    if groups.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![style.paint(TextTone::Strong, "could not see")];
    let most = if full { groups.len() } else { MOST };
    for (why, places) in groups.iter().take(most) {
        let text = match places.as_slice() {
            _ if full => format!("{}: {why}", places.join(", ")),
            [] | [_] => format!("{}: {why}", places.concat()),
            [first, rest @ ..] => format!("{first} and {} more: {why}", rest.len()),
        };
        let wrapped = wrap(&text, style.width.saturating_sub(4).max(20));
        lines.extend(wrapped.iter().enumerate().map(|(index, line)| {
            let indent = if index == 0 { 2 } else { 4 };
            format!("{}{line}", " ".repeat(indent))
        }));
    }
    if groups.len() > most {
        lines.push(style.paint(TextTone::Faint, &format!("  and {} more", groups.len() - most)));
    }
    lines
}

/// The same, where those of the same kind are one, although the words differ by a name or number.
fn merge_similar(unknown: &[UnknownItem]) -> Vec<(&str, Vec<&str>)> {
    let mut alike: Vec<(&str, Vec<&str>)> = Vec::new();
    for (why, places) in groups(unknown) {
        let kind = |places: &[&str]| places.first().map(|place| kind(place));
        match alike.iter_mut().find(|(_, others)| kind(others) == kind(&places)) {
            Some((_, others)) => others.extend(places),
            None => alike.push((why, places)),
        }
    }
    alike
}

/// A place without what is in its brackets.
fn kind(place: &str) -> String {
    place.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect()
}

/// Places by what stood in the way, in the order of the first of each.
pub(crate) fn groups(unknown: &[UnknownItem]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for item in unknown {
        match groups.iter_mut().find(|(why, _)| *why == item.why) {
            Some((_, places)) => places.push(&item.what),
            None => groups.push((&item.why, vec![&item.what])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(what: &str, why: &str) -> UnknownItem {
        UnknownItem { what: what.to_owned(), why: why.to_owned() }
    }

    #[test]
    fn places_of_a_kind_are_one_line() {
        let list = [
            unknown("link[eth0].rings", "asking eth0: no privilege"),
            unknown("link[eth1].rings", "asking eth1: no privilege"),
            unknown("machine.cloud", "gone"),
        ];
        let style = TextStyle { width: 80, colour: false };
        assert_eq!(
            lines(&list, false, style),
            [
                "could not see",
                "  link[eth0].rings and 1 more: asking eth0: no privilege",
                "  machine.cloud: gone",
            ]
        );
        assert_eq!(lines(&list, true, style).len(), 4);
    }
}
