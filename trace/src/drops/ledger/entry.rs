//! A line of the ledger.

use linerate_host::{Known, StageName};
use serde::{Deserialize, Serialize};

/// A place on a packet's path with a line in the ledger. Both directions use the same names.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PathStep {
    /// Sends requests and receives replies.
    Generator,
    /// Between the generator and this host's device, in either direction.
    Wire,
    /// The device, its rings and its driver.
    Link,
    /// XDP programs in the driver.
    Xdp,
    /// The backlog of a CPU.
    Softirq,
    /// Generic XDP, tc ingress and netfilter's ingress hook; tc egress on transmit.
    Ingress,
    /// Netfilter and connection tracking.
    Filter,
    /// Header validation, and the route.
    Route,
    /// Socket lookup and receive buffer.
    Socket,
    /// The program that reads and sends.
    Application,
    Transmit,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageEntry {
    pub stage: PathStep,
    pub packets_in: Known<u64>,
    /// To the next stage.
    pub packets_out: Known<u64>,
    pub losses: Vec<StageLoss>,
    /// Packets that left this host by another device.
    #[serde(default)]
    pub forwarded: u64,
    /// Packets that were still here at the end. Negative if earlier ones have left.
    pub waiting: i64,
    /// Packets in that neither left, nor were lost by name, nor wait; negative if more left than
    /// came in. Unknown if one side is.
    pub unaccounted: Known<i64>,
    /// Possible explanations, one line each, the most likely first. Empty if nothing is unaccounted
    /// for.
    pub likely: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLoss {
    /// A stable id such as `netfilter-rule`, `conntrack-full` or `receive-buffer`.
    pub name: String,
    /// One line for people.
    pub what: String,
    pub packets: u64,
    pub exactness: LossExactness,
    /// The device, queue, socket or rule; `None` if only the host is known.
    pub place: Option<String>,
    /// The kernel function that dropped it; `None` without a tracepoint.
    pub symbol: Option<String>,
    /// `kfree_skb reason NETFILTER_DROP`, `/proc/net/snmp Udp.RcvbufErrors`.
    pub source: String,
    /// Empty if nothing need be done.
    pub remedy: String,
    /// The doctor rule about its cause, such as `socket.receive-drops`.
    pub finding: Option<String>,
}

/// The quality of a number of lost packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossExactness {
    /// Exactly the packets of the subject.
    Exact,
    /// A counter of a device or the host, not only of the subject's packets.
    OfDevice,
    /// Not every packet was seen.
    Sampled,
}

impl PathStep {
    /// `None` without a corresponding [`linerate_host::stage`].
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

    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl StageEntry {
    /// Packets of the subject lost here. Device counters of all packets are included if the number
    /// of missing packets is known, because they are then divided already.
    pub fn lost(&self) -> u64 {
        let is_divided = self.packets_in.value().is_some();
        let own_losses =
            self.losses.iter().filter(|loss| is_divided || loss.exactness != LossExactness::OfDevice);
        own_losses.map(|loss| loss.packets).fold(0, u64::saturating_add)
    }

    // Lost or forwarded.
    pub(super) fn lost_or_forwarded(&self) -> u64 {
        self.lost().saturating_add(self.forwarded)
    }
}
