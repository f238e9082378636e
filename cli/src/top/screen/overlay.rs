//! Overlays: help, the details of an item, lines of text.

use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph};

use super::{ScreenTheme, findings_of};
use crate::render::format;
use crate::render::style::{TextTone, wrap};
use crate::top::fit::severity_sign;
use crate::top::panel::PanelStage;
use crate::top::spark::multi_line_spark;
use crate::top::state::{TopOverlay, TopState};
use crate::top::{rows, service_of_socket};

const HELP: &[(&str, &str)] = &[
    ("← → tab 1-5", "select a stage (in a replay: tab, 1-5)"),
    ("↑ ↓ PgUp PgDn", "select an item; Home and End: the first, the last"),
    ("Enter", "show the item's details and history"),
    ("s", "sort the stage by another column"),
    ("/", "filter by words: an interface, a port, a process"),
    ("F", "show idle queues and CPUs one by one, or fold them"),
    ("p space", "pause the display; recording continues"),
    ("d", "count drops for 5 s and show where packets are lost"),
    ("e", "estimate a service's headroom in 5 s"),
    ("f", "sample stacks for 5 s and write a flame graph (SVG) here"),
    ("← → + -", "in a replay: previous, next snapshot; faster, slower"),
    ("Esc", "close this; clear the filter"),
    ("q", "quit"),
];

const LEGEND: &[&str] = &[
    "▲ ◆ • · mark doctor's findings: high, medium, low, note.",
    "QUEUES: packets and drops per receive queue, its interrupts, and the CPU that handled most of them.",
    "IRQ / CPU: softirq is time; share is the CPU's part of all packets; RPS/s: packets from other CPUs; drops: backlog \
     full; sqz: NET_RX ran out of budget or time.",
    "SOCKETS: fill of the receive buffer, and datagrams dropped because it was full.",
    "THREADS: 'here' runs on a CPU that processes packets, 'off' on another of the node; » moved since the last snapshot.",
    "OUT: packets per transmit queue; drops of its queueing discipline.",
    "–: not reported by the driver or kernel, or requires a second reading.",
];

pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState, snapshot: &Snapshot, theme: ScreenTheme) {
    let Some(overlay) = &state.over else { return };
    let screen = frame.area();
    let width = screen.width.saturating_sub(4).min(100);
    let text_width = usize::from(width.saturating_sub(4));
    let (title, lines) = match overlay {
        TopOverlay::Help => ("help".to_owned(), help(text_width, theme)),
        TopOverlay::Details(item) => {
            (name(snapshot, item), details(state, snapshot, item, text_width, theme))
        }
        TopOverlay::Text(title, text) => {
            let lines = text.iter().flat_map(|line| pieces(line, text_width)).map(Line::raw);
            ((*title).to_owned(), lines.collect())
        }
    };
    let needed_height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let height = needed_height.min(screen.height.saturating_sub(2));
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    let visible_lines = height.saturating_sub(2);
    let max_scroll = needed_height.saturating_sub(2).saturating_sub(visible_lines);
    let scrolled = state.scrolled.get().min(max_scroll);
    state.scrolled.set(scrolled);
    let scroll_hint = if max_scroll > scrolled { " ↓ more " } else { "" };
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.accent())
        .title(Span::styled(format!(" {title} "), theme.tone(TextTone::Strong)))
        .title_bottom(
            Line::styled(format!("{scroll_hint} Esc "), theme.tone(TextTone::Faint)).right_aligned(),
        )
        .padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block).scroll((scrolled, 0)), area);
}

// A line unchanged, or broken if it is too long.
fn pieces(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width { vec![line.to_owned()] } else { wrap(line, width) }
}

fn help(width: usize, theme: ScreenTheme) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (key, meaning) in HELP {
        for (number, text) in wrap(meaning, width.saturating_sub(16)).into_iter().enumerate() {
            let key = if number == 0 { *key } else { "" };
            lines.push(Line::from(vec![Span::styled(format!("{key:<16}"), theme.accent()), Span::raw(text)]));
        }
    }
    for text in LEGEND {
        lines.push(Line::raw(""));
        lines.extend(
            wrap(text, width).into_iter().map(|line| Line::styled(line, theme.tone(TextTone::Faint))),
        );
    }
    lines
}

fn name(snapshot: &Snapshot, item: &HistoryItem) -> String {
    match item {
        HistoryItem::Path => "the path".to_owned(),
        HistoryItem::Interface(name) => name.clone(),
        HistoryItem::Receive(name, queue) => format!("{name} rx-{queue}"),
        HistoryItem::Transmit(name, queue) => format!("{name} tx-{queue}"),
        HistoryItem::Cpu(cpu) => format!("CPU {cpu}"),
        HistoryItem::Service(name) => name.clone(),
        HistoryItem::Socket(inode) => {
            let service = service_of_socket(snapshot, *inode);
            format!("socket {inode} of {}", service.map_or("a service that is gone", |service| &service.name))
        }
        HistoryItem::Thread(tid) => {
            let mut threads = snapshot.threads.value().into_iter().flatten();
            let thread = threads.find(|thread| thread.tid == *tid);
            thread.map_or_else(
                || format!("thread {tid}, gone"),
                |thread| format!("thread {} {tid} of process {}", thread.name, thread.pid),
            )
        }
    }
}

