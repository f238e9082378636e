//! Losses with one kernel reason that counters can divide.

use super::evidence::PacketEvidence;
use super::{PathStep, StageLoss};
use crate::drops::causes;
use crate::drops::packet_counts::{PacketDirection, PacketOrigin};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedLoss {
    pub(super) direction: PacketDirection,
    pub(super) origin: PacketOrigin,
    pub(super) step: PathStep,
    /// The port of the subject; 0 for none.
    pub(super) port: u16,
    pub(super) has_reason: bool,
    pub(super) loss: StageLoss,
}

/// A part of a loss with counters of its own.
struct LossPart {
    /// The loss by reason or function.
    whole: &'static str,
    part: &'static str,
    counters: &'static [&'static str],
    // Whether only losses without a kernel reason are divided.
    without_reason: bool,
}

const fn part(whole: &'static str, part: &'static str, counters: &'static [&'static str]) -> LossPart {
    LossPart { whole, part, counters, without_reason: false }
}

impl LossPart {
    const fn without_reason(self) -> Self {
        Self { without_reason: true, ..self }
    }
}

const PARTS: &[LossPart] = &[
    // A packet without a conntrack entry is NF_DROP like one dropped by a rule. `drop` counts it
    // (nf_conntrack_in, net/netfilter/nf_conntrack_core.c, Linux 6.18).
    part(RULE, "conntrack-full", &["conntrack drop"]),
    // Included in `dropped` (enqueue_to_backlog, net/core/dev.c, Linux 6.18).
    part("backlog-full", "flow-limit", &["flow_limit"]),
    // ip_rcv_finish_core (net/ipv4/ip_input.c) drops packets without a valid source in one place;
    // before Linux 5.17 without reason.
    part("martian", "rp-filter", &["TcpExt.IPReversePathFilter"]).without_reason(),
    // At one place, __udp4_lib_rcv and __udp6_lib_rcv drop these and packets without a socket.
    part("no-socket", "bad-checksum", &["Udp.InCsumErrors", "Udp6InCsumErrors"]).without_reason(),
    part("receive-buffer", "udp-memory", &["Udp.MemErrors", "Udp6MemErrors"]).without_reason(),
];

const RULE: &str = "netfilter-rule";

/// All packets of these losses.
pub(super) fn packets<'l>(losses: impl IntoIterator<Item = &'l PlacedLoss>) -> u64 {
    losses.into_iter().map(|placed| placed.loss.packets).fold(0, u64::saturating_add)
}

// Divides losses by counters. Counters are of the whole network namespace or host, so a part is
// never larger than its loss, and the rest keeps its name.
pub(super) fn divide_losses(
    evidence: &PacketEvidence,
    mut placed_losses: Vec<PlacedLoss>,
) -> Vec<PlacedLoss> {
    for part in PARTS {
        let Some(cause) = causes::find_cause(part.part) else { continue };
        let mut available = evidence.growth_of(part.counters);
        let mut parts = Vec::new();
        for whole in placed_losses.iter_mut().filter(|whole| is_divided(part, whole)) {
            let packets = available.min(whole.loss.packets);
            if packets == 0 {
                continue;
            }
            available -= packets;
            whole.loss.packets -= packets;
            let source =
                format!("{}, of which {} counts these", whole.loss.source, part.counters.join(" and "));
            let mut loss = StageLoss::new(cause, packets, whole.loss.exactness, source);
            loss.symbol.clone_from(&whole.loss.symbol);
            loss.place.clone_from(&whole.loss.place);
            if whole.step == PathStep::Filter {
                loss.place = Some("conntrack".to_owned());
            }
            parts.push(PlacedLoss { loss, ..whole.clone() });
        }
        placed_losses.extend(parts);
    }
    placed_losses
}

fn is_divided(part: &LossPart, whole: &PlacedLoss) -> bool {
    // Replies are tracked by the entry of their request. A rule of nftables drops in nft_do_chain
    // (since Linux 6.7).
    let may_be_tracking = || {
        whole.direction == PacketDirection::Request && whole.loss.symbol.as_deref() != Some("nft_do_chain")
    };
    whole.loss.name == part.whole
        && (!part.without_reason || !whole.has_reason)
        && (part.whole != RULE || may_be_tracking())
}
