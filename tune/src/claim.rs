//! Others who set what a plan would set.

use serde::{Deserialize, Serialize};

use crate::plan::PlannedChange;

/// Somebody who sets a setting of a plan too, now or later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingClaim {
    /// Who: `irqbalance`, `tuned`, `systemd .link`, `NetworkManager`, `google-guest-agent`, `sysctl.d`, ...
    pub owner: String,
    /// What it does to the setting: a sentence with the facts in it.
    pub what: String,
    /// Where that was read.
    pub read_from: String,
    /// When it would act.
    pub acts: EnforcementMode,
    /// How to agree with it.
    pub agreement: ClaimAgreement,
}

/// When an owner sets what it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnforcementMode {
    /// Again and again, by itself: a change would not last.
    Always,
    /// When it is started or reloaded: a change lasts until then.
    OnRestart,
    /// When the interface appears, or is taken up: a change lasts until then.
    OnLink,
    /// At boot only, as every change that is not made to persist.
    AtBoot,
}

/// How to agree with an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimAgreement {
    /// A change of the plan itself tells it: named in `agreements` of the plan, journalled and undone as all others.
    InPlan,
    /// Commands that a person has to give. Until then the change is left out if the owner acts always.
    ByHand {
        /// The commands, or lines of its configuration, and what they do.
        commands: Vec<String>,
    },
    /// None is needed: it does not act while the host runs.
    NotNeeded,
}

impl PlannedChange {
    /// Whether somebody changes the setting again and again until the plan's agreements are made, as irqbalance does: it may
    /// be something else by now than when the plan was made, and that is no reason to make another plan.
    #[must_use]
    pub fn is_moved_by_others(&self) -> bool {
        self.claims
            .iter()
            .any(|claim| claim.acts == EnforcementMode::Always && claim.agreement == ClaimAgreement::InPlan)
    }
}
