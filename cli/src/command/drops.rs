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

use crate::interrupt::InterruptFlag;
use crate::origin;
use crate::output;
use crate::render::style::TextStyle;
use crate::render::{drops_html, drops_text, drops_verdict};
use arguments::DropsTargetArgs;
pub(crate) use document::{DropsDocument, SCHEMA};
use generator::LoadFile;
use look::DropsSession;
use meanwhile::{ConcurrentWorkload, EndedCommand};

use super::netns::NetnsArgs;
use super::results::ResultArgs;

/// Arguments of `linerate drops`.
#[derive(Debug, Args)]
pub(crate) struct DropsArgs {
    #[command(flatten)]
    asked: DropsTargetArgs,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl DropsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let interrupt = InterruptFlag::install()?;
        let load = self.asked.load.as_deref().map(LoadFile::expected).transpose()?;
        let started = origin::unix_seconds();
        let mut look = DropsSession::start(&self.asked)?;
        let meanwhile = ConcurrentWorkload::begin(&self.asked)?;
        let style = if targets.text { TextStyle::stdout() } else { TextStyle::stderr() };
        let ended = if self.asked.watch {
            watching::watch(&mut look, &meanwhile, &interrupt, (targets.text, style))?
        } else {
            loop {
                let ended = meanwhile.wait(&interrupt, look.turn()?)?;
                if ended.is_some() || interrupt.is_raised() || meanwhile.is_over() {
                    break ended;
                }
            }
        };
        let ledger = look.end(|| said(load.as_ref(), ended.as_ref()))?;
        let document = DropsDocument::new(started, ledger, load.as_ref(), ended.as_ref());
        if let Some(target) = &targets.json {
            target.write_json(&document)?;
        }
        if let Some(target) = &targets.html {
            target.write(&drops_html::drops(&document)?)?;
        }
        if targets.text {
            output::print(&drops_text::drops(&document, self.asked.full, TextStyle::stdout()))?;
        }
        if let Some(ended) = &ended {
            ended.must_have_succeeded()?;
        }
        Ok(ExitCode::from(u8::from(!drops_verdict::is_clean(&document.ledger))))
    }
}

/// What the generator says. Where its document is missing because the command that should write it failed, that is told.
fn said(load: Option<&LoadFile>, ended: Option<&EndedCommand>) -> Result<Option<GeneratorSaid>> {
    let said = load.map(LoadFile::read).transpose();
    if let (Err(_), Some(ended)) = (&said, ended) {
        ended.must_have_succeeded()?;
    }
    said
}
