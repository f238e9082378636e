//! Making a plan from what doctor finds.

use std::path::Path;

use anyhow::{Context, Result};
use linerate_host::{Diagnosis, Host, HostRecording, Scope, Severity};
use linerate_tune::conflicts::{self, SettingOwners};
use linerate_tune::plan::{self, PlanRehearsal, SkippedFinding};
use linerate_tune::{TunePlan, TuneProfile};

use crate::command::doctor::arguments::HostScopeArgs;
use crate::command::doctor::reading::ObservedHost;
use crate::interrupt::InterruptFlag;

/// What to plan for, and from what.
pub(super) struct TunePlanner {
    pub(super) sight: HostScopeArgs,
    pub(super) profile: TuneProfile,
}

/// A plan, and what it was made from.
pub(super) struct PlannedTune {
    pub(super) plan: TunePlan,
    /// What the host calls itself.
    pub(super) host: String,
    /// What could not be seen, so that there may be more to change, or others who set the same; a sentence each.
    pub(super) unseen: Vec<String>,
    readings: Vec<HostRecording>,
    scope: Scope,
}

impl TunePlanner {
    /// Reads the host, once or twice, and plans.
    pub(super) fn plan(&self, interrupt: &InterruptFlag) -> Result<PlannedTune> {
        let readings = ObservedHost::open(&self.sight, true)?.read(interrupt)?;
        let mut found = Diagnosis::of(&readings.view());
        found.unknown.extend(readings.vanished());
        let host = readings.hosts.last().context("the host was not read")?;
        let mut plan = plan::make(host, &readings.view(), &found, &self.profile);
        plan.read_unix_seconds = readings.unix_seconds;
        let owners = SettingOwners::observe(host);
        conflicts::resolve(&mut plan, &owners);
        let unseen = unseen(&found, &owners);
        complete(&mut plan.left, &found);
        let (name, scope) = (host_name(host), readings.scope.clone());
        Ok(PlannedTune { plan, host: name, unseen, readings: readings.into_recordings(), scope })
    }
}

impl PlannedTune {
    /// What doctor would say once it is carried out.
    pub(super) fn rehearse(&mut self) -> PlanRehearsal {
        plan::rehearse(std::mem::take(&mut self.readings), &self.scope, &self.plan)
    }
}

/// Says of what an owner keeps from being fixed how much it matters here, and what it is.
fn complete(left: &mut [SkippedFinding], found: &Diagnosis) {
    let known = |severity: &str| Severity::ALL.iter().position(|known| known.name() == severity);
    for one in left.iter_mut().filter(|one| known(&one.severity).is_none()) {
        if let Some(finding) = found.findings.iter().find(|finding| finding.id == one.finding) {
            one.severity = finding.severity.name().to_owned();
            one.title.clone_from(&finding.title);
        }
    }
    left.sort_by_key(|one| known(&one.severity).unwrap_or(usize::MAX));
}

fn unseen(found: &Diagnosis, owners: &SettingOwners) -> Vec<String> {
    let of_path = match found.unknown.len() {
        0 => None,
        1 => Some("Of the packet path one thing could not be seen; doctor tells what.".to_owned()),
        many => Some(format!("Of the packet path {many} things could not be seen; doctor tells which.")),
    };
    let of_owners =
        owners.unknown().iter().map(|what| format!("There may be others who set the same: {what}."));
    of_path.into_iter().chain(of_owners).collect()
}

/// A plan from a file.
pub(super) fn saved(file: &Path) -> Result<TunePlan> {
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the plan {origin}"))?;
    Ok(TunePlan::parse(&text, &origin)?)
}

/// What a host calls itself.
pub(crate) fn host_name(host: &Host) -> String {
    let name = host.read("/proc/sys/kernel/hostname").unwrap_or_default();
    // A capture need not tell.
    if name.trim().is_empty() { "the host".to_owned() } else { name.trim().to_owned() }
}
