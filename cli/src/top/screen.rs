//! The screen of `linerate top`: a pure function of its state.

mod overlay;
mod path_strip;

use linerate_host::live::snapshot::LiveFinding;
use linerate_host::live::{HistoryItem, Snapshot};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::fit::{PanelFit, StyledSpan, severity_sign};
use super::panel::{PanelStage, TopPanel};
use super::{rows, text};
use crate::render::format;
use crate::render::style::{TextTone, wrap};
use crate::top::state::{SnapshotFeed, TopState};

/// Least width of a panel.
const PANEL: u16 = 38;
const GAP: u16 = 2;

/// Colours and characters of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScreenTheme {
    /// Whether colours are used, or only bold, dim and reversed.
    pub(crate) colour: bool,
    /// Whether all characters are ASCII.
    pub(crate) ascii: bool,
}

impl ScreenTheme {
    /// The one colour that marks the focus.
    fn accent(self) -> Style {
        if self.colour { Style::new().fg(Color::Cyan) } else { Style::new().add_modifier(Modifier::BOLD) }
    }

    fn tone(self, tone: TextTone) -> Style {
        let style = Style::new();
        match (tone, self.colour) {
            (TextTone::Plain, _) => style,
            (TextTone::Strong, _) => style.add_modifier(Modifier::BOLD),
            (TextTone::Faint, _) => style.add_modifier(Modifier::DIM),
            (TextTone::Good, true) => style.fg(Color::Green),
            (TextTone::Warn, true) => style.fg(Color::Yellow),
            (TextTone::Bad, true) => style.fg(Color::Red),
            (TextTone::Good, false) => style,
            (TextTone::Warn | TextTone::Bad, false) => style.add_modifier(Modifier::BOLD),
        }
    }

    fn line(self, pieces: Vec<StyledSpan>) -> Line<'static> {
        Line::from(
            pieces.into_iter().map(|(text, tone)| Span::styled(text, self.tone(tone))).collect::<Vec<_>>(),
        )
    }
}

pub(crate) fn draw(frame: &mut Frame<'_>, state: &TopState, theme: ScreenTheme) {
    draw_all(frame, state, theme);
    if theme.ascii {
        for cell in &mut frame.buffer_mut().content {
            let symbol = super::to_ascii(cell.symbol());
            cell.set_symbol(&symbol);
        }
    }
}

fn draw_all(frame: &mut Frame<'_>, state: &TopState, theme: ScreenTheme) {
    let area = frame.area();
    if area.height < 4 || area.width < 20 {
        return;
    }
    let header_area = Rect { height: 1, ..area };
    let footer_area = Rect { y: area.bottom() - 1, height: 1, ..area };
    frame.render_widget(header(state, area.width, theme), header_area);
    frame.render_widget(footer(state, theme), footer_area);
    let Some(snapshot) = &state.snapshot else {
        let message_area = Rect { y: area.y + area.height / 2, height: 1, ..area };
        frame.render_widget(
            Line::styled("reading the host …", theme.tone(TextTone::Faint)).centered(),
            message_area,
        );
        return;
    };
    let strip_height = path_strip::height(area.height);
    let findings = if area.height >= 20 { 2 } else { u16::from(area.height >= 12) };
    let strip_area = Rect { y: area.y + 1, height: strip_height, ..area };
    path_strip::draw(frame, strip_area, state, snapshot, theme);
    let body_top = strip_area.bottom() + u16::from(area.height >= 20);
    let body_bottom = footer_area.y.saturating_sub(findings);
    if body_bottom > body_top {
        let body_area = Rect { y: body_top, height: body_bottom - body_top, ..area };
        panels(frame, body_area, state, snapshot, theme);
    }
    if findings > 0 {
        let findings_area = Rect { y: body_bottom, height: findings, ..area };
        frame.render_widget(
            Paragraph::new(finding_lines(state, snapshot, findings_area, theme)),
            findings_area,
        );
    }
    overlay::draw(frame, state, snapshot, theme);
}

fn header(state: &TopState, width: u16, theme: ScreenTheme) -> Line<'static> {
    let mut title_spans: Vec<StyledSpan> = vec![(" linerate top  ".to_owned(), TextTone::Strong)];
    if let Some(snapshot) = &state.snapshot {
        title_spans.extend(text::host(snapshot));
    }
    let (sign, tone, words) = match (&state.source, state.paused) {
        (SnapshotFeed::Replay { at, of, speed, .. }, paused) => {
            let sign = if paused { "‖" } else { "▶" };
            (sign, TextTone::Warn, format!("replay {}/{of} ×{speed}", at + 1))
        }
        (_, true) => ("‖", TextTone::Warn, "paused".to_owned()),
        (SnapshotFeed::Live { seconds }, _) => ("●", TextTone::Good, format!("every {seconds} s")),
        (SnapshotFeed::Capture, _) => ("●", TextTone::Faint, "capture".to_owned()),
    };
    let clock = state.snapshot.as_ref().and_then(|snapshot| snapshot.unix_seconds).map(clock);
    let right_text = format!(" {words}{} ", clock.map(|clock| format!("  {clock}")).unwrap_or_default());
    let left_width = usize::from(width).saturating_sub(right_text.chars().count() + 2);
    let mut line = theme.line(clipped(title_spans, left_width));
    if let Some(first_span) = line.spans.first_mut() {
        first_span.style = theme.accent().add_modifier(Modifier::BOLD);
    }
    line.spans.push(Span::styled(format!(" {sign}"), theme.tone(tone)));
    line.spans.push(Span::styled(right_text, theme.tone(TextTone::Faint)));
    line
}

