//! The state of `linerate top`'s screen, and its reactions to keys. Independent of the terminal.

use std::cell::Cell;
use std::path::PathBuf;

use linerate_host::live::{HistoryItem, Snapshot, SnapshotHistory};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::panel::{PanelStage, RowSelection};
use super::rows;

/// The state that determines the whole screen.
#[derive(Debug, Default)]
pub(crate) struct TopState {
    // `None` until the first snapshot.
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) history: SnapshotHistory,
    pub(crate) source: SnapshotFeed,
    pub(crate) focus: usize,
    /// The selected item per stage.
    pub(crate) chosen: [Option<HistoryItem>; 5],
    pub(crate) choice: RowSelection,
    /// The text being typed; `None` otherwise.
    pub(crate) typing: Option<String>,
    pub(crate) paused: bool,
    pub(crate) over: Option<TopOverlay>,
    /// Number of lines of the overlay above the screen.
    /// Drawing limits it to the overlay's length.
    pub(crate) scrolled: Cell<u16>,
    /// The name of the job in the background.
    pub(crate) busy: Option<&'static str>,
    /// The latest message, shown at the bottom.
    pub(crate) message: Option<String>,
}

/// The source of snapshots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SnapshotFeed {
    /// A live host, read at this interval.
    Live { seconds: f64 },
    /// A capture, which does not change.
    Capture,
    /// A recording.
    Replay { at: usize, of: usize, speed: f64, file: PathBuf },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TopOverlay {
    Help,
    /// An item with its history.
    Details(HistoryItem),
    /// A title and lines of text.
    Text(&'static str, Vec<String>),
}

/// Actions that the program executes for the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopAction {
    Quit,
    /// Count drops.
    Drops,
    /// Record a flame graph.
    Flame,
    /// Estimate the headroom of a service.
    Headroom,
    /// Move forward by this number of snapshots in a recording.
    Step(isize),
    /// Play the recording faster.
    Faster,
    Slower,
}

impl Default for SnapshotFeed {
    fn default() -> Self {
        SnapshotFeed::Live { seconds: 1.0 }
    }
}

impl TopState {
    // Takes a new snapshot; it is shown unless the screen is paused.
    pub(crate) fn take(&mut self, snapshot: Snapshot) {
        self.history.add(&snapshot);
        if !self.paused || self.snapshot.is_none() || self.is_replay() {
            self.snapshot = Some(snapshot);
        }
    }

    pub(crate) fn is_replay(&self) -> bool {
        matches!(self.source, SnapshotFeed::Replay { .. })
    }

    pub(crate) fn stage(&self) -> PanelStage {
        PanelStage::ALL.get(self.focus).copied().unwrap_or(PanelStage::Queues)
    }

    /// The item selected in the stage that has the focus.
    pub(crate) fn item(&self) -> Option<&HistoryItem> {
        self.chosen.get(self.focus)?.as_ref()
    }

