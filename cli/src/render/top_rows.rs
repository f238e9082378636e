//! What `linerate top` shows of each stage: the figures of a picture as rows.

mod cpus;
mod out;
mod queues;
mod sockets;
mod threads;

use linerate_host::live::Picture;
use linerate_host::live::picture::{Place, Severity};

use super::format;
use super::style::Tone;
use super::top_panel::{Cell, Choice, Head, Panel, Stage};

/// All panels, as a packet meets them.
pub(crate) fn panels(picture: &Picture, choice: &Choice) -> Vec<Panel> {
    Stage::ALL.iter().map(|stage| panel(picture, *stage, choice)).collect()
}

/// The panel of a stage.
pub(crate) fn panel(picture: &Picture, stage: Stage, choice: &Choice) -> Panel {
    let panel = match stage {
        Stage::Queues => queues::panel(picture),
        Stage::Cpus => cpus::panel(picture),
        Stage::Sockets => sockets::panel(picture),
        Stage::Threads => threads::panel(picture),
        Stage::Out => out::panel(picture),
    };
    panel.chosen(choice)
}

fn head(title: &'static str, rank: u8) -> Head {
    Head { title, rank, left: false }
}

fn empty(stage: Stage, heads: Vec<Head>, why: &str) -> Panel {
    Panel { stage, heads, blocks: Vec::new(), unknown: Some(why.to_owned()), unfiltered: false }
}

/// A rate that is neither good nor bad.
fn rate(per_second: Option<f64>) -> Cell {
    match per_second {
        None => Cell::untold(),
        Some(rate) if rate < 0.5 => Cell::new("0", Tone::Faint),
        Some(rate) => Cell::new(dense(rate), Tone::Plain),
    }
}

/// A figure in a column of its like: `34.9k`, without the blank that a sentence has.
fn dense(figure: f64) -> String {
    format::rate(figure).replace(' ', "")
}

/// A rate of what should not happen.
fn lost(per_second: Option<f64>) -> Cell {
    match per_second {
        None => Cell::untold(),
        Some(0.0) => Cell::new("0", Tone::Faint),
        Some(rate) => Cell::new(small(rate).replace(' ', ""), Tone::Bad),
    }
}

/// A rate that matters even where it is far below one a second.
fn small(rate: f64) -> String {
    if rate < 1.0 { "<1".to_owned() } else { format::rate(rate) }
}

/// A share of one, from which on it is worth a look, and from which on it is bad.
fn share(share: Option<f64>, warn: f64, bad: f64) -> Cell {
    let Some(share) = share else { return Cell::untold() };
    let tone = match share {
        share if share >= bad => Tone::Bad,
        share if share >= warn => Tone::Warn,
        share if share < 0.005 => Tone::Faint,
        _ => Tone::Plain,
    };
    Cell::new(format!("{:.0}%", share * 100.0), tone)
}

/// Eight steps of a bar.
fn gauge(share: Option<f64>, warn: f64, bad: f64) -> Cell {
    const WIDTH: usize = 6;
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let Some(part) = share else { return Cell::new(" ".repeat(WIDTH), Tone::Faint) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 48")]
    let eighths = (part.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
    let full = eighths / 8;
    let mut text = "█".repeat(full);
    if full < WIDTH {
        text.push(PARTS.get(eighths % 8).copied().unwrap_or(' '));
    }
    let text = format!("{text:<WIDTH$}");
    Cell::new(text, self::share(share, warn, bad).tone)
}

/// Memory: `213kB`.
fn bytes(count: Option<u64>) -> Cell {
    match count {
        None => Cell::untold(),
        Some(0) => Cell::new("0", Tone::Faint),
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        Some(count) => Cell::new(format!("{}B", dense(count as f64)), Tone::Plain),
    }
}

/// The worst finding at a place.
fn mark(picture: &Picture, place: &Place) -> Option<Severity> {
    picture.findings_at(place).map(|found| found.severity).max()
}

/// What a figure sorts as; what is not told comes last.
fn figure(figure: Option<f64>) -> f64 {
    figure.unwrap_or(f64::NAN)
}
