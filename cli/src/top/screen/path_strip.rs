//! The whole path in a strip: each stage's rate, and its worst finding.

use linerate_host::Severity;
use linerate_host::StageName;
use linerate_host::live::snapshot::Snapshot;
use linerate_host::live::{HistoryItem, HistoryMetric};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{ScreenTheme, rate};
use crate::render::format;
use crate::render::style::TextTone;
use crate::top::fit::{StyledSpan, severity_sign};
use crate::top::panel::PanelStage;
use crate::top::spark::spark;
use crate::top::state::TopState;

/// Number of lines of the strip on a screen of this height.
pub(super) fn height(screen: u16) -> u16 {
    match screen {
        ..12 => 0,
        12..20 => 2,
        20..30 => 3,
        _ => 4,
    }
}

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &TopState,
    snapshot: &Snapshot,
    theme: ScreenTheme,
) {
    let width = area.width / 5;
    for (index, stage) in PanelStage::ALL.into_iter().enumerate() {
        let x = area.x + width * u16::try_from(index).unwrap_or(0);
        let stage_area = Rect { x, width: width.min(area.right().saturating_sub(x)), ..area };
        frame.render_widget(Paragraph::new(lines(state, snapshot, stage, stage_area, theme)), stage_area);
    }
}

fn lines(
    state: &TopState,
    snapshot: &Snapshot,
    stage: PanelStage,
    area: Rect,
    theme: ScreenTheme,
) -> Vec<Line<'static>> {
    let has_focus = state.stage() == stage;
    let title = if has_focus {
        theme.accent().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    } else {
        theme.tone(TextTone::Strong)
    };
    let mark = worst_severity(snapshot, stage);
    let (mark, tone) = severity_sign(mark);
    let title_width = stage.title().chars().count() + 4;
    let arrow = match stage {
        PanelStage::Out => String::new(),
        _ => format!("{:>width$}", "→ ", width = usize::from(area.width).saturating_sub(title_width)),
    };
    let heading_line = Line::from(vec![
        Span::raw(" "),
        Span::styled(format!(" {} ", stage.title()).trim_end().to_owned() + " ", title),
        Span::styled(mark, theme.tone(tone)),
        Span::styled(arrow, theme.tone(TextTone::Faint)),
    ]);
    let (first_figure, second_figure) = figures(snapshot, stage);
    let figure_line = |(text, tone): StyledSpan| Line::styled(format!("  {text}"), theme.tone(tone));
    let mut lines = vec![heading_line, figure_line(first_figure), figure_line(second_figure)];
    if area.height >= 4 {
        let metric = match stage {
            PanelStage::Queues => HistoryMetric::Packets,
            PanelStage::Cpus => HistoryMetric::Softirq,
            PanelStage::Sockets => HistoryMetric::Queued,
            PanelStage::Threads => HistoryMetric::Time,
            PanelStage::Out => HistoryMetric::Sent,
        };
        let figures: Vec<Option<f64>> = state.history.values(&HistoryItem::Path, metric).collect();
        let width = usize::from(area.width).saturating_sub(4).min(figures.len());
        let style = if theme.colour { theme.accent() } else { theme.tone(TextTone::Faint) };
        lines.push(Line::styled(format!("  {}", spark(&figures, width)), style));
    }
    lines.truncate(usize::from(area.height));
    lines
}

// The traffic and the losses of a stage.
fn figures(snapshot: &Snapshot, stage: PanelStage) -> (StyledSpan, StyledSpan) {
    let totals = &snapshot.totals;
    let plain_span = |text: String| (text, TextTone::Plain);
    match stage {
        PanelStage::Queues => {
            (plain_span(rate(totals.rx_packets_per_second, "pps")), lost(totals.rx_drops_per_second))
        }
        PanelStage::Cpus => {
            let softirq = totals
                .softirq_cpus
                .map_or_else(|| "softirq –".to_owned(), |cpus| format!("softirq {cpus:.2}"));
            (plain_span(softirq), lost(totals.backlog_drops_per_second))
        }
        PanelStage::Sockets => {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let queued_text = totals.queued_bytes.map_or_else(
                || "– queued".to_owned(),
                |bytes| match bytes {
                    0 => "0 queued".to_owned(),
                    bytes => format!("{}B queued", format::rate(bytes as f64)),
                },
            );
            (plain_span(queued_text), lost(totals.socket_drops_per_second))
        }
        PanelStage::Threads => {
            let time =
                totals.thread_cpus.map_or_else(|| "– CPUs".to_owned(), |cpus| format!("{cpus:.2} CPUs"));
            (plain_span(time), locality_span(snapshot))
        }
        PanelStage::Out => {
            (plain_span(rate(totals.tx_packets_per_second, "pps")), lost(totals.tx_drops_per_second))
        }
    }
}

fn lost(per_second: Option<f64>) -> StyledSpan {
    match per_second {
        Some(0.0) => ("0 drops".to_owned(), TextTone::Faint),
        Some(drops) if drops < 1.0 => ("<1 drops/s".to_owned(), TextTone::Bad),
        Some(drops) => (rate(Some(drops), "drops/s"), TextTone::Bad),
        None => ("– drops".to_owned(), TextTone::Faint),
    }
}

/// Active threads that run on CPUs without packets, of all active threads.
fn locality_span(snapshot: &Snapshot) -> StyledSpan {
    use linerate_host::live::snapshot::ThreadLocality;
    let localities = || snapshot.threads.value().into_iter().flatten().filter_map(|thread| thread.seat);
    let thread_count = localities().count();
    let off_queue = localities().filter(|seat| *seat != ThreadLocality::WithPackets).count();
    match (off_queue, thread_count) {
        (_, 0) => ("– off queue".to_owned(), TextTone::Faint),
        (0, _) => ("0 off queue".to_owned(), TextTone::Faint),
        (off_queue, thread_count) => (format!("{off_queue}/{thread_count} off queue"), TextTone::Warn),
    }
}

fn worst_severity(snapshot: &Snapshot, stage: PanelStage) -> Option<Severity> {
    let belongs_to_stage = |name: StageName| match stage {
        PanelStage::Queues => matches!(name, StageName::Link | StageName::Rss),
        PanelStage::Cpus => {
            matches!(name, StageName::Machine | StageName::Irq | StageName::Softirq | StageName::Filter)
        }
        PanelStage::Sockets => matches!(name, StageName::Route | StageName::Socket),
        PanelStage::Threads => name == StageName::Thread,
        PanelStage::Out => name == StageName::Transmit,
    };
    snapshot
        .findings
        .iter()
        .filter(|finding| belongs_to_stage(finding.stage))
        .map(|finding| finding.severity)
        .max()
}
