//! Conflicts with other owners of a plan's settings, and how to resolve them.
//!
//! An owner is a program or a configuration file that sets the same knob. Each has a file here. All reads pass through a
//! [`Host`], and the parsers are pure functions.

mod command;
mod irqbalance;
mod knob;
mod link_file;
mod network_manager;
mod owner;
mod reader;
mod script;
mod services;
mod sysctl_file;
#[cfg(test)]
mod tests;
mod tuned;

use std::collections::BTreeSet;

use linerate_host::stage::irq::TunedProfile;
use linerate_host::{Diagnosis, Host, HostView, Setting, SettingValue, diagnosis, ini};

use crate::TuneProfile;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};
use crate::plan::{self, PlannedChange, SkippedFinding, TunePlan};
use owner::{FoundOwners, WantedKnob};
use reader::ConfigurationReader;
pub(crate) use sysctl_file::is_in_later_file;

/// All owners of settings that were found on a host.
pub struct SettingOwners {
    owners: FoundOwners,
    unknown: Vec<String>,
}

impl SettingOwners {
    pub fn observe(host: &Host) -> Self {
        const KINDS: [fn(&ConfigurationReader<'_>) -> FoundOwners; 7] = [
            irqbalance::observe,
            tuned::observe,
            link_file::observe,
            network_manager::observe,
            sysctl_file::observe,
            script::observe,
            services::observe,
        ];
        let reader = ConfigurationReader::new(host);
        let owners = KINDS.iter().flat_map(|observe| observe(&reader)).collect();
        Self { owners, unknown: reader.unknown() }
    }

    /// The claims of all owners that give this setting another value.
    pub fn claims(&self, setting: &Setting, to: &SettingValue) -> Vec<SettingClaim> {
        let knob = WantedKnob::new(setting, to);
        self.owners.iter().filter_map(|owner| owner.claim(&knob)).collect()
    }

    /// One line per read that failed, so that there may be more owners.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }
}

/// Makes a plan and resolves its conflicts. If the owner of an interface's interrupts would revert
/// their placement, the plan is made again for interrupts that stay: RPS and XPS must fit the CPUs
/// that the queues interrupt.
pub fn resolved_plan(
    host: &Host,
    view: &HostView<'_>,
    diagnosis: &Diagnosis,
    profile: &TuneProfile,
    owners: &SettingOwners,
) -> TunePlan {
    let mut first_plan = plan::make(host, view, diagnosis, profile);
    let known_findings = first_plan.skipped.clone();
    let left_out = resolve(&mut first_plan, owners);
    let irq_of = |setting: &Setting| match setting {
        Setting::IrqAffinity { irq, .. } => Some(*irq),
        _ => None,
    };
    let left_irqs: BTreeSet<u32> = left_out.iter().filter_map(|change| irq_of(&change.setting)).collect();
    let irqs_of = |interface: &str| -> BTreeSet<u32> {
        view.now.irq.vectors(interface).iter().map(|vector| vector.irq).collect()
    };
    let interfaces = view.now.link.iter().map(|link| link.interface.clone());
    let staying_interfaces: BTreeSet<String> =
        interfaces.filter(|interface| !irqs_of(interface).is_disjoint(&left_irqs)).collect();
    if staying_interfaces.is_empty() {
        return first_plan;
    }
    let staying_irqs: BTreeSet<u32> =
        staying_interfaces.iter().flat_map(|interface| irqs_of(interface)).collect();
    let mut profile = profile.clone();
    profile.cpus.policy.stays.extend(staying_interfaces);
    let mut plan = plan::make(host, view, diagnosis, &profile);
    // They are where the owner put them, which is no target.
    plan.target.retain(|target| irq_of(&target.setting).is_none_or(|irq| !staying_irqs.contains(&irq)));
    // The owner is the reason why their findings remain.
    let owner_findings: Vec<SkippedFinding> =
        first_plan.skipped.into_iter().filter(|skipped| !known_findings.contains(skipped)).collect();
    plan.skipped.retain(|skipped| {
        known_findings.contains(skipped)
            || owner_findings.iter().all(|of_owner| of_owner.finding != skipped.finding)
    });
    plan.skipped.extend(owner_findings);
    resolve(&mut plan, owners);
    plan
}

/// Adds the claims of other owners to a plan, and the changes that make the owners leave its settings
/// alone. A change that an owner would revert by itself is skipped until a person has reconfigured
/// the owner. Returns these changes.
pub fn resolve(plan: &mut TunePlan, owners: &SettingOwners) -> Vec<PlannedChange> {
    for change in &mut plan.changes {
        change.claims = owners.claims(&change.setting, &change.to);
    }
    owners.owners.iter().for_each(|owner| owner.exclude(plan));
    let (kept, skipped) =
        std::mem::take(&mut plan.changes).into_iter().partition(|change| lasting_claim(change).is_none());
    plan.changes = kept;
    skip(plan, &skipped);
    skipped
}

/// Runs all parsers of owners' files over a text.
pub(crate) fn any_text(text: &str) {
    const PATH: &str = "/x";
    // The active profile is `x`.
    let read = |path: &str| Some(if path.contains("/x/") { text } else { "x" }.to_owned());
    TunedProfile::active(&read).settings().for_each(|setting| drop(tuned::owned_settings(&setting)));
    ini::file_entries(text, PATH).iter().for_each(|entry| drop(link_file::line(entry)));
    drop((network_manager::profile(text, PATH), network_manager::active_uuid(text)));
    drop(sysctl_file::assignments(text, PATH));
    drop((script::script(text, PATH), script::interfaces(text, PATH), command::settings(text)));
    // The results do not matter: no text may make a parser panic.
    let _ = (reader::property(text, "ID_PATH"), reader::matches(text, text));
    let _ = (services::governor(text, "GOVERNOR"), services::spreads_queues(text));
    let _ = (services::flush_line(text), services::firewall_backend(text));
    let _ = (services::audit_enabled(text), services::journal_audits(text));
}

// The claim of an owner that would revert a change again and again.
fn lasting_claim(change: &PlannedChange) -> Option<&SettingClaim> {
    let is_reverting = |claim: &&SettingClaim| {
        claim.enforcement == EnforcementMode::Always
            && matches!(claim.exclusion, ClaimExclusion::ByHand { .. })
    };
    change.claims.iter().find(is_reverting)
}

/// Why a change would not last, and the commands by which a person reconfigures the owner.
pub(crate) fn revert_reason(change: &PlannedChange) -> Option<(String, &[String])> {
    let claim = lasting_claim(change)?;
    let ClaimExclusion::ByHand { commands } = &claim.exclusion else { return None };
    Some((format!("{} would take it back: it {}", claim.owner, claim.what), commands))
}

/// Reports skipped changes, once per finding and owner.
fn skip(plan: &mut TunePlan, changes: &[PlannedChange]) {
    for change in changes {
        let Some((reason, commands)) = revert_reason(change) else { continue };
        let mut findings = change.findings.clone();
        if findings.is_empty() {
            findings.push(String::new());
        }
        for finding in findings {
            let is_known =
                |skipped: &SkippedFinding| skipped.finding == finding && skipped.commands == *commands;
            if plan.skipped.iter().any(is_known) {
                continue;
            }
            let title = diagnosis::rule(&finding).map_or_else(
                || format!("{} is not set to {}", change.setting, change.to),
                |rule| rule.title.to_owned(),
            );
            plan.skipped.push(SkippedFinding {
                finding,
                // Only doctor judges the severity on this host.
                severity: "unknown".to_owned(),
                title,
                why: reason.clone(),
                commands: commands.to_vec(),
            });
        }
    }
}
