//! The goal of a tune: findings to fix, findings to leave and why, CPUs that receive packets, and
//! values that no finding requires. A profile is a TOML file that a person can read, copy and
//! change.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use linerate_host::Severity;
use linerate_host::stage::spread::SpreadPolicy;

/// The goal of a tune.
#[derive(Debug, Clone, PartialEq)]
pub struct TuneProfile {
    pub name: String,
    /// A description in a line.
    pub title: String,
    pub purpose: String,
    /// When not to use it.
    pub not_for: String,
    /// Whether findings that are only notes are left where no UDP service is busy, and none was
    /// named.
    pub needs_udp_service: bool,
    /// The CPUs that receive packets, and the mechanism that selects them.
    pub cpus: CpuPolicy,
    /// What is done about findings, by id or as `stage.*`.
    pub findings: BTreeMap<String, FindingPolicy>,
    /// Values that no finding requires.
    pub values: Vec<ProfileValue>,
    /// The text of its file, so that a user can copy it.
    pub text: String,
    /// Whether to plan changes although earlier steps are missing (`--anyway`).
    pub anyway: bool,
}

/// The CPUs that receive packets, and the mechanism that selects them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuPolicy {
    /// The CPUs, and whether interrupts and RPS are set for them.
    pub policy: SpreadPolicy,
    /// Whether CPUs are given transmit queues.
    pub xps: bool,
}

/// A value that no finding requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileValue {
    pub knob: ProfileKnob,
    /// The value, or its lower or upper bound.
    pub to: ValueBound,
    pub why: String,
    /// The source of the reason.
    pub source: Option<String>,
    pub risk: Option<String>,
    /// The finding that the value fixes, too.
    pub finding: Option<String>,
    /// Conditions under which the setting stays unchanged.
    pub unless: Vec<SkipCondition>,
}

/// The setting that a value is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileKnob {
    /// A sysctl by its dotted name.
    Sysctl(String),
    Interface(InterfaceKnob),
    Governor,
}

/// A knob that each interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceKnob {
    /// Generic receive offload: `on` or `off`.
    GenericReceiveOffload,
    /// Interrupt moderation in the syntax of `ethtool -C`, without the parameters that a driver
    /// does not support: `adaptive-rx off rx-usecs 0`.
    InterruptModeration,
    /// Nanoseconds that packets are held back to be merged (`gro_flush_timeout`).
    GroFlushTimeout,
    /// Number of polls in a row without packets before interrupts are on again
    /// (`napi_defer_hard_irqs`).
    NapiDeferHardIrqs,
    /// Whether kernel threads poll: 0 or 1 (`threaded`).
    ThreadedNapi,
    /// Merging of datagrams that are forwarded: `on` or `off` (Linux 5.12).
    RxUdpGroForwarding,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueBound {
    Exactly(String),
    /// This number or more.
    AtLeast(u64),
    /// This number or less.
    AtMost(u64),
}

/// A condition under which a setting stays unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipCondition {
    /// A UDP socket accepts merged datagrams (UDP_GRO).
    MergedDatagrams,
    /// The host forwards packets, or the interface is a port of a bridge.
    Forwards,
    /// A hypervisor runs this host.
    Guest,
    /// No UDP service is busy, and none was named.
    NoUdpService,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingPolicy {
    /// It is fixed from this severity on.
    Fix(Severity),
    /// It is left for a person to decide, for this reason, with the commands that fix it.
    Ask(String),
    /// It is left, for this reason.
    Leave(String),
    /// It is not named.
    Unnamed,
}

/// Why a profile cannot be read, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(String);

const BUILTIN: [(&str, &str); 4] = [
    ("udp-server", include_str!("../profiles/udp-server.toml")),
    ("udp-server-with-tcp", include_str!("../profiles/udp-server-with-tcp.toml")),
    ("hypervisor", include_str!("../profiles/hypervisor.toml")),
    ("low-latency", include_str!("../profiles/low-latency.toml")),
];

impl TuneProfile {
    /// Names and texts of the built-in profiles.
    pub fn builtin() -> impl Iterator<Item = (&'static str, &'static str)> {
        BUILTIN.into_iter()
    }

    /// The built-in profile with this name. The error has the existing names.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = BUILTIN.iter().map(|(known, _)| *known).collect();
            return Err(ProfileError(format!(
                "no profile '{name}': there are {}; a file of your own is named with a slash, as in ./{name}.toml",
                known.join(", ")
            )));
        };
        Self::parse(text, &format!("{name}.toml"))
    }

    /// Reads a profile; `origin` names it in errors, with the line and the expected form.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        read::profile(text, origin)
    }

    pub fn verdict(&self, id: &str) -> &FindingPolicy {
        let of_stage = || self.findings.get(&format!("{}.*", id.split_once('.')?.0));
        self.findings.get(id).or_else(of_stage).unwrap_or(&FindingPolicy::Unnamed)
    }
}
