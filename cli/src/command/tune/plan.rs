//! `linerate tune plan`: plans changes from the findings of doctor. Changes nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use linerate_host::{Diagnosis, Host, Severity};
use linerate_tune::conflicts::{self, SettingOwners};
use linerate_tune::journal::{RecordedTune, StateStore};
use linerate_tune::plan::{self, SkippedFinding};
use linerate_tune::{TunePlan, TuneProfile};

use super::arguments::StateDirArgs;
use super::profiles::ProfileArgs;
use crate::command::doctor::arguments::HostScopeArgs;
use crate::command::doctor::reading::{HostReadings, ObservedHost};
use crate::document::Section;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::text;
use crate::view::{self, tune_plan::PlannedTune};

#[derive(Debug, Args)]
pub(super) struct TunePlanArgs {
    #[command(flatten)]
    input: HostScopeArgs,
    #[command(flatten)]
    choice: ProfileArgs,
    /// Print this plan, written by --json, instead of a new one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "port", "pid", "interval", "root", "goal", "only", "except", "anyway"])]
    plan: Option<PathBuf>,
    /// Write the plan as JSON, to be edited or for apply --plan; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    /// Show all reasons, masks, commands and sources
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TunePlanArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let planned_tune = self.plan()?;
        let plan = &planned_tune.plan;
        let mut printed = Ok(());
        if json != Some(OutputTarget::Stdout) {
            let mut document = view::tune_plan::document(&planned_tune, self.full);
            if self.input.root.is_none() && !(plan.changes.is_empty() && plan.exclusions.is_empty()) {
                let apply = self.state_dir.command("apply");
                let text =
                    format!("Nothing was changed. To make these changes: {apply} with the same options.");
                document.sections.push(Section::default().with(text));
            }
            printed = output::print(&text::text(&document, TextStyle::stdout()));
        }
        // Neither the text nor the file may cost the other.
        printed.and(json.map_or(Ok(()), |target| target.write(&plan.to_json())))?;
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self) -> Result<PlannedTune> {
        if let Some(file) = &self.plan {
            return Ok(PlannedTune::of_plan(read_saved_plan(file)?, host_name(&Host::live())));
        }
        let planner = TunePlanner {
            input: self.input.clone(),
            profile: self.choice.profile()?,
            store: self.state_dir.store(),
        };
        planner.rehearsed_plan(&InterruptFlag::install()?)
    }
}

pub(super) struct TunePlanner {
    pub(super) input: HostScopeArgs,
    pub(super) profile: TuneProfile,
    /// The journal has the measured tunes of this host.
    pub(super) store: StateStore,
}

impl TunePlanner {
    /// Reads the host, once or twice, and plans.
    pub(super) fn plan(&self, interrupt: &InterruptFlag) -> Result<PlannedTune> {
        Ok(self.read_and_plan(interrupt)?.0)
    }

    /// Plans, and predicts the findings after the changes.
    pub(super) fn rehearsed_plan(&self, interrupt: &InterruptFlag) -> Result<PlannedTune> {
        let (mut planned_tune, readings) = self.read_and_plan(interrupt)?;
        let scope = readings.scope.clone();
        planned_tune.rehearsal = Some(plan::rehearse(readings.into_recordings(), &scope, &planned_tune.plan));
        Ok(planned_tune)
    }

    fn read_and_plan(&self, interrupt: &InterruptFlag) -> Result<(PlannedTune, HostReadings)> {
        let readings = ObservedHost::open(&self.input, true)?.read(interrupt)?;
        let mut diagnosis = Diagnosis::of(&readings.view());
        diagnosis.unknown.extend(readings.vanished_items());
        let host = readings.hosts.last().context("the host was not read")?;
        let owners = SettingOwners::observe(host);
        let mut plan = conflicts::resolved_plan(host, &readings.view(), &diagnosis, &self.profile, &owners);
        plan.read_unix_seconds = readings.unix_seconds;
        plan.order_by_benefit(&measured_tunes(&self.store, readings.live));
        let unread_parts = list_unread_parts(&diagnosis, &owners);
        complete_skipped(&mut plan.skipped, &diagnosis);
        let host = host_name(host);
        Ok((PlannedTune { plan, host, rehearsal: None, unseen: unread_parts }, readings))
    }
}

/// Adds severity and title to findings whose fix another tool prevents.
fn complete_skipped(skipped: &mut [SkippedFinding], diagnosis: &Diagnosis) {
    let rank = |severity: &str| Severity::ALL.iter().position(|level| level.name() == severity);
    for skipped_finding in
        skipped.iter_mut().filter(|skipped_finding| rank(&skipped_finding.severity).is_none())
    {
        if let Some(finding) = diagnosis.findings.iter().find(|finding| finding.id == skipped_finding.finding)
        {
            skipped_finding.severity = finding.severity.name().to_owned();
            skipped_finding.title.clone_from(&finding.title);
        }
    }
    skipped.sort_by_key(|skipped_finding| rank(&skipped_finding.severity).unwrap_or(usize::MAX));
}

/// The tunes in this host's journal; empty for a capture, or if the user may not read the journal.
pub(crate) fn measured_tunes(store: &StateStore, live: bool) -> Vec<RecordedTune> {
    let journal = live.then(|| store.read().ok()).flatten();
    journal.map(|journal| journal.tunes()).unwrap_or_default()
}

fn list_unread_parts(diagnosis: &Diagnosis, owners: &SettingOwners) -> Vec<String> {
    let path_note = match diagnosis.unknown.len() {
        0 => None,
        1 => Some("One part of the packet path could not be read; doctor names it.".to_owned()),
        count => Some(format!("{count} parts of the packet path could not be read; doctor names them.")),
    };
    let owner_notes =
        owners.unknown().iter().map(|owner| format!("Other tools may manage the same settings: {owner}."));
    path_note.into_iter().chain(owner_notes).collect()
}

pub(super) fn read_saved_plan(file: &Path) -> Result<TunePlan> {
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the plan {origin}"))?;
    Ok(TunePlan::parse(&text, &origin)?)
}

/// The node name of a host, or `the host`.
pub(crate) fn host_name(host: &Host) -> String {
    let name = host.read("/proc/sys/kernel/hostname").unwrap_or_default();
    // A capture may lack the name.
    if name.trim().is_empty() { "the host".to_owned() } else { name.trim().to_owned() }
}
