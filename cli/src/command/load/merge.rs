//! `linerate load merge`: what several generators found at the same time, as one result.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_load::load_document::{self, LoadDocument};

use super::run::exit;
use crate::output::{self, OutputTarget};
use crate::render::{load_html, load_text};

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Files written by `linerate load --json`
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<String>,
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    /// Write the result as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
}

impl MergeArgs {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let html = OutputTarget::from_option(self.html.as_deref())?;
        let on_stdout = |target: &Option<OutputTarget>| *target == Some(OutputTarget::Stdout);
        ensure!(
            !(on_stdout(&json) && on_stdout(&html)),
            "--json - and --html - both want standard output; give one of them a file"
        );
        let parts = self.files.iter().map(|file| Ok((file.clone(), read(file)?)));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let mut document = load_document::merge(&parts)?;
        document.version = env!("CARGO_PKG_VERSION").to_owned();
        document.argv = output::argv();
        if let Some(target) = &json {
            target.write_json(&document)?;
        }
        if let Some(target) = &html {
            target.write(&load_html::slot(&document)?)?;
        }
        if !on_stdout(&json) && !on_stdout(&html) {
            output::print(&load_text::slot(&document))?;
        }
        Ok(exit(document.outcome.answered > 0))
    }
}

fn read(file: &str) -> Result<LoadDocument> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    LoadDocument::parse(&text).with_context(|| file.to_owned())
}
