//! `linerate load merge`: results of several generators as one.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use linerate_load::load_document::{self, LoadDocument};

use super::run::exit;
use crate::command::results::ResultArgs;
use crate::output;
use crate::render::style::TextStyle;
use crate::render::{html, text};
use crate::view;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Files written by `linerate load --json`
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<String>,
    #[command(flatten)]
    results: ResultArgs,
}

impl MergeArgs {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let parts = self.files.iter().map(|file| Ok((file.clone(), read(file)?)));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let mut document = load_document::merge(&parts)?;
        document.version = env!("CARGO_PKG_VERSION").to_owned();
        document.argv = output::argv();
        if let Some(target) = &targets.json {
            target.write_json(&document)?;
        }
        let view = view::load::slot(&document);
        if let Some(target) = &targets.html {
            target.write(&html::page(&view)?)?;
        }
        if targets.text {
            output::print(&text::text(&view, TextStyle::stdout()))?;
        }
        Ok(exit(document.outcome.answered > 0))
    }
}

fn read(file: &str) -> Result<LoadDocument> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    LoadDocument::parse(&text).with_context(|| file.to_owned())
}
