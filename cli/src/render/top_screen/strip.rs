//! The whole path in a strip: what each stage does, with the worst that was found there.

use linerate_host::StageName;
use linerate_host::live::picture::{Picture, Severity};
use linerate_host::live::{Item, Metric};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{Theme, rate};
use crate::command::top::state::State;
use crate::render::format;
use crate::render::style::Tone;
use crate::render::top_fit::{Piece, sign};
use crate::render::top_panel::Stage;
use crate::render::top_spark::spark;

/// Lines it takes on a screen of this height.
pub(super) fn height(screen: u16) -> u16 {
    match screen {
        ..12 => 0,
        12..20 => 2,
        20..30 => 3,
        _ => 4,
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, picture: &Picture, theme: Theme) {
    let width = area.width / 5;
    for (index, stage) in Stage::ALL.into_iter().enumerate() {
        let x = area.x + width * u16::try_from(index).unwrap_or(0);
        let part = Rect { x, width: width.min(area.right().saturating_sub(x)), ..area };
        frame.render_widget(Paragraph::new(lines(state, picture, stage, part, theme)), part);
    }
}

fn lines(state: &State, picture: &Picture, stage: Stage, area: Rect, theme: Theme) -> Vec<Line<'static>> {
    let has_focus = state.stage() == stage;
    let title = if has_focus {
        theme.accent().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    } else {
        theme.tone(Tone::Strong)
    };
    let mark = worst(picture, stage);
    let (mark, tone) = sign(mark);
    let used = stage.title().chars().count() + 4;
    let arrow = match stage {
        Stage::Out => String::new(),
        _ => format!("{:>width$}", "→ ", width = usize::from(area.width).saturating_sub(used)),
    };
    let head = Line::from(vec![
        Span::raw(" "),
        Span::styled(format!(" {} ", stage.title()).trim_end().to_owned() + " ", title),
        Span::styled(mark, theme.tone(tone)),
        Span::styled(arrow, theme.tone(Tone::Faint)),
    ]);
    let (first, second) = figures(picture, stage);
    let piece = |(text, tone): Piece| Line::styled(format!("  {text}"), theme.tone(tone));
    let mut lines = vec![head, piece(first), piece(second)];
    if area.height >= 4 {
        let metric = match stage {
            Stage::Queues => Metric::Packets,
            Stage::Cpus => Metric::Softirq,
            Stage::Sockets => Metric::Queued,
            Stage::Threads => Metric::Time,
            Stage::Out => Metric::Sent,
        };
        let figures: Vec<Option<f64>> = state.history.of(&Item::Path, metric).collect();
        let width = usize::from(area.width).saturating_sub(4).min(figures.len());
        let style = if theme.colour { theme.accent() } else { theme.tone(Tone::Faint) };
        lines.push(Line::styled(format!("  {}", spark(&figures, width)), style));
    }
    lines.truncate(usize::from(area.height));
    lines
}

/// What a stage does, and what it loses.
fn figures(picture: &Picture, stage: Stage) -> (Piece, Piece) {
    let totals = &picture.totals;
    let plain = |text: String| (text, Tone::Plain);
    match stage {
        Stage::Queues => (plain(rate(totals.rx_packets_per_second, "pps")), lost(totals.rx_drops_per_second)),
        Stage::Cpus => {
            let softirq = totals
                .softirq_cpus
                .map_or_else(|| "softirq –".to_owned(), |cpus| format!("softirq {cpus:.2}"));
            (plain(softirq), lost(totals.backlog_drops_per_second))
        }
        Stage::Sockets => {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let queued = totals.queued_bytes.map_or_else(
                || "– queued".to_owned(),
                |bytes| match bytes {
                    0 => "0 queued".to_owned(),
                    bytes => format!("{}B queued", format::rate(bytes as f64)),
                },
            );
            (plain(queued), lost(totals.socket_drops_per_second))
        }
        Stage::Threads => {
            let time =
                totals.thread_cpus.map_or_else(|| "– CPUs".to_owned(), |cpus| format!("{cpus:.2} CPUs"));
            (plain(time), seats(picture))
        }
        Stage::Out => (plain(rate(totals.tx_packets_per_second, "pps")), lost(totals.tx_drops_per_second)),
    }
}

fn lost(per_second: Option<f64>) -> Piece {
    match per_second {
        Some(0.0) => ("0 drops".to_owned(), Tone::Faint),
        Some(drops) if drops < 1.0 => ("<1 drops/s".to_owned(), Tone::Bad),
        Some(drops) => (rate(Some(drops), "drops/s"), Tone::Bad),
        None => ("– drops".to_owned(), Tone::Faint),
    }
}

/// How many of the threads that ran are not where packets are.
fn seats(picture: &Picture) -> Piece {
    use linerate_host::live::picture::Seat;
    let seats = || picture.threads.value().into_iter().flatten().filter_map(|thread| thread.seat);
    let all = seats().count();
    let off = seats().filter(|seat| *seat != Seat::WithPackets).count();
    match (off, all) {
        (_, 0) => ("– off queue".to_owned(), Tone::Faint),
        (0, _) => ("0 off queue".to_owned(), Tone::Faint),
        (off, all) => (format!("{off}/{all} off queue"), Tone::Warn),
    }
}

fn worst(picture: &Picture, stage: Stage) -> Option<Severity> {
    let is_here = |name: StageName| match stage {
        Stage::Queues => matches!(name, StageName::Link | StageName::Rss),
        Stage::Cpus => {
            matches!(name, StageName::Machine | StageName::Irq | StageName::Softirq | StageName::Filter)
        }
        Stage::Sockets => matches!(name, StageName::Route | StageName::Socket),
        Stage::Threads => name == StageName::Thread,
        Stage::Out => name == StageName::Transmit,
    };
    picture.findings.iter().filter(|found| is_here(found.stage)).map(|found| found.severity).max()
}
