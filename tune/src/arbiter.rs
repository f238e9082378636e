//! Who else sets what a plan would set, and how to agree with them.
//!
//! An owner is a program or a file of configuration; each has a file here. What it reads goes through the host's handle and
//! is parsed by pure functions.

mod audit;
mod command;
mod filter;
mod google;
mod governor;
mod irqbalance;
mod knob;
mod link_file;
mod network_manager;
mod scene;
mod script;
mod sysctl_file;
#[cfg(test)]
mod tests;
mod tuned;

use std::fmt;

use linerate_host::{Host, Setting, SettingValue, diagnosis};

use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};
use crate::plan::{PlannedChange, SkippedFinding, TunePlan};
use knob::WantedKnob;
use scene::ArbiterHost;

/// All who set things on a host.
#[derive(Debug)]
pub struct SettingOwners {
    owners: Found,
    unknown: Vec<String>,
}

/// What a kind of owner is found as.
type Found = Vec<Box<dyn SettingOwner>>;

/// Somebody who sets things.
trait SettingOwner: fmt::Debug {
    /// What it does to this setting.
    fn claims(&self, wanted: &WantedKnob<'_>) -> Vec<SettingClaim>;

    /// The change that has it leave what the plan sets; none where the plan needs none of it.
    fn agreement(&self, _plan: &TunePlan, _host: &Host) -> Option<OwnerTerms> {
        None
    }
}

/// How an owner can be agreed with as a whole.
enum OwnerTerms {
    /// By a change that is made before those of the plan.
    Change(Box<PlannedChange>),
    /// By a person only.
    ByHand {
        /// Whose claims this is about.
        owner: &'static str,
        /// Why there is no such change.
        why: String,
        commands: Vec<String>,
    },
}

impl SettingOwners {
    /// Looks for all of them.
    #[must_use]
    pub fn observe(host: &Host) -> Self {
        const ALL: [fn(&ArbiterHost<'_>) -> Found; 10] = [
            irqbalance::observe,
            tuned::observe,
            google::observe,
            governor::observe,
            link_file::observe,
            network_manager::observe,
            sysctl_file::observe,
            script::observe,
            filter::observe,
            audit::observe,
        ];
        let scene = ArbiterHost::of(host);
        let owners = ALL.iter().flat_map(|observe| observe(&scene)).collect();
        Self { owners, unknown: scene.unknown() }
    }

    /// Those who set this setting too, to something else than this.
    #[must_use]
    pub fn claims(&self, setting: &Setting, to: &SettingValue) -> Vec<SettingClaim> {
        let wanted = WantedKnob::new(setting, to);
        self.owners.iter().flat_map(|owner| owner.claims(&wanted)).collect()
    }

    /// What could not be read, so that there may be owners beside those that are told: a line each.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }
}

/// Fills in who else sets what the plan sets, adds what has them leave it alone, and leaves out what would be taken back
/// by itself until a person has agreed with its owner.
pub fn settle(plan: &mut TunePlan, owners: &SettingOwners, host: &Host) {
    for change in &mut plan.changes {
        change.claims = owners.claims(&change.setting, &change.to);
    }
    for owner in &owners.owners {
        match owner.agreement(plan, host) {
            None => {}
            Some(OwnerTerms::Change(change)) => {
                plan.agreements.retain(|agreed| agreed.setting != change.setting);
                plan.agreements.push(*change);
            }
            Some(OwnerTerms::ByHand { owner, why, commands }) => refuse(plan, owner, &why, &commands),
        }
    }
    let (kept, lost) =
        std::mem::take(&mut plan.changes).into_iter().partition(|change| fight(change).is_none());
    plan.changes = kept;
    leave(plan, lost);
}

/// Gives a text to the parsers of all owners' files.
pub(crate) fn any_text(text: &str) {
    const PATH: &str = "/x";
    drop(tuned::lines(&tuned::profile(text, PATH).1));
    drop(link_file::lines(text, PATH));
    drop((network_manager::profile(text, PATH), network_manager::active(text)));
    drop(sysctl_file::assignments(text, PATH));
    drop((script::script(text, PATH), script::interfaces(text, PATH)));
    let _ = (governor::chosen(text, "GOVERNOR"), google::told(text), scene::property(text, "ID_PATH"));
    let _ = (filter::flushes(text), filter::backend(text), audit::enabled(text), audit::journal_audits(text));
}

/// The claim that would take a change back.
fn fight(change: &PlannedChange) -> Option<&SettingClaim> {
    let fights = |claim: &&SettingClaim| {
        claim.acts == EnforcementMode::Always && matches!(claim.agreement, ClaimAgreement::ByHand { .. })
    };
    change.claims.iter().find(fights)
}

/// An owner that cannot be agreed with in the plan.
fn refuse(plan: &mut TunePlan, owner: &str, why: &str, commands: &[String]) {
    let claims = plan.changes.iter_mut().flat_map(|change| &mut change.claims);
    for claim in claims.filter(|claim| claim.owner == owner) {
        if claim.agreement == ClaimAgreement::InPlan {
            claim.what.push_str("; ");
            claim.what.push_str(why);
        }
        // One command for all of them, where there was one for each.
        claim.agreement = ClaimAgreement::ByHand { commands: commands.to_vec() };
    }
}

/// Tells of changes that are left out, once for a finding and an owner.
fn leave(plan: &mut TunePlan, changes: Vec<PlannedChange>) {
    for change in changes {
        let Some(claim) = fight(&change) else { continue };
        let ClaimAgreement::ByHand { commands } = &claim.agreement else { continue };
        let why = format!("{} would take it back: it {}", claim.owner, claim.what);
        let mut findings = change.findings.clone();
        if findings.is_empty() {
            findings.push(String::new());
        }
        for finding in findings {
            let known = |left: &SkippedFinding| left.finding == finding && left.commands == *commands;
            if plan.left.iter().any(known) {
                continue;
            }
            let title = diagnosis::rule(&finding).map_or_else(
                || format!("{} is not set to {}", change.setting, change.to),
                |rule| rule.title.to_owned(),
            );
            plan.left.push(SkippedFinding {
                finding,
                // How much it matters here is doctor's to say.
                severity: "unknown".to_owned(),
                title,
                why: why.clone(),
                commands: commands.clone(),
            });
        }
    }
}