/// Cuts or fills pieces to a width.
fn clipped(spans: Vec<StyledSpan>, width: usize) -> Vec<StyledSpan> {
    let mut remaining = width;
    let mut clipped_spans = Vec::new();
    for (text, tone) in spans {
        let text: String = text.chars().take(remaining).collect();
        remaining -= text.chars().count();
        clipped_spans.push((text, tone));
    }
    clipped_spans.push((" ".repeat(remaining), TextTone::Plain));
    clipped_spans
}

/// The time of day, UTC.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since 1970")]
fn clock(unix_seconds: f64) -> String {
    let seconds = unix_seconds as u64 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn footer(state: &TopState, theme: ScreenTheme) -> Line<'static> {
    if let Some(typing) = &state.typing {
        return Line::from(vec![
            Span::styled(" filter: ", theme.accent()),
            Span::raw(format!("{typing}▏")),
            Span::styled(
                "  interface, port or process; Enter keeps it, Esc clears it",
                theme.tone(TextTone::Faint),
            ),
        ]);
    }
    let mut spans = Vec::new();
    if let Some(busy) = state.busy {
        spans.push(Span::styled(format!(" {busy} … "), theme.tone(TextTone::Warn)));
    }
    if let Some(message) = &state.message {
        spans.push(Span::styled(format!(" {message}"), theme.tone(TextTone::Plain)));
        return Line::from(spans);
    }
    let replay_keys = [("←→", "step"), ("+-", "speed"), ("tab", "stage")];
    let live_keys = [("←→", "stage"), ("d", "drops"), ("f", "flame")];
    let keys = if state.is_replay() { replay_keys } else { live_keys };
    let common_keys = [("↑↓", "row"), ("↵", "look"), ("s", "sort"), ("/", "filter"), ("p", "pause")];
    for (key, action) in keys.into_iter().chain(common_keys).chain([("?", "help"), ("q", "quit")]) {
        spans.push(Span::styled(format!(" {key}"), theme.accent()));
        spans.push(Span::styled(format!(" {action}"), theme.tone(TextTone::Faint)));
    }
    Line::from(spans)
}

/// Draws as many panels as fit, including the panel with the focus.
fn panels(frame: &mut Frame<'_>, area: Rect, state: &TopState, snapshot: &Snapshot, theme: ScreenTheme) {
    let count = (area.width / PANEL).clamp(1, 5);
    let first_panel = state.focus.saturating_sub(usize::from(count) / 2).min(5 - usize::from(count));
    let width = (area.width - GAP * (count - 1)) / count;
    let mut x = area.x;
    for number in 0..count {
        let Some(stage) = PanelStage::ALL.get(first_panel + usize::from(number)) else { break };
        let width = if number + 1 == count { area.right() - x } else { width };
        let panel = rows::panel(snapshot, *stage, &state.choice);
        draw_panel(frame, Rect { x, width, ..area }, state, &panel, theme);
        x += width + GAP;
    }
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, state: &TopState, panel: &TopPanel, theme: ScreenTheme) {
    let has_focus = state.stage() == panel.stage;
    let width = usize::from(area.width);
    let mut lines = vec![panel_title(state, panel, width, has_focus, theme)];
    if let Some(reason) = &panel.unknown {
        let words = wrap(reason, width);
        lines.extend(words.into_iter().map(|line| Line::styled(line, theme.tone(TextTone::Faint))));
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    let fit = PanelFit::new(panel, Some(&state.history), width);
    lines.push(theme.line(fit.heads()));
    let row_count = usize::from(area.height).saturating_sub(lines.len());
    let selected_item = state.chosen.get(panel.stage.index()).and_then(Option::as_ref);
    let selected_index = selected_item.and_then(|item| fit.position(item));
    let first_row = first_visible_row(selected_index, fit.len(), row_count);
    for (number, spans) in (first_row..).zip(fit.lines(first_row)).take(row_count) {
        lines.push(row_line(spans, has_focus && selected_index == Some(number), width, theme));
    }
    let hidden_rows = fit.len().saturating_sub(first_row + row_count);
    if hidden_rows > 0
        && let Some(last) = lines.last_mut()
    {
        *last = Line::styled(format!("    … {} more", hidden_rows + 1), theme.tone(TextTone::Faint));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

// The number of rows above the screen that keeps the selected row visible, and not under the line
// that counts hidden rows.
fn first_visible_row(selected_row: Option<usize>, rows: usize, visible_rows: usize) -> usize {
    let Some(selected_row) = selected_row else { return 0 };
    let max_offset = rows.saturating_sub(visible_rows);
    (selected_row + 2).saturating_sub(visible_rows).min(max_offset)
}

fn row_line(spans: Vec<StyledSpan>, is_selected: bool, width: usize, theme: ScreenTheme) -> Line<'static> {
    if !is_selected {
        return theme.line(spans);
    }
    let mut line = theme.line(clipped(spans, width));
    for span in &mut line.spans {
        span.style = span.style.remove_modifier(Modifier::DIM).add_modifier(Modifier::REVERSED);
    }
    line
}

fn panel_title(
    state: &TopState,
    panel: &TopPanel,
    width: usize,
    has_focus: bool,
    theme: ScreenTheme,
) -> Line<'static> {
    let mut notes: Vec<String> = Vec::new();
    let sort = state.choice.sorts.get(panel.stage.index()).copied().unwrap_or(0);
    if sort > 0 {
        notes.push(format!("by {}", panel.stage.sorts().get(sort).copied().unwrap_or_default()));
    }
    if !state.choice.filter.is_empty() {
        notes.push(match panel.unfiltered {
            true => "all: none matches".to_owned(),
            false => format!("/{}", state.choice.filter),
        });
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" {} ", notes.join(", ")) };
    let title = format!("━ {} ", panel.stage.title());
    let rule = width.saturating_sub(title.chars().count() + notes.chars().count() + 1);
    let style =
        if has_focus { theme.accent().add_modifier(Modifier::BOLD) } else { theme.tone(TextTone::Faint) };
    let title_style = if has_focus { style } else { theme.tone(TextTone::Strong) };
    let rule = (if has_focus { "━" } else { "─" }).repeat(rule);
    let prefix = if has_focus { "━ " } else { "─ " };
    Line::from(vec![
        Span::styled(prefix, style),
        Span::styled(format!("{} ", panel.stage.title()), title_style),
        Span::styled(rule, style),
        Span::styled(notes, theme.tone(TextTone::Faint)),
    ])
}

