//! A line of the ledger.

use std::fmt;

use linerate_host::{Known, StageName};
use serde::{Deserialize, Serialize};

/// A place on a packet's way that has a line in the ledger. Both ways use the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathStep {
    /// What sends requests and gets replies.
    Generator,
    /// Between the generator and this host's device, either way.
    Wire,
    /// The device, its rings and its driver.
    Link,
    /// XDP programs in the driver.
    Xdp,
    /// The backlog of a CPU.
    Softirq,
    /// Generic XDP, tc ingress and netfilter's ingress hook; on the way out tc egress.
    Ingress,
    /// Netfilter and connection tracking.
    Filter,
    /// Validation of headers, and where the packet is for or how it gets there.
    Route,
    /// The socket's lookup and its receive buffer.
    Socket,
    /// The program that reads and sends.
    Application,
    Transmit,
}

/// What passed a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageEntry {
    pub stage: PathStep,
    /// Packets that came in.
    pub packets_in: Known<u64>,
    /// Packets that left it for the next.
    pub packets_out: Known<u64>,
    /// What was lost here.
    pub losses: Vec<StageLoss>,
    /// Packets that left this host by another device instead of going to the next stage.
    #[serde(default)]
    pub forwarded: u64,
    /// Packets that came in and were still here at the end: neither lost nor passed on. Negative where what had waited before
    /// has left.
    pub waiting: i64,
    /// Packets in that neither left, nor were lost by name, nor wait; negative where more left than came in. Unknown where
    /// one side is.
    pub unaccounted: Known<i64>,
    /// Where those may have gone: a line each, the likeliest first. Empty where nothing is unaccounted for.
    pub likely: Vec<String>,
}

/// Packets that were lost in one way at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLoss {
    /// What happened, as a stable id such as `netfilter-rule`, `conntrack-full` or `receive-buffer`.
    pub name: String,
    /// The same in words, one line.
    pub what: String,
    pub packets: u64,
    /// What the number is worth.
    pub exactness: LossExactness,
    /// The device, queue, socket or rule; none where only the host is known.
    pub place: Option<String>,
    /// The kernel function where it fell; none where no tracepoint saw it.
    pub symbol: Option<String>,
    /// What counted it: `kfree_skb reason NETFILTER_DROP`, `/proc/net/snmp Udp.RcvbufErrors`.
    pub source: String,
    /// What to do about it; empty where nothing need be.
    pub remedy: String,
    /// The rule of doctor that looks for its cause, such as `socket.receive-drops`.
    pub finding: Option<String>,
}

/// What a number of lost packets is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossExactness {
    /// Each packet of the subject was counted, and no other.
    Exact,
    /// A device or the whole host counts it, of all packets and not only the subject's.
    OfDevice,
    /// Not every packet was seen.
    Sampled,
}

impl PathStep {
    /// The stage of [`linerate_host::stage`] that it belongs to; none where the host has none.
    #[must_use]
    pub fn stage(self) -> Option<StageName> {
        match self {
            PathStep::Generator | PathStep::Wire => None,
            PathStep::Link => Some(StageName::Link),
            PathStep::Xdp | PathStep::Ingress | PathStep::Filter => Some(StageName::Filter),
            PathStep::Softirq => Some(StageName::Softirq),
            PathStep::Route => Some(StageName::Route),
            PathStep::Socket => Some(StageName::Socket),
            PathStep::Application => Some(StageName::Thread),
            PathStep::Transmit => Some(StageName::Transmit),
        }
    }

    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PathStep::Generator => "generator",
            PathStep::Wire => "wire",
            PathStep::Link => "link",
            PathStep::Xdp => "xdp",
            PathStep::Softirq => "softirq",
            PathStep::Ingress => "ingress",
            PathStep::Filter => "filter",
            PathStep::Route => "route",
            PathStep::Socket => "socket",
            PathStep::Application => "application",
            PathStep::Transmit => "transmit",
        }
    }
}

impl fmt::Display for PathStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl StageEntry {
    /// Packets of the subject lost here. What a device counts of all packets is in it where it is known how many of them came
    /// in, and so how many are missing: then that is divided already.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let divided = self.packets_in.value().is_some();
        let own = self.losses.iter().filter(|loss| divided || loss.exactness != LossExactness::OfDevice);
        own.map(|loss| loss.packets).fold(0, u64::saturating_add)
    }

    /// Packets that neither go on nor wait: lost or forwarded.
    pub(super) fn gone(&self) -> u64 {
        self.lost().saturating_add(self.forwarded)
    }
}