// All figures of an item, its curves and its findings.
fn details(
    state: &TopState,
    snapshot: &Snapshot,
    item: &HistoryItem,
    width: usize,
    theme: ScreenTheme,
) -> Vec<Line<'static>> {
    let mut lines = facts(snapshot, item, width, theme);
    for (metric, title) in metrics(item) {
        let figures: Vec<Option<f64>> = state.history.values(item, *metric).collect();
        let known_figures = || figures.iter().flatten().copied();
        let Some(latest) = figures.last().copied().flatten().or_else(|| known_figures().last()) else {
            continue;
        };
        let maximum = known_figures().fold(0.0, f64::max);
        lines.push(Line::raw(""));
        lines.push(Line::from(vec![
            Span::styled(format!("{title}  "), theme.tone(TextTone::Strong)),
            Span::raw(figure(*metric, latest)),
            Span::styled(
                format!("  most {} in {} snapshots", figure(*metric, maximum), figures.len()),
                theme.tone(TextTone::Faint),
            ),
        ]));
        // A curve of zeros needs only one line.
        let height = if maximum > 0.0 { 3 } else { 1 };
        let curve = multi_line_spark(&figures, width.min(figures.len().max(1)), height);
        lines.extend(curve.into_iter().map(|line| Line::styled(line, theme.accent())));
    }
    for finding in findings_of(snapshot, item) {
        let (mark, tone) = severity_sign(Some(finding.severity));
        lines.push(Line::raw(""));
        for (number, text) in wrap(&format!("{}: {}", finding.id, finding.title), width.saturating_sub(2))
            .into_iter()
            .enumerate()
        {
            let mark = if number == 0 { mark.clone() } else { " ".to_owned() };
            lines.push(Line::from(vec![Span::styled(mark, theme.tone(tone)), Span::raw(format!(" {text}"))]));
        }
        let remedy = wrap(&finding.remedy, width.saturating_sub(2)).into_iter();
        lines.extend(remedy.map(|text| Line::styled(format!("  {text}"), theme.tone(TextTone::Faint))));
    }
    lines
}

/// The cells of the item's row with their heads.
fn facts(snapshot: &Snapshot, item: &HistoryItem, width: usize, theme: ScreenTheme) -> Vec<Line<'static>> {
    let selection = crate::top::panel::RowSelection { unfolded: true, ..Default::default() };
    for stage in PanelStage::ALL {
        let panel = rows::panel(snapshot, stage, &selection);
        for block in &panel.blocks {
            if block.item.as_ref() == Some(item) {
                let words = wrap(&block.facts, width);
                return words.into_iter().map(Line::raw).collect();
            }
            let Some(row) = block.rows.iter().find(|row| row.item == *item) else { continue };
            let mut spans = Vec::new();
            for (heading, cell) in panel.heads.iter().zip(&row.cells) {
                if heading.title.is_empty()
                    || !cell.text.contains(|character: char| character.is_alphanumeric())
                {
                    continue;
                }
                spans.push(Span::styled(format!("{} ", heading.title), theme.tone(TextTone::Faint)));
                spans.push(Span::styled(format!("{}   ", cell.text.trim()), theme.tone(cell.tone)));
            }
            let location_line =
                Line::styled(format!("{} {}", block.title, block.facts), theme.tone(TextTone::Faint));
            return vec![location_line, Line::from(spans)];
        }
    }
    vec![Line::styled("it is gone", theme.tone(TextTone::Faint))]
}

fn metrics(item: &HistoryItem) -> &'static [(HistoryMetric, &'static str)] {
    match item {
        HistoryItem::Path => {
            &[(HistoryMetric::Packets, "packets received"), (HistoryMetric::Sent, "packets sent")]
        }
        HistoryItem::Interface(_) => &[
            (HistoryMetric::Packets, "packets received"),
            (HistoryMetric::Sent, "packets sent"),
            (HistoryMetric::Drops, "lost on receive"),
        ],
        HistoryItem::Receive(..) => &[
            (HistoryMetric::Packets, "packets"),
            (HistoryMetric::Drops, "lost"),
            (HistoryMetric::Interrupts, "interrupts"),
        ],
        HistoryItem::Transmit(..) => &[(HistoryMetric::Packets, "packets"), (HistoryMetric::Drops, "lost")],
        HistoryItem::Cpu(_) => &[
            (HistoryMetric::Softirq, "time in softirq"),
            (HistoryMetric::Packets, "packets"),
            (HistoryMetric::Drops, "lost in the backlog"),
            (HistoryMetric::Squeezes, "squeezes"),
        ],
        HistoryItem::Service(_) | HistoryItem::Socket(_) => {
            &[(HistoryMetric::Queued, "queued"), (HistoryMetric::Drops, "lost")]
        }
        HistoryItem::Thread(_) => &[(HistoryMetric::Time, "time")],
    }
}

fn figure(metric: HistoryMetric, value: f64) -> String {
    match metric {
        HistoryMetric::Softirq | HistoryMetric::Time => format::percent(value),
        HistoryMetric::Queued => format!("{}B", format::rate(value)),
        HistoryMetric::Packets
        | HistoryMetric::Sent
        | HistoryMetric::Drops
        | HistoryMetric::Interrupts
        | HistoryMetric::Squeezes => {
            format!("{}/s", format::rate(value))
        }
    }
}
