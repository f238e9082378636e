//! Hot spots: what, how much, and the remedy.

use linerate_trace::flame::spots::HotSpot;

use super::doubt;
use crate::command::flame::FlameDocument;
use crate::render::column::TextColumn;
use crate::render::format::{grouped, percent};
use crate::render::style::{TextStyle, TextTone};

/// Room for a share.
const SHARE: usize = 7;
/// Blocks in the short form, and the least share that has one.
const MOST: usize = 5;
const LEAST: f64 = 0.02;
/// From this share of packet processing on it is worth a colour.
const HOT: f64 = 0.10;

/// A block each, worst first; in the short form the small ones in a line, and those outside of the packet path not at all.
pub(super) fn lines(document: &FlameDocument, full: bool, style: TextStyle) -> Vec<String> {
    let seen = |spot: &&HotSpot| full || spot.share_of_path > 0.0;
    let spots: Vec<&HotSpot> = document.spots.iter().filter(seen).collect();
    if spots.is_empty() {
        return Vec::new();
    }
    let large = spots.iter().take(MOST).take_while(|spot| spot.share_of_path >= LEAST).count();
    let (shown, rest) = spots.split_at(if full { spots.len() } else { large });
    let column = TextColumn { style, before: 0, label: 0 };
    let mut lines: Vec<String> = column
        .labelled("", &heading(document))
        .iter()
        .map(|line| style.paint(TextTone::Faint, line))
        .collect();
    for spot in shown {
        lines.extend(block(spot, full, style));
    }
    if !rest.is_empty() {
        let names: Vec<String> =
            rest.iter().map(|spot| format!("{} {}", spot.id, percent(spot.share_of_path))).collect();
        lines.extend(TextColumn { label: SHARE, ..column }.labelled("less:", &names.join(", ")));
    }
    lines
}

fn heading(document: &FlameDocument) -> String {
    let samples = document.path_samples;
    let doubt = doubt(samples);
    let comma = if doubt.is_empty() { "" } else { ", " };
    format!("Hot spots, as shares of packet processing ({} samples{comma}{doubt})", grouped(samples))
}

fn block(spot: &HotSpot, full: bool, style: TextStyle) -> Vec<String> {
    let share = format!("{:>5}  ", percent(spot.share_of_path));
    let tone = if spot.share_of_path >= HOT { TextTone::Bad } else { TextTone::Warn };
    let finding = spot.finding.as_ref().map(|id| style.paint(TextTone::Faint, &format!("  {id}")));
    let mut lines = vec![format!(
        "{}{}{}",
        style.paint(tone, &share),
        style.paint(TextTone::Strong, &spot.id),
        finding.unwrap_or_default()
    )];
    let column = TextColumn { style, before: SHARE, label: 9 };
    lines.extend(column.labelled(spot.stage.name(), &spot.what));
    if full {
        let functions =
            spot.functions.iter().map(|function| format!("{} {}", function.name, grouped(function.samples)));
        let of_busy = format!(
            "{} samples, {} of all that is shown; {}",
            grouped(spot.samples),
            percent(spot.share_of_busy),
            functions.collect::<Vec<_>>().join(", ")
        );
        lines.extend(column.labelled("seen", &of_busy));
        lines.extend(column.labelled("remedy", &spot.remedy));
        lines.extend(column.labelled("not if", &spot.when_not));
        lines.extend(column.labelled("source", &spot.source));
    } else {
        lines.extend(column.labelled("remedy", &spot.remedy));
    }
    lines
}
