//! `linerate drops`: where packets end, until the books balance.

mod arguments;
mod document;
mod generator;
mod look;
mod meanwhile;
mod watching;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_trace::drops::GeneratorSaid;

use crate::interrupt::Interrupt;
use crate::origin;
use crate::output;
use crate::render::style::Style;
use crate::render::{drops_html, drops_text, drops_verdict};
use arguments::Asked;
pub(crate) use document::{Document, SCHEMA};
use generator::LoadFile;
use look::Look;
use meanwhile::{Ended, Meanwhile};

use super::netns::NetnsArgs;
use super::results::Results;

/// Arguments of `linerate drops`.
#[derive(Debug, Args)]
pub(crate) struct Drops {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    results: Results,
}

impl Drops {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let interrupt = Interrupt::install()?;
        let load = self.asked.load.as_deref().map(LoadFile::expected).transpose()?;
        let started = origin::unix_seconds();
        let mut look = Look::start(&self.asked)?;
        let meanwhile = Meanwhile::begin(&self.asked)?;
        let style = if targets.text { Style::stdout() } else { Style::stderr() };
        let ended = if self.asked.watch {
            watching::watch(&mut look, &meanwhile, &interrupt, (targets.text, style))?
        } else {
            loop {
                let ended = meanwhile.wait(&interrupt, look.turn()?)?;
                if ended.is_some() || interrupt.raised() || meanwhile.is_over() {
                    break ended;
                }
            }
        };
        let ledger = look.end(|| said(load.as_ref(), ended.as_ref()))?;
        let document = Document::new(started, ledger, load.as_ref(), ended.as_ref());
        if let Some(target) = &targets.json {
            target.json(&document)?;
        }
        if let Some(target) = &targets.html {
            target.write(&drops_html::drops(&document)?)?;
        }
        if targets.text {
            output::print(&drops_text::drops(&document, self.asked.full, Style::stdout()))?;
        }
        if let Some(ended) = &ended {
            ended.must_have_succeeded()?;
        }
        Ok(ExitCode::from(u8::from(!drops_verdict::is_clean(&document.ledger))))
    }
}

/// What the generator says. Where its document is missing because the command that should write it failed, that is told.
fn said(load: Option<&LoadFile>, ended: Option<&Ended>) -> Result<Option<GeneratorSaid>> {
    let said = load.map(LoadFile::read).transpose();
    if let (Err(_), Some(ended)) = (&said, ended) {
        ended.must_have_succeeded()?;
    }
    said
}
