//! `linerate flame`: what burns along the packet path. Changes nothing.

mod aim;
mod comparison;
mod document;
mod drawing;
mod look;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_host::Host;

use super::results::{ResultArgs, ResultTargets};
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget, argv};
use crate::render::style::TextStyle;
use crate::render::{flame_diff_text, flame_html, flame_text};
use aim::FlameTargetArgs;
pub(crate) use comparison::{
    ComparedProfile, FlameComparison, LockChange, SCHEMA as DIFF_SCHEMA, SpotChange,
};
#[cfg(test)]
pub(crate) use document::FlameHostSummary;
pub(crate) use document::{FlameDocument, SCHEMA, SelfSamples};
pub(crate) use drawing::{FlameView, difference_for_page, graph_for_page};
use look::FlameResult;

/// Arguments of `linerate flame`.
#[derive(Debug, Args)]
pub(crate) struct FlameArgs {
    #[command(flatten)]
    aim: FlameTargetArgs,
    /// Only interrupt context: hardware interrupts and softirqs
    #[arg(long, conflicts_with = "locks")]
    irq_only: bool,
    /// Draw one graph per CPU, side by side
    #[arg(long, conflicts_with = "locks")]
    per_cpu: bool,
    /// Only lock contention, without samples
    #[arg(long, conflicts_with_all = ["no_locks", "svg", "folded", "frequency"])]
    locks: bool,
    /// Only samples, without lock contention
    #[arg(long)]
    no_locks: bool,
    /// Write the flame graph as SVG, with zoom and search in a browser; - is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<String>,
    /// Write folded stacks, one per line with its samples; - is standard output
    #[arg(long, value_name = "FILE")]
    folded: Option<String>,
    /// Print a run that was saved with --json, instead of a new one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["duration", "frequency", "cpus", "interface", "locks"])]
    from: Option<String>,
    /// Compare two runs that were saved with --json
    #[arg(
        long,
        value_names = ["BEFORE", "AFTER"],
        num_args = 2,
        conflicts_with_all = ["from", "duration", "frequency", "cpus", "interface", "locks", "folded"]
    )]
    diff: Option<Vec<String>>,
    /// Print all hot spots with sources and functions, all waits and all CPUs
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    results: ResultArgs,
}

/// Where everything goes.
struct FlameOutputs {
    results: ResultTargets,
    svg: Option<OutputTarget>,
    folded: Option<OutputTarget>,
    /// Whether standard output is left for text.
    text: bool,
}

impl FlameArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let outputs = self.outputs()?;
        let shown = FlameView { irq_only: self.irq_only, per_cpu: self.per_cpu };
        if let Some([before, after]) = self.diff.as_deref() {
            let comparison = FlameComparison::of(before, after, shown)?;
            return self.tell_difference(&comparison, &outputs);
        }
        let document = match &self.from {
            Some(file) => FlameDocument::read(file)?.seen_as(shown, !self.no_locks),
            None => self.look(shown)?,
        };
        self.tell(&document, &outputs)
    }

    fn outputs(&self) -> Result<FlameOutputs> {
        let results = self.results.targets()?;
        let svg = OutputTarget::from_option(self.svg.as_deref())?;
        let folded = OutputTarget::from_option(self.folded.as_deref())?;
        let more = [&svg, &folded].into_iter().flatten();
        let on_stdout =
            more.filter(|target| **target == OutputTarget::Stdout).count() + usize::from(!results.text);
        ensure!(
            on_stdout <= 1,
            "only one of --json, --html, --svg and --folded can go to standard output; give the others a file"
        );
        Ok(FlameOutputs { results, svg, folded, text: on_stdout == 0 })
    }

    /// A new run.
    fn look(&self, shown: FlameView) -> Result<FlameDocument> {
        let host = Host::live();
        let asked = self.aim.asked(&host)?;
        let interrupt = InterruptFlag::install()?;
        let looked = FlameResult::at(&host, &asked, !self.locks, !self.no_locks, &interrupt)?;
        Ok(FlameDocument::new(&host, looked, shown))
    }

    fn tell(&self, document: &FlameDocument, outputs: &FlameOutputs) -> Result<ExitCode> {
        if let Some(target) = &outputs.results.json {
            target.write_compact_json(document)?;
        }
        let mut missing = Vec::new();
        if let Some(target) = &outputs.svg {
            match drawing::svg(document)? {
                Some(svg) => target.write(&svg)?,
                None => missing.push("--svg"),
            }
        }
        if let Some(target) = &outputs.folded {
            match drawing::folded(document) {
                Some(text) => target.write(&text)?,
                None => missing.push("--folded"),
            }
        }
        if let Some(target) = &outputs.results.html {
            target.write(&flame_html::flame(document)?)?;
        }
        if outputs.text {
            output::print(&flame_text::flame(document, self.full, TextStyle::stdout()))?;
        }
        Ok(missed(&missing))
    }

    fn tell_difference(&self, comparison: &FlameComparison, outputs: &FlameOutputs) -> Result<ExitCode> {
        if let Some(target) = &outputs.results.json {
            target.write_json(comparison)?;
        }
        let mut missing = Vec::new();
        if let Some(target) = &outputs.svg {
            match drawing::difference(comparison)? {
                Some(svg) => target.write(&svg)?,
                None => missing.push("--svg"),
            }
        }
        if let Some(target) = &outputs.results.html {
            target.write(&flame_html::difference(comparison)?)?;
        }
        if outputs.text {
            output::print(&flame_diff_text::difference(comparison, self.full, TextStyle::stdout()))?;
        }
        Ok(missed(&missing))
    }
}

/// Tells what was asked for and is not written, since there is nothing to put in it.
fn missed(options: &[&str]) -> ExitCode {
    for option in options {
        eprintln!("linerate: {option}: no file was written, since no sample is to be shown");
    }
    ExitCode::from(u8::from(!options.is_empty()))
}

/// The document of a file.
fn read_document<T: serde::de::DeserializeOwned>(file: &str, schema: &str, made_by: &str) -> Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{file}: no document of '{made_by}'"))?;
    let found = value.get("schema").and_then(serde_json::Value::as_str);
    match found {
        Some(found) if found == schema => {}
        Some(found) => {
            anyhow::bail!("{file}: it is a {found} document; this takes {schema}, as '{made_by}' writes")
        }
        None => anyhow::bail!("{file}: no document of '{made_by}': it has no schema"),
    }
    serde_json::from_value(value).with_context(|| format!("{file}: no whole document of '{made_by}'"))
}

fn program() -> (String, Vec<String>) {
    (env!("CARGO_PKG_VERSION").to_owned(), argv())
}