// The findings of the selected item, else the worst ones.
fn finding_lines(
    state: &TopState,
    snapshot: &Snapshot,
    area: Rect,
    theme: ScreenTheme,
) -> Vec<Line<'static>> {
    let item_findings = state.item().map(|item| findings_of(snapshot, item)).unwrap_or_default();
    let (findings, further) = match item_findings.is_empty() {
        true => (snapshot.findings.iter().collect(), "findings"),
        false => (item_findings, "here"),
    };
    let Some(first_finding) = findings.first() else {
        return vec![Line::styled(" nothing found wrong", theme.tone(TextTone::Faint))];
    };
    let further_count = findings.len() - 1;
    let (mark, tone) = severity_sign(Some(first_finding.severity));
    let more_text = match further_count {
        0 => String::new(),
        count => format!("  (+{count} {further})"),
    };
    let text_width = usize::from(area.width).saturating_sub(3);
    let lines = wrap(&format!("{}: {}{more_text}", first_finding.id, first_finding.title), text_width);
    let height = usize::from(area.height);
    let is_cut = lines.len() > height;
    let mut visible_lines: Vec<Line<'static>> = Vec::new();
    for (number, text) in lines.into_iter().take(height).enumerate() {
        let prefix = if number == 0 { format!(" {mark} ") } else { "   ".to_owned() };
        let text = if is_cut && number + 1 == height {
            format!("{}…", text.chars().take(text_width.saturating_sub(1)).collect::<String>())
        } else {
            text
        };
        visible_lines.push(Line::from(vec![Span::styled(prefix, theme.tone(tone)), Span::raw(text)]));
    }
    visible_lines
}

/// The findings at an item.
fn findings_of<'a>(snapshot: &'a Snapshot, item: &HistoryItem) -> Vec<&'a LiveFinding> {
    use linerate_host::live::snapshot::FindingSite;
    let site = match item {
        HistoryItem::Interface(name) => FindingSite::Interface(name.clone()),
        HistoryItem::Receive(name, queue) => FindingSite::Receive(name.clone(), *queue),
        HistoryItem::Transmit(name, queue) => FindingSite::Transmit(name.clone(), *queue),
        HistoryItem::Cpu(cpu) => FindingSite::Cpu(*cpu),
        HistoryItem::Service(name) => FindingSite::Service(name.clone()),
        HistoryItem::Thread(tid) => FindingSite::Thread(*tid),
        HistoryItem::Socket(inode) => match super::service_of_socket(snapshot, *inode) {
            Some(service) => FindingSite::Service(service.name.clone()),
            None => return Vec::new(),
        },
        HistoryItem::Path => return snapshot.findings.iter().collect(),
    };
    snapshot.findings.iter().filter(|finding| finding.places.contains(&site)).collect()
}

// A rate in letters; a dash if it is unknown.
fn rate(per_second: Option<f64>, unit: &str) -> String {
    per_second.map_or_else(|| format!("– {unit}"), |rate| format!("{} {unit}", format::rate(rate)))
}

#[cfg(test)]
mod tests;
