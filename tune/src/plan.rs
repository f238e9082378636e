//! Plans: the changes of a host, their reasons, and the interruptions that they cause.

mod benefit;
mod check;
mod draft;
mod make;
mod precondition;
mod predict;
#[cfg(test)]
mod random_tests;
mod rehearse;
#[cfg(test)]
pub(crate) mod tests;
mod text;
#[cfg(test)]
mod text_tests;
mod threads;
mod values;

use linerate_host::setting::SocketKnob;
use linerate_host::{Setting, SettingValue, Severity};
use serde::{Deserialize, Serialize};

use crate::NamedDevice;
use crate::claim::{ClaimExclusion, EnforcementMode, SettingClaim};

pub use benefit::ChangeBenefit;
pub use check::PlanError;
pub use make::make;
pub use rehearse::{PlanRehearsal, rehearse};

/// The schema of a plan's document.
pub const SCHEMA: &str = "linerate.plan/2";

/// The schema of plans of version 0.1, whose keys have other names.
const SCHEMA_OF_0_1: &str = "linerate.plan/1";

/// A plan that is shown, saved, edited and applied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunePlan {
    /// [`SCHEMA`].
    pub schema: String,
    pub version: String,
    /// When the host was read, in seconds since 1970.
    #[serde(default)]
    pub read_unix_seconds: Option<u64>,
    /// Name of the profile.
    pub goal: String,
    /// The devices of all interfaces in the plan.
    pub devices: Vec<NamedDevice>,
    /// The CPUs that packets are spread over, in order of use.
    pub cpus: Vec<u32>,
    /// The CPUs of each queue, one item per interface.
    pub layouts: Vec<InterfaceLayout>,
    /// Changes, made first, that make other programs leave the settings below alone.
    #[serde(alias = "agreements")]
    pub exclusions: Vec<PlannedChange>,
    /// In the order in which they are made.
    pub changes: Vec<PlannedChange>,
    /// Settings that have the wanted value already. With the changes they are the whole target.
    #[serde(default)]
    pub target: Vec<TargetSetting>,
    /// Changes that wait until a finding is fixed; `--anyway` plans them nevertheless.
    #[serde(default)]
    pub held_back: Vec<HeldBackChanges>,
    /// Findings that the plan does not fix, with reasons.
    #[serde(alias = "left")]
    pub skipped: Vec<SkippedFinding>,
}

/// A setting that has the wanted value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSetting {
    pub setting: Setting,
    pub value: SettingValue,
}

/// Changes that would make things worse as long as a finding is not fixed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldBackChanges {
    /// Id of the finding to fix first.
    pub until_fixed: String,
    pub why: String,
    /// What to do first.
    pub fix_first: String,
    /// The measured effect of making the changes nevertheless.
    pub effect: String,
    pub source: String,
    pub changes: Vec<PlannedChange>,
}

/// The CPUs of an interface's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceLayout {
    pub interface: String,
    pub queues: Vec<QueueLayout>,
}

/// The CPUs of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLayout {
    pub queue: u32,
    /// The CPU of its interrupt, if there is one and it is known.
    pub interrupt: Option<u32>,
    /// The CPUs of RPS as a list such as `0,4-5`; empty without RPS.
    pub receive: String,
    /// The CPUs of XPS of the transmit queue with this number, as a list; empty without XPS.
    pub transmit: String,
}

/// One setting to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedChange {
    pub setting: Setting,
    /// The value when the plan was made.
    pub from: SettingValue,
    /// The wanted value.
    pub to: SettingValue,
    pub why: String,
    /// Ids of the findings that it fixes.
    pub findings: Vec<String>,
    /// The expected effect, if one was published.
    pub effect: Option<String>,
    /// Source of effect and mechanism.
    pub source: Option<String>,
    /// What may go wrong, or when not to.
    pub risk: Option<String>,
    pub interrupts: ChangeImpact,
    /// Other owners of the setting.
    pub claims: Vec<SettingClaim>,
    #[serde(default)]
    pub benefit: ChangeBenefit,
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
    /// The interface is reset: its link goes down for up to seconds. Planning is repeated after the reset,
    /// because queues and vectors may have changed.
    Link,
}

/// A finding that is not fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedFinding {
    pub finding: String,
    /// Its severity in doctor.
    pub severity: String,
    pub title: String,
    pub why: String,
    /// Commands for a person; empty if none helps.
    pub commands: Vec<String>,
}

impl ChangeImpact {
    /// Drivers reset the interface for new numbers of channels or virtual functions and for new ring
    /// sizes (`ethtool -L`, `-G`). A flow that moves to another queue or is sent in another way may
    /// have its packets reordered, or lost, for a moment.
    pub(crate) fn of(setting: &Setting) -> Self {
        match setting {
            Setting::Channels { .. } | Setting::Rings { .. } | Setting::VirtualFunctions { .. } => Self::Link,
            Setting::RssTable { .. }
            | Setting::FlowHash { .. }
            | Setting::Offload { .. }
            | Setting::Coalesce { .. }
            | Setting::Napi { .. }
            | Setting::QueueCpus { .. } => Self::Moment,
            // Packets of a flow may wait in one queue or socket while its later packets go to another.
            Setting::NtupleRule { .. }
            | Setting::Steering { .. }
            | Setting::Socket { knob: SocketKnob::IncomingCpu, .. } => Self::Order,
            _ => Self::Nothing,
        }
    }
}

impl TunePlan {
    /// An empty plan.
    pub fn new(goal: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            goal: goal.into(),
            ..Self::default()
        }
    }

    /// The changes up to the last link reset; `None` without a reset. After them, observe the host and plan
    /// again, because queues, vectors and tables have changed.
    pub fn until_link_reset(&self) -> Option<Self> {
        let is_link_reset = |change: &PlannedChange| change.interrupts == ChangeImpact::Link;
        let last = self.changes.iter().rposition(is_link_reset)?;
        let mut plan = self.clone();
        plan.changes.truncate(last + 1);
        Some(plan)
    }
}

impl PlannedChange {
    /// A change that fixes no finding and that no other owner claims.
    pub fn new(setting: Setting, from: SettingValue, to: SettingValue, reason: impl Into<String>) -> Self {
        Self {
            interrupts: ChangeImpact::of(&setting),
            setting,
            from,
            to,
            why: reason.into(),
            findings: Vec::new(),
            effect: None,
            source: None,
            risk: None,
            claims: Vec::new(),
            benefit: ChangeBenefit::default(),
        }
    }

    /// Whether an owner such as irqbalance changes the setting again and again until the plan's
    /// exclusions are made. Then the plan stays valid although the setting has another value now.
    pub fn is_moved_by_others(&self) -> bool {
        self.claims.iter().any(|claim| {
            claim.enforcement == EnforcementMode::Always && claim.exclusion == ClaimExclusion::InPlan
        })
    }
}

impl SkippedFinding {
    /// A change of this `kind` that is not made, and that no finding of doctor requires.
    pub(crate) fn note(kind: &str, title: String, reason: impl Into<String>) -> Self {
        let severity = Severity::Note.name().to_owned();
        Self { finding: kind.to_owned(), severity, title, why: reason.into(), commands: Vec::new() }
    }
}

impl HeldBackChanges {
    /// Whether one of its changes fixes the finding of this id.
    pub fn fixes(&self, finding: &str) -> bool {
        self.changes.iter().any(|change| change.findings.iter().any(|id| id == finding))
    }
}
