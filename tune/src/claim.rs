//! Claims of other owners on the settings of a plan.

use serde::{Deserialize, Serialize};

/// Another program or file that sets a setting of a plan, now or later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingClaim {
    /// `irqbalance`, `tuned`, `systemd .link`, `NetworkManager`, `google-guest-agent`, `sysctl.d`, ...
    pub owner: String,
    /// A clause about the owner's action, such as `sets 'ring-rx=1024' at boot`.
    pub what: String,
    /// File and line, or process.
    pub read_from: String,
    #[serde(alias = "acts")]
    pub enforcement: EnforcementMode,
    #[serde(alias = "agreement")]
    pub exclusion: ClaimExclusion,
}

/// When an owner sets its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnforcementMode {
    /// Again and again, by itself: a change would not last.
    Always,
    /// When the owner is started or reloaded: a change lasts until then.
    OnRestart,
    /// When the interface appears or comes up: a change lasts until then.
    OnLink,
    /// At boot only. Without `persist` a change ends then anyway.
    AtBoot,
}

/// How to make an owner leave a setting alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimExclusion {
    /// By a change among the plan's `exclusions`, which is journalled and undone like all others.
    InPlan,
    /// By commands that a person has to type. Until then the change is skipped if the owner acts always.
    ByHand {
        /// Commands, or configuration lines, with comments.
        commands: Vec<String>,
    },
    /// The owner does not act while the host runs.
    NotNeeded,
}