    /// Handles a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Option<TopAction> {
        // Ctrl-F is another key than F: other programs page down with it. Alt is not checked: a
        // terminal also reports Alt for Esc and a letter in quick succession.
        if let (true, KeyCode::Char(letter)) = (key.modifiers.contains(KeyModifiers::CONTROL), key.code) {
            return (letter == 'c').then_some(TopAction::Quit);
        }
        self.message = None;
        if self.typing.is_some() {
            self.type_key(key.code);
            return None;
        }
        if self.over.is_some() && self.press_in_overlay(key.code) {
            return None;
        }
        self.pressed(key.code)
    }

    fn pressed(&mut self, key: KeyCode) -> Option<TopAction> {
        match key {
            KeyCode::Char('q') => return Some(TopAction::Quit),
            KeyCode::Esc => self.clear_filter(),
            KeyCode::Tab => self.turn_focus(1),
            KeyCode::BackTab => self.turn_focus(4),
            KeyCode::Left if self.is_replay() => return Some(TopAction::Step(-1)),
            KeyCode::Right if self.is_replay() => return Some(TopAction::Step(1)),
            KeyCode::Left | KeyCode::Char('h') => self.focus = self.focus.saturating_sub(1),
            KeyCode::Right | KeyCode::Char('l') => self.focus = (self.focus + 1).min(4),
            KeyCode::Char(number @ '1'..='5') => self.focus = number as usize - '1' as usize,
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::PageDown => self.move_selection(10),
            KeyCode::PageUp => self.move_selection(-10),
            KeyCode::Home | KeyCode::Char('g') => self.move_selection(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.move_selection(isize::MAX / 2),
            KeyCode::Char('s') => self.sort(),
            KeyCode::Char('/') => self.typing = Some(self.choice.filter.clone()),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Enter => self.over = self.item().cloned().map(TopOverlay::Details),
            KeyCode::Char('F') => self.choice.unfolded = !self.choice.unfolded,
            KeyCode::Char('?') => self.over = Some(TopOverlay::Help),
            KeyCode::Char('d') => return self.background(TopAction::Drops),
            KeyCode::Char('f') => return self.background(TopAction::Flame),
            KeyCode::Char('e') => return self.background(TopAction::Headroom),
            KeyCode::Char('+' | '=') if self.is_replay() => return Some(TopAction::Faster),
            KeyCode::Char('-') if self.is_replay() => return Some(TopAction::Slower),
            _ => {}
        }
        self.scrolled.set(0);
        None
    }

    // Returns whether an overlay handled the key.
    fn press_in_overlay(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.over = None,
            KeyCode::Char('?') if self.over == Some(TopOverlay::Help) => self.over = None,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::Home => self.scrolled.set(0),
            _ => return false,
        }
        if self.over.is_none() {
            self.scrolled.set(0);
        }
        true
    }

    fn scroll(&self, lines: i16) {
        self.scrolled.set(self.scrolled.get().saturating_add_signed(lines));
    }

    fn type_key(&mut self, key: KeyCode) {
        let Some(typing) = &mut self.typing else { return };
        match key {
            KeyCode::Char(character) => typing.push(character),
            KeyCode::Backspace => {
                typing.pop();
            }
            KeyCode::Esc => {
                self.typing = None;
                self.clear_filter();
                return;
            }
            KeyCode::Enter => {
                self.typing = None;
                return;
            }
            _ => return,
        }
        self.choice.filter = typing.trim().to_lowercase();
    }

    fn clear_filter(&mut self) {
        self.choice.filter.clear();
    }

    fn turn_focus(&mut self, offset: usize) {
        self.focus = (self.focus + offset) % 5;
    }

    fn sort(&mut self) {
        let stage = self.stage();
        if let Some(sort) = self.choice.sorts.get_mut(self.focus) {
            *sort = (*sort + 1) % stage.sorts().len();
            let order_name = stage.sorts().get(*sort).copied().unwrap_or_default();
            self.message = Some(format!("{} sorted by {order_name}", stage.title()));
        }
    }

    /// Moves the selection down by `offset` rows; without a selection, selects the first row.
    fn move_selection(&mut self, offset: isize) {
        let Some(snapshot) = &self.snapshot else { return };
        let items = rows::panel(snapshot, self.stage(), &self.choice).items();
        let selected_index =
            self.item().and_then(|item| items.iter().position(|candidate| candidate == item));
        let last_index = items.len().saturating_sub(1);
        let next_index = match selected_index {
            Some(index) => index.saturating_add_signed(offset).min(last_index),
            None if offset > 1 => usize::try_from(offset).unwrap_or(0).min(last_index),
            None => 0,
        };
        if let (Some(selection), Some(item)) = (self.chosen.get_mut(self.focus), items.get(next_index)) {
            *selection = Some(item.clone());
        }
    }

    fn background(&mut self, action: TopAction) -> Option<TopAction> {
        match (&self.source, self.busy) {
            (SnapshotFeed::Live { .. }, None) => return Some(action),
            (SnapshotFeed::Live { .. }, Some(busy)) => {
                self.message = Some(format!("{busy}: wait until that is done"));
            }
            (_, _) => {
                let activity = match action {
                    TopAction::Drops => "drops are counted",
                    TopAction::Headroom => "headroom is estimated",
                    _ => "stacks are sampled",
                };
                self.message = Some(format!("{activity} on a running host only"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
