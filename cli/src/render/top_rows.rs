//! What `linerate top` shows of each stage: the figures of a picture as rows.

mod cpus;
mod out;
mod queues;
mod sockets;
mod threads;

use linerate_host::live::Snapshot;
use linerate_host::live::picture::{FindingSite, LiveSeverity};

use super::format;
use super::style::TextTone;
use super::top_panel::{PanelCell, PanelHead, PanelStage, RowSelection, TopPanel};

/// All panels, as a packet meets them.
pub(crate) fn panels(picture: &Snapshot, choice: &RowSelection) -> Vec<TopPanel> {
    PanelStage::ALL.iter().map(|stage| panel(picture, *stage, choice)).collect()
}

/// The panel of a stage.
pub(crate) fn panel(picture: &Snapshot, stage: PanelStage, choice: &RowSelection) -> TopPanel {
    let panel = match stage {
        PanelStage::Queues => queues::panel(picture),
        PanelStage::Cpus => cpus::panel(picture),
        PanelStage::Sockets => sockets::panel(picture),
        PanelStage::Threads => threads::panel(picture),
        PanelStage::Out => out::panel(picture),
    };
    panel.with_selection(choice)
}

fn head(title: &'static str, rank: u8) -> PanelHead {
    PanelHead { title, rank, left: false }
}

fn empty(stage: PanelStage, heads: Vec<PanelHead>, why: &str) -> TopPanel {
    TopPanel { stage, heads, blocks: Vec::new(), unknown: Some(why.to_owned()), unfiltered: false }
}

/// A rate that is neither good nor bad.
fn rate(per_second: Option<f64>) -> PanelCell {
    match per_second {
        None => PanelCell::unknown(),
        Some(rate) if rate < 0.5 => PanelCell::new("0", TextTone::Faint),
        Some(rate) => PanelCell::new(dense(rate), TextTone::Plain),
    }
}

/// A figure in a column of its like: `34.9k`, without the blank that a sentence has.
fn dense(figure: f64) -> String {
    format::rate(figure).replace(' ', "")
}

/// A rate of what should not happen.
fn lost(per_second: Option<f64>) -> PanelCell {
    match per_second {
        None => PanelCell::unknown(),
        Some(0.0) => PanelCell::new("0", TextTone::Faint),
        Some(rate) => PanelCell::new(small(rate).replace(' ', ""), TextTone::Bad),
    }
}

/// A rate that matters even where it is far below one a second.
fn small(rate: f64) -> String {
    if rate < 1.0 { "<1".to_owned() } else { format::rate(rate) }
}

/// A share of one, from which on it is worth a look, and from which on it is bad.
fn share(share: Option<f64>, warn: f64, bad: f64) -> PanelCell {
    let Some(share) = share else { return PanelCell::unknown() };
    let tone = match share {
        share if share >= bad => TextTone::Bad,
        share if share >= warn => TextTone::Warn,
        share if share < 0.005 => TextTone::Faint,
        _ => TextTone::Plain,
    };
    PanelCell::new(format!("{:.0}%", share * 100.0), tone)
}

/// Eight steps of a bar.
fn gauge(share: Option<f64>, warn: f64, bad: f64) -> PanelCell {
    const WIDTH: usize = 6;
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let Some(part) = share else { return PanelCell::new(" ".repeat(WIDTH), TextTone::Faint) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 48")]
    let eighths = (part.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
    let full = eighths / 8;
    let mut text = "█".repeat(full);
    if full < WIDTH {
        text.push(PARTS.get(eighths % 8).copied().unwrap_or(' '));
    }
    let text = format!("{text:<WIDTH$}");
    PanelCell::new(text, self::share(share, warn, bad).tone)
}

/// Memory: `213kB`.
fn bytes(count: Option<u64>) -> PanelCell {
    match count {
        None => PanelCell::unknown(),
        Some(0) => PanelCell::new("0", TextTone::Faint),
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        Some(count) => PanelCell::new(format!("{}B", dense(count as f64)), TextTone::Plain),
    }
}

/// The worst finding at a place.
fn mark(picture: &Snapshot, place: &FindingSite) -> Option<LiveSeverity> {
    picture.findings_at(place).map(|found| found.severity).max()
}

/// What a figure sorts as; what is not told comes last.
fn figure(figure: Option<f64>) -> f64 {
    figure.unwrap_or(f64::NAN)
}
