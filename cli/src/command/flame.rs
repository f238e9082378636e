//! `linerate flame`: hot spots of the packet path. Changes nothing.

mod measurement;
mod target;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use linerate_host::Host;
use linerate_trace::TraceError;
use linerate_trace::flame::comparison::{ComparedProfile, FlameComparison};
use linerate_trace::flame::fold;
use linerate_trace::flame::result::{FlameResult, FlameSelection};

use super::results::{ResultArgs, ResultTargets};
use crate::envelope::{CommandResult, Envelope};
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary, Warning};
use crate::output::{self, OutputTarget};
use crate::view::flame::{difference_graph, flame_graph};
use target::FlameTargetArgs;

#[derive(Debug, Args)]
pub(crate) struct FlameArgs {
    #[command(flatten)]
    target: FlameTargetArgs,
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

struct FlameOutputs {
    results: ResultTargets,
    svg: Option<OutputTarget>,
    folded: Option<OutputTarget>,
}

impl FlameArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let outputs = self.outputs()?;
        let selection = FlameSelection { irq_only: self.irq_only, per_cpu: self.per_cpu };
        if let Some([before, after]) = self.diff.as_deref() {
            let envelope = self.compare(before, after, selection)?;
            let graph = || difference_graph(&envelope.result, true);
            return self.write(&envelope, graph, || None, &outputs);
        }
        let envelope = match &self.from {
            Some(file) => {
                let mut envelope = self.read(file)?;
                envelope.result = envelope.result.select(selection);
                envelope
            }
            None => self.measure(selection)?,
        };
        let result = &envelope.result;
        let folded = || {
            let profile = result.profile.as_ref().filter(|_| result.samples() > 0)?;
            Some(fold::folded(profile, result.shown))
        };
        self.write(&envelope, || flame_graph(&envelope, true), folded, &outputs)
    }

    fn outputs(&self) -> Result<FlameOutputs> {
        let mut results = self.results.targets()?;
        let svg = OutputTarget::from_option(self.svg.as_deref())?;
        let folded = OutputTarget::from_option(self.folded.as_deref())?;
        let graphs = [("--svg", self.svg.as_deref()), ("--folded", self.folded.as_deref())];
        output::check_distinct(&[self.results.named(), graphs].concat())?;
        results.text &= ![&svg, &folded].contains(&&Some(OutputTarget::Stdout));
        Ok(FlameOutputs { results, svg, folded })
    }

    fn measure(&self, selection: FlameSelection) -> Result<Envelope<FlameResult>> {
        let host = Host::live();
        let options = self.target.options(&host)?;
        let interrupt = InterruptFlag::install()?;
        let started_unix_seconds = origin::unix_seconds();
        let (profile, contention) =
            measurement::measure(&host, &options, !self.locks, !self.no_locks, &interrupt)?;
        let (contention, failure) = match contention.transpose() {
            Ok(contention) => (contention, None),
            Err(error) => (None, Some(Warning::remark(format!("No lock contention: {error}.")))),
        };
        let result = FlameResult::new(selection, profile, contention);
        Ok(Envelope::new(HostSummary::observe(&host), started_unix_seconds, result).with_warnings(failure))
    }

    // Writes everything that was requested. Reports a file that is not written because there are no samples for it.
    fn write<T: CommandResult>(
        &self,
        envelope: &Envelope<T>,
        graph: impl FnOnce() -> Result<Option<String>, TraceError>,
        folded: impl FnOnce() -> Option<String>,
        outputs: &FlameOutputs,
    ) -> Result<ExitCode> {
        let mut files = Vec::new();
        if let Some(target) = &outputs.svg {
            files.push(("--svg", target, graph().context("the flame graph cannot be drawn")?));
        }
        if let Some(target) = &outputs.folded {
            files.push(("--folded", target, folded()));
        }
        let mut is_complete = true;
        for (option, target, text) in files {
            match text {
                Some(text) => target.write(&text)?,
                None => {
                    is_complete = false;
                    status_line!(
                        "linerate: {option}: no file was written, because there are no samples to show"
                    );
                }
            }
        }
        outputs.results.write_with_detail(envelope, self.full)?;
        Ok(ExitCode::from(u8::from(!is_complete)))
    }

    fn read(&self, file: &str) -> Result<Envelope<FlameResult>> {
        let mut envelope: Envelope<FlameResult> = Envelope::read(Path::new(file))?;
        envelope.result.contention = envelope.result.contention.filter(|_| !self.no_locks);
        Ok(envelope)
    }

    fn compare(
        &self,
        before: &str,
        after: &str,
        selection: FlameSelection,
    ) -> Result<Envelope<FlameComparison>> {
        let (old, new) = (self.read(before)?, self.read(after)?);
        let warnings = warnings(&old, &new);
        let host = new.host.clone();
        let profile_side = |file: &str, envelope: Envelope<FlameResult>| {
            let (name, started) = (envelope.host.name, envelope.started_unix_seconds);
            (ComparedProfile::new(file.to_owned(), name, envelope.argv, started), envelope.result)
        };
        let comparison = FlameComparison::new(selection, profile_side(before, old), profile_side(after, new))
            .map_err(|reason| anyhow!(reason))?;
        Ok(Envelope::new(host, origin::unix_seconds(), comparison).with_warnings(warnings))
    }
}

// Differences of the two hosts and measurements that limit the comparison.
fn warnings(before: &Envelope<FlameResult>, after: &Envelope<FlameResult>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let name = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let (old, new) = (&before.host, &after.host);
    if old.name != new.name {
        let detail = format!("The results are of two hosts: {} and {}.", name(&old.name), name(&new.name));
        warnings.push(Warning::remark(detail));
    }
    if old.kernel != new.kernel {
        warnings.push(Warning::remark(format!(
            "The kernels differ ({} and {}), so functions may have other names.",
            name(&old.kernel),
            name(&new.kernel)
        )));
    }
    if before.result.contention.is_some() != after.result.contention.is_some() {
        warnings.push(Warning::remark("Only one result has lock waits, so they are not compared."));
    }
    warnings
}
