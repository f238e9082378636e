//! What is to be set on a host, why, and what it will interrupt.

mod check;
mod draft;
mod make;
mod precondition;
mod predict;
#[cfg(test)]
mod random_tests;
mod rehearse;
#[cfg(test)]
mod tests;
mod text;
#[cfg(test)]
mod text_tests;
mod threads;
mod values;

use linerate_host::{Setting, SettingValue};
use serde::{Deserialize, Serialize};

use crate::NamedDevice;
use crate::claim::{ClaimAgreement, EnforcementMode, SettingClaim};

pub use check::PlanError;
pub(crate) use draft::interrupts;
pub use make::make;
pub use rehearse::{PlanRehearsal, rehearse};

/// The schema of a plan's document.
pub const SCHEMA: &str = "linerate.plan/1";

/// A plan, as it is shown, saved, edited and carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunePlan {
    /// [`SCHEMA`].
    pub schema: String,
    pub version: String,
    /// When the host was read that it was made for, seconds since 1970; none where nobody says.
    #[serde(default)]
    pub read_unix_seconds: Option<u64>,
    /// Name of the profile that was planned for.
    pub goal: String,
    /// The devices of the interfaces that are named in it.
    pub devices: Vec<NamedDevice>,
    /// The CPUs that packets are spread over, the one to be used first first.
    pub cpus: Vec<u32>,
    /// Which CPUs each queue goes to, an item an interface.
    pub layouts: Vec<InterfaceLayout>,
    /// Changes that have other programs leave what is set below; made first.
    pub agreements: Vec<PlannedChange>,
    /// The changes, in the order in which they are made.
    pub changes: Vec<PlannedChange>,
    /// Settings that are as the plan wants them already: with the changes they are the whole of
    /// what is to last.
    #[serde(default)]
    pub target: Vec<TargetSetting>,
    /// Changes that have to wait until something else is fixed; `--anyway` plans them all the same.
    #[serde(default)]
    pub held_back: Vec<HeldBack>,
    /// What doctor found that this plan does not fix, and why.
    pub left: Vec<SkippedFinding>,
}

/// A setting that is as it is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSetting {
    pub setting: Setting,
    pub value: SettingValue,
}

/// Changes that would make things worse as long as a finding is not fixed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldBack {
    /// Id of the finding to fix first.
    pub until_fixed: String,
    pub why: String,
    /// What to do first.
    pub first: String,
    /// What was measured where the changes were made all the same.
    pub effect: String,
    pub source: String,
    pub changes: Vec<PlannedChange>,
}

/// Where the packets of an interface's queues go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceLayout {
    pub interface: String,
    /// Its queues, by number.
    pub queues: Vec<QueueLayout>,
}

/// The CPUs of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLayout {
    pub queue: u32,
    /// The CPU of its interrupt; none where it has none, or where it cannot be told.
    pub interrupt: Option<u32>,
    /// The CPUs that RPS hands its packets to, as a list such as `0,4-5`; empty where they stay.
    pub receive: String,
    /// The CPUs that send by the transmit queue of this number, as a list; empty where none is told to.
    pub transmit: String,
}

/// One setting to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedChange {
    pub setting: Setting,
    /// What it was when the plan was made.
    pub from: SettingValue,
    /// What it is to be.
    pub to: SettingValue,
    pub why: String,
    /// Ids of the findings that it fixes.
    pub findings: Vec<String>,
    /// The effect to expect; none where nobody published one.
    pub effect: Option<String>,
    /// Where effect and mechanism are from.
    pub source: Option<String>,
    /// What may go wrong, or when not to.
    pub risk: Option<String>,
    pub interrupts: ChangeImpact,
    /// Others who set it too.
    pub claims: Vec<SettingClaim>,
}

/// What a change interrupts while it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeImpact {
    Nothing,
    /// Packets of a flow may be reordered for a moment; none is lost.
    Order,
    /// Packets may be reordered, or be lost, for a moment.
    Moment,
    /// The interface is reset: its link goes down for up to seconds. What follows is planned anew after it, since queues
    /// and vectors may be others then.
    Link,
}

/// A finding that is not fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedFinding {
    pub finding: String,
    /// Its severity, as doctor has it.
    pub severity: String,
    pub title: String,
    /// Why it is left.
    pub why: String,
    /// What a person could type; empty where nothing helps.
    pub commands: Vec<String>,
}

impl TunePlan {
    /// An empty plan.
    #[must_use]
    pub fn new(goal: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            read_unix_seconds: None,
            goal: goal.into(),
            devices: Vec::new(),
            cpus: Vec::new(),
            layouts: Vec::new(),
            agreements: Vec::new(),
            changes: Vec::new(),
            target: Vec::new(),
            held_back: Vec::new(),
            left: Vec::new(),
        }
    }

    /// The first part of it, up to the last change that resets an interface; none where none does. Once that is made the
    /// host is to be observed, and planned for, anew: queues, vectors and tables are others then.
    #[must_use]
    pub fn until_link_reset(&self) -> Option<Self> {
        let resets = |change: &PlannedChange| change.interrupts == ChangeImpact::Link;
        let last = self.changes.iter().rposition(resets)?;
        let mut first = self.clone();
        first.changes.truncate(last + 1);
        Some(first)
    }

    /// Takes changes out and leaves what they would have fixed, for the reason that is given for each.
    pub fn leave_out(&mut self, why: impl Fn(&PlannedChange) -> Option<String>) {
        let changes = std::mem::take(&mut self.changes);
        for change in changes {
            match why(&change) {
                Some(why) => self.left.push(SkippedFinding::of(&change, why)),
                None => self.changes.push(change),
            }
        }
    }
}

impl PlannedChange {
    /// A change that interrupts nothing, fixes no finding and that no other owner claims.
    #[must_use]
    pub fn new(setting: Setting, from: SettingValue, to: SettingValue, why: impl Into<String>) -> Self {
        Self {
            setting,
            from,
            to,
            why: why.into(),
            findings: Vec::new(),
            effect: None,
            source: None,
            risk: None,
            interrupts: ChangeImpact::Nothing,
            claims: Vec::new(),
        }
    }

    /// Whether an owner such as irqbalance changes the setting again and again until the plan's agreements are made. Then the
    /// plan stays valid although the setting has another value now.
    #[must_use]
    pub fn is_moved_by_others(&self) -> bool {
        self.claims
            .iter()
            .any(|claim| claim.acts == EnforcementMode::Always && claim.agreement == ClaimAgreement::InPlan)
    }
}

impl HeldBack {
    /// Whether one of its changes fixes the finding of this id.
    #[must_use]
    pub fn fixes(&self, finding: &str) -> bool {
        self.changes.iter().any(|change| change.findings.iter().any(|id| id == finding))
    }
}

impl SkippedFinding {
    /// What a change that is not made leaves, and what a person would type to make it.
    #[must_use]
    pub fn of(change: &PlannedChange, why: String) -> Self {
        Self {
            finding: change.findings.first().cloned().unwrap_or_else(|| "profile".to_owned()),
            severity: "note".to_owned(),
            title: format!("{} stays '{}' instead of '{}'", change.setting, change.from, change.to),
            why,
            commands: change.setting.command(&change.to).into_iter().collect(),
        }
    }
}
