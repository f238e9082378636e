//! The terminal, taken over and given back however the program ends.

use std::io::Stdout;

use anyhow::{Context, Result};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::state::State;
use crate::render::style::Style;
use crate::render::top_screen::{self, Theme};

/// The whole screen, until it is dropped. A panic gives it back too, before its message is written.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    theme: Theme,
}

impl Screen {
    pub(super) fn take() -> Result<Self> {
        let theme = Theme { colour: Style::stdout().colour };
        let terminal = ratatui::try_init().context("cannot take over the terminal")?;
        Ok(Self { terminal, theme })
    }

    pub(super) fn draw(&mut self, state: &State) -> Result<()> {
        let theme = self.theme;
        self.terminal
            .draw(|frame| top_screen::draw(frame, state, theme))
            .map(|_| ())
            .context("cannot draw on the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to be told when the terminal is gone.
        let _ = ratatui::try_restore();
    }
}
