use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::top::sample;
use crate::top::state::TopOverlay;

fn buffer(state: &TopState, (width, height): (u16, u16), theme: ScreenTheme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, state, theme)).expect("drawn");
    terminal.backend().buffer().clone()
}

/// The text of a screen.
fn screen(state: &TopState, size: (u16, u16)) -> String {
    let buffer = buffer(state, size, ScreenTheme { colour: true, ascii: false });
    let line = |y: u16| {
        let line: String = (0..size.0).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned()
    };
    (0..size.1).map(line).collect::<Vec<_>>().join("\n")
}

fn state_of(snapshot: Snapshot) -> TopState {
    let mut state = TopState::default();
    for seconds in 0..30 {
        let mut earlier = snapshot.clone();
        let part = f64::from(seconds % 7 + 1) / 7.0;
        earlier.totals.rx_packets_per_second = snapshot.totals.rx_packets_per_second.map(|rate| rate * part);
        state.take(earlier);
    }
    state.take(snapshot);
    state
}

#[test]
fn a_small_host_fits_80_columns() {
    insta::assert_snapshot!(screen(&state_of(sample::small()), (80, 24)));
}

#[test]
fn the_selected_item_and_its_finding_are_shown_in_200_columns() {
    let mut state = state_of(sample::small());
    state.focus = 1;
    state.chosen[1] = Some(HistoryItem::Cpu(0));
    insta::assert_snapshot!(screen(&state, (200, 60)));
}

#[test]
fn the_focused_last_panel_is_shown_in_80_columns() {
    let mut state = state_of(sample::small());
    state.focus = 4;
    insta::assert_snapshot!(screen(&state, (80, 24)));
}

#[test]
fn a_host_of_128_cpus_and_256_queues_is_folded() {
    insta::assert_snapshot!(screen(&state_of(sample::big()), (200, 60)));
}

#[test]
fn a_host_without_values_shows_the_reasons() {
    insta::assert_snapshot!(screen(&state_of(sample::empty()), (80, 24)));
}

#[test]
fn the_details_overlay_shows_the_history_of_a_cpu() {
    let mut state = state_of(sample::small());
    state.over = Some(TopOverlay::Details(HistoryItem::Cpu(0)));
    insta::assert_snapshot!(screen(&state, (80, 24)));
}

#[test]
fn help_fits_80_columns() {
    let mut state = state_of(sample::small());
    state.over = Some(TopOverlay::Help);
    insta::assert_snapshot!(screen(&state, (80, 24)));
}

#[test]
fn an_overlay_scrolls_back_at_once_after_its_end() {
    let mut state = state_of(sample::small());
    state.over = Some(TopOverlay::Help);
    state.scrolled.set(500);
    let end = screen(&state, (80, 24));
    let _ = state.press(KeyEvent::new(KeyCode::Up, KeyModifiers::NONE));
    assert_ne!(screen(&state, (80, 24)), end);
}

#[test]
fn disabling_colour_removes_colours_but_changes_no_text() {
    let state = state_of(sample::small());
    let [plain, colour] =
        [false, true].map(|colour| buffer(&state, (120, 40), ScreenTheme { colour, ascii: false }));
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(colour.content().iter().any(|cell| cell.fg == Color::Cyan));
    assert!(colour.content().iter().any(|cell| cell.fg == Color::Red), "losses are red");
    let letters =
        |buffer: &Buffer| buffer.content().iter().map(|c| c.symbol().to_owned()).collect::<Vec<_>>();
    assert_eq!(letters(&plain), letters(&colour));
}

#[test]
fn a_terminal_without_unicode_gets_ascii() {
    let mut state = state_of(sample::big());
    for overlay in [None, Some(TopOverlay::Help), Some(TopOverlay::Details(HistoryItem::Cpu(0)))] {
        state.over = overlay;
        let buffer = buffer(&state, (200, 60), ScreenTheme { colour: false, ascii: true });
        let symbols: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
        assert!(symbols.is_ascii() && !symbols.replace("for 5 s into", "").contains("? ? ?"), "{symbols}");
    }
}

#[test]
fn drawing_never_panics_at_any_size() {
    let overs = [None, Some(TopOverlay::Help), Some(TopOverlay::Text("drops", vec!["x".repeat(300); 40]))];
    for snapshot in [sample::small(), sample::empty()] {
        let mut state = state_of(snapshot);
        for over in &overs {
            state.over.clone_from(over);
            for (width, height) in
                [(1, 1), (20, 4), (21, 11), (37, 12), (38, 19), (79, 20), (81, 30), (300, 90)]
            {
                let _ = screen(&state, (width, height));
            }
        }
    }
}
