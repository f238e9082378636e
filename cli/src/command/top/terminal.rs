//! The terminal, taken over and given back however the program ends.

use std::io::Stdout;

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::state::TopState;
use crate::render::style::TextStyle;
use crate::render::top_screen::{self, ScreenTheme};

/// The whole screen, until it is dropped. A panic gives it back too, before its message is written.
pub(super) struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    theme: ScreenTheme,
}

impl TerminalScreen {
    pub(super) fn take() -> Result<Self> {
        let theme = ScreenTheme { colour: TextStyle::stdout().colour };
        let terminal = ratatui::try_init().context("cannot take over the terminal")?;
        Ok(Self { terminal, theme })
    }

    pub(super) fn draw(&mut self, state: &TopState) -> Result<()> {
        let theme = self.theme;
        self.terminal
            .draw(|frame| top_screen::draw(frame, state, theme))
            .map(|_| ())
            .context("cannot draw on the terminal")
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        // Nobody is left to be told when the terminal is gone.
        let _ = ratatui::try_restore();
    }
}
