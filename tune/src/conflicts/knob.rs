//! Knobs in the words that settings and their owners share.

use super::reader::matches;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnedKnob {
    /// A path below `/proc/sys`; in some files a pattern.
    Sysctl(String),
    /// An option of ethtool and its parameter: `rx` of rings, `gro` of features.
    Link(EthtoolKind, String),
    /// A file of an interface or queue, such as `threaded` or `queues/rx-0/rps_cpus`, or a pattern.
    File(String),
    Interrupt,
    /// The frequency governor of a CPU.
    Governor,
    /// The auditing of system calls.
    Audit,
    /// The rules of netfilter.
    Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EthtoolKind {
    Ring,
    Channel,
    Feature,
    Coalesce,
    /// The indirection table, hash fields and flow rules.
    Flow,
}

impl EthtoolKind {
    /// A parameter of this kind, under the name that ethtool accepts.
    pub(super) fn knob(self, name: &str) -> OwnedKnob {
        OwnedKnob::Link(self, if self == Self::Feature { feature(name) } else { name }.to_owned())
    }

    /// Whether a parameter is on or off, and not a number.
    pub(super) fn is_switch(self, name: &str) -> bool {
        self == Self::Feature || name.starts_with("adaptive")
    }
}

/// A knob and the value that an owner gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnedSetting {
    pub(super) knob: OwnedKnob,
    /// A pattern of interfaces. `None`: all interfaces, or a knob of the host.
    pub(super) interface: Option<String>,
    // `None` if the value is unknown, such as a shell variable.
    pub(super) to: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigurationLine {
    /// `path:line`.
    pub(super) at: String,
    pub(super) text: String,
    pub(super) set: OwnedSetting,
}

impl OwnedKnob {
    pub(super) fn of_queues(name: &str) -> Self {
        Self::File(format!("queues/*/{name}"))
    }

    /// The knob of all interfaces, or of the host, with this value.
    pub(super) fn set_to(self, to: Option<String>) -> OwnedSetting {
        OwnedSetting { knob: self, interface: None, to }
    }

    pub(super) fn is_mask(&self) -> bool {
        matches!(self, Self::File(path) if path.ends_with("ps_cpus"))
    }

    pub(super) fn is_covered_by(&self, other: &OwnedKnob) -> bool {
        match (self, other) {
            (OwnedKnob::Sysctl(path), OwnedKnob::Sysctl(pattern))
            | (OwnedKnob::File(path), OwnedKnob::File(pattern)) => matches(pattern, path),
            (OwnedKnob::Link(EthtoolKind::Flow, _), OwnedKnob::Link(EthtoolKind::Flow, _)) => true,
            _ => self == other,
        }
    }
}

// The name of a feature that `ethtool -K` accepts. The kernel and `ethtool -k` use other names.
pub(super) fn feature(name: &str) -> &str {
    match name {
        "rx-gro" | "generic-receive-offload" => "gro",
        "tx-generic-segmentation" | "generic-segmentation-offload" => "gso",
        "tx-tcp-segmentation" | "tcp-segmentation-offload" => "tso",
        "rx-lro" | "large-receive-offload" => "lro",
        "rx-ntuple-filter" | "ntuple-filters" => "ntuple",
        "rx-hashing" | "receive-hashing" => "rxhash",
        "rx-checksum" | "rx-checksumming" => "rx",
        "tx-checksumming" => "tx",
        "tx-scatter-gather" | "scatter-gather" => "sg",
        "rx-vlan-hw-parse" | "rx-vlan-offload" => "rxvlan",
        "tx-vlan-hw-insert" | "tx-vlan-offload" => "txvlan",
        other => other,
    }
}
