//! Asking a person for agreement.

use std::io::IsTerminal;

use anyhow::{Context, Result, ensure};

use crate::interrupt::InterruptFlag;

/// How agreement is given.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ConsentMode {
    /// Assume yes; do not prompt
    #[arg(short = 'y', long)]
    yes: bool,
}

impl ConsentMode {
    /// Sees before the work that there is somebody to ask.
    pub(crate) fn check(self) -> Result<()> {
        let somebody = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        ensure!(self.yes || somebody, "there is no terminal to ask on: --yes answers the question");
        Ok(())
    }

    /// Whether the answer to a question is yes; anything else is no.
    pub(crate) fn given(self, question: &str, interrupt: &InterruptFlag) -> Result<bool> {
        if self.yes {
            return Ok(true);
        }
        forget_typed_ahead();
        eprint!("{question} [y/N] ");
        let answer = line(interrupt)?;
        if answer.is_none() {
            eprintln!();
        }
        Ok(answer.is_some_and(|answer| ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())))
    }
}

/// A line from standard input; none where it ended, or a signal came first.
fn line(interrupt: &InterruptFlag) -> Result<Option<String>> {
    let mut text = Vec::new();
    // Past the buffer of the standard library, whose content nothing waits for.
    let stdin = std::io::stdin();
    while !interrupt.is_raised() {
        if !interrupt.wait_for(&stdin, None)? {
            continue;
        }
        let mut some = [0; 256];
        // A terminal gives a line at a time, and nothing that a later question waits for.
        let read = rustix::io::read(&stdin, &mut some).context("cannot read the answer")?;
        let Some(read) = some.get(..read).filter(|read| !read.is_empty()) else { return Ok(None) };
        text.extend_from_slice(read);
        if read.contains(&b'\n') {
            return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
        }
    }
    Ok(None)
}

/// What was typed before a question was there to read is no answer to it.
pub(super) fn forget_typed_ahead() {
    // Standard input that is no terminal keeps what it has.
    let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
}
