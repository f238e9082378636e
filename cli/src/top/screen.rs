//! The screen of `linerate top`: a pure function of its state.

mod overlay;
mod strip;

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
        let plain = Style::new();
        match (tone, self.colour) {
            (TextTone::Plain, _) => plain,
            (TextTone::Strong, _) => plain.add_modifier(Modifier::BOLD),
            (TextTone::Faint, _) => plain.add_modifier(Modifier::DIM),
            (TextTone::Good, true) => plain.fg(Color::Green),
            (TextTone::Warn, true) => plain.fg(Color::Yellow),
            (TextTone::Bad, true) => plain.fg(Color::Red),
            (TextTone::Good, false) => plain,
            (TextTone::Warn | TextTone::Bad, false) => plain.add_modifier(Modifier::BOLD),
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
    let top = Rect { height: 1, ..area };
    let bottom = Rect { y: area.bottom() - 1, height: 1, ..area };
    frame.render_widget(header(state, area.width, theme), top);
    frame.render_widget(footer(state, theme), bottom);
    let Some(snapshot) = &state.snapshot else {
        let middle = Rect { y: area.y + area.height / 2, height: 1, ..area };
        frame.render_widget(
            Line::styled("reading the host …", theme.tone(TextTone::Faint)).centered(),
            middle,
        );
        return;
    };
    let strip_height = strip::height(area.height);
    let findings = if area.height >= 20 { 2 } else { u16::from(area.height >= 12) };
    let strip = Rect { y: area.y + 1, height: strip_height, ..area };
    strip::draw(frame, strip, state, snapshot, theme);
    let body_top = strip.bottom() + u16::from(area.height >= 20);
    let body_bottom = bottom.y.saturating_sub(findings);
    if body_bottom > body_top {
        let body = Rect { y: body_top, height: body_bottom - body_top, ..area };
        panels(frame, body, state, snapshot, theme);
    }
    if findings > 0 {
        let rect = Rect { y: body_bottom, height: findings, ..area };
        frame.render_widget(Paragraph::new(found_lines(state, snapshot, rect, theme)), rect);
    }
    overlay::draw(frame, state, snapshot, theme);
}

fn header(state: &TopState, width: u16, theme: ScreenTheme) -> Line<'static> {
    let mut left: Vec<StyledSpan> = vec![(" linerate top  ".to_owned(), TextTone::Strong)];
    if let Some(snapshot) = &state.snapshot {
        left.extend(text::host(snapshot));
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
    let right = format!(" {words}{} ", clock.map(|clock| format!("  {clock}")).unwrap_or_default());
    let room = usize::from(width).saturating_sub(right.chars().count() + 2);
    let mut line = theme.line(clipped(left, room));
    if let Some(first) = line.spans.first_mut() {
        first.style = theme.accent().add_modifier(Modifier::BOLD);
    }
    line.spans.push(Span::styled(format!(" {sign}"), theme.tone(tone)));
    line.spans.push(Span::styled(right, theme.tone(TextTone::Faint)));
    line
}

/// Cuts or fills pieces to a width.
fn clipped(pieces: Vec<StyledSpan>, width: usize) -> Vec<StyledSpan> {
    let mut left = width;
    let mut kept = Vec::new();
    for (text, tone) in pieces {
        let text: String = text.chars().take(left).collect();
        left -= text.chars().count();
        kept.push((text, tone));
    }
    kept.push((" ".repeat(left), TextTone::Plain));
    kept
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
    let replay = [("←→", "step"), ("+-", "speed"), ("tab", "stage")];
    let live = [("←→", "stage"), ("d", "drops"), ("f", "flame")];
    let keys = if state.is_replay() { replay } else { live };
    let others = [("↑↓", "row"), ("↵", "look"), ("s", "sort"), ("/", "filter"), ("p", "pause")];
    for (key, what) in keys.into_iter().chain(others).chain([("?", "help"), ("q", "quit")]) {
        spans.push(Span::styled(format!(" {key}"), theme.accent()));
        spans.push(Span::styled(format!(" {what}"), theme.tone(TextTone::Faint)));
    }
    Line::from(spans)
}

/// Draws as many panels as fit, including the panel with the focus.
fn panels(frame: &mut Frame<'_>, area: Rect, state: &TopState, snapshot: &Snapshot, theme: ScreenTheme) {
    let count = (area.width / PANEL).clamp(1, 5);
    let first = state.focus.saturating_sub(usize::from(count) / 2).min(5 - usize::from(count));
    let width = (area.width - GAP * (count - 1)) / count;
    let mut x = area.x;
    for number in 0..count {
        let Some(stage) = PanelStage::ALL.get(first + usize::from(number)) else { break };
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
    if let Some(why) = &panel.unknown {
        let words = wrap(why, width);
        lines.extend(words.into_iter().map(|line| Line::styled(line, theme.tone(TextTone::Faint))));
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    let fit = PanelFit::new(panel, Some(&state.history), width);
    lines.push(theme.line(fit.heads()));
    let room = usize::from(area.height).saturating_sub(lines.len());
    let chosen = state.chosen.get(panel.stage.index()).and_then(Option::as_ref);
    let at = chosen.and_then(|item| fit.position(item));
    let above = above(at, fit.len(), room);
    for (number, pieces) in (above..).zip(fit.lines(above)).take(room) {
        lines.push(row_line(pieces, has_focus && at == Some(number), width, theme));
    }
    let below = fit.len().saturating_sub(above + room);
    if below > 0
        && let Some(last) = lines.last_mut()
    {
        *last = Line::styled(format!("    … {} more", below + 1), theme.tone(TextTone::Faint));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

// The number of rows above the screen that keeps the selected row visible, and not under the line
// that counts hidden rows.
fn above(chosen: Option<usize>, rows: usize, room: usize) -> usize {
    let Some(chosen) = chosen else { return 0 };
    let most = rows.saturating_sub(room);
    (chosen + 2).saturating_sub(room).min(most)
}

fn row_line(pieces: Vec<StyledSpan>, chosen: bool, width: usize, theme: ScreenTheme) -> Line<'static> {
    if !chosen {
        return theme.line(pieces);
    }
    let mut line = theme.line(clipped(pieces, width));
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
    let strong = if has_focus { style } else { theme.tone(TextTone::Strong) };
    let rule = (if has_focus { "━" } else { "─" }).repeat(rule);
    let lead = if has_focus { "━ " } else { "─ " };
    Line::from(vec![
        Span::styled(lead, style),
        Span::styled(format!("{} ", panel.stage.title()), strong),
        Span::styled(rule, style),
        Span::styled(notes, theme.tone(TextTone::Faint)),
    ])
}

// The findings of the selected item, else the worst ones.
fn found_lines(state: &TopState, snapshot: &Snapshot, area: Rect, theme: ScreenTheme) -> Vec<Line<'static>> {
    let here = state.item().map(|item| findings_of(snapshot, item)).unwrap_or_default();
    let (found, of_item) =
        if here.is_empty() { (snapshot.findings.iter().collect(), false) } else { (here, true) };
    let Some(first) = found.first() else {
        return vec![Line::styled(" nothing found wrong", theme.tone(TextTone::Faint))];
    };
    let more = found.len() - 1;
    let (mark, tone) = severity_sign(Some(first.severity));
    let more = match (more, of_item) {
        (0, _) => String::new(),
        (more, true) => format!("  (+{more} here)"),
        (more, false) => format!("  (+{more} findings)"),
    };
    let room = usize::from(area.width).saturating_sub(3);
    let lines = wrap(&format!("{}: {}{more}", first.id, first.title), room);
    let height = usize::from(area.height);
    let is_cut = lines.len() > height;
    let mut shown: Vec<Line<'static>> = Vec::new();
    for (number, text) in lines.into_iter().take(height).enumerate() {
        let lead = if number == 0 { format!(" {mark} ") } else { "   ".to_owned() };
        let text = if is_cut && number + 1 == height {
            format!("{}…", text.chars().take(room.saturating_sub(1)).collect::<String>())
        } else {
            text
        };
        shown.push(Line::from(vec![Span::styled(lead, theme.tone(tone)), Span::raw(text)]));
    }
    shown
}

/// The findings at an item.
fn findings_of<'a>(snapshot: &'a Snapshot, item: &HistoryItem) -> Vec<&'a LiveFinding> {
    use linerate_host::live::snapshot::FindingSite;
    let place = match item {
        HistoryItem::Interface(name) => FindingSite::Interface(name.clone()),
        HistoryItem::Receive(name, queue) => FindingSite::Receive(name.clone(), *queue),
        HistoryItem::Transmit(name, queue) => FindingSite::Transmit(name.clone(), *queue),
        HistoryItem::Cpu(cpu) => FindingSite::Cpu(*cpu),
        HistoryItem::Service(name) => FindingSite::Service(name.clone()),
        HistoryItem::Thread(tid) => FindingSite::Thread(*tid),
        HistoryItem::Socket(inode) => {
            let services = snapshot.services.value().into_iter().flatten();
            let has = |service: &&linerate_host::live::snapshot::ServiceSnapshot| {
                service.sockets.iter().any(|socket| socket.inode == *inode)
            };
            let mut services = services.filter(has);
            match services.next() {
                Some(service) => FindingSite::Service(service.name.clone()),
                None => return Vec::new(),
            }
        }
        HistoryItem::Path => return snapshot.findings.iter().collect(),
    };
    snapshot.findings.iter().filter(|found| found.places.contains(&place)).collect()
}

// A rate in letters; a dash if it is unknown.
fn rate(per_second: Option<f64>, unit: &str) -> String {
    per_second.map_or_else(|| format!("– {unit}"), |rate| format!("{} {unit}", format::rate(rate)))
}

#[cfg(test)]
mod tests;
