//! Packets dropped at tracepoints, as losses of a stage.

use super::divide::{PlacedLoss, divided};
use super::evidence::PacketEvidence;
use super::{LossExactness, PathStep, StageLoss};
use crate::drops::causes::{self, LossCause, StagedCause};
use crate::drops::seen::{LostCount, PacketDirection, PacketOrigin};

impl StageLoss {
    pub(super) fn of(cause: &LossCause, packets: u64, exactness: LossExactness, source: String) -> Self {
        Self {
            name: cause.name.to_owned(),
            what: cause.what.to_owned(),
            packets,
            exactness,
            place: None,
            symbol: None,
            source,
            remedy: cause.remedy.to_owned(),
            finding: cause.finding.map(str::to_owned),
        }
    }
}

/// All drops, combined by cause, function and place, largest first.
pub(super) fn fallen(evidence: &PacketEvidence) -> Vec<PlacedLoss> {
    let mut found: Vec<PlacedLoss> = Vec::new();
    for lost in &evidence.seen.lost {
        let fallen = of_lost(evidence, lost);
        let same = found.iter_mut().find(|other| is_same(other, &fallen));
        match same {
            Some(other) => other.loss.packets = other.loss.packets.saturating_add(fallen.loss.packets),
            None => found.push(fallen),
        }
    }
    let mut found = divided(evidence, found);
    found.retain(|fallen| fallen.loss.packets > 0);
    found.sort_by_key(|fallen| std::cmp::Reverse(fallen.loss.packets));
    found
}

fn is_same(one: &PlacedLoss, other: &PlacedLoss) -> bool {
    (one.direction, one.origin, one.step, one.port) == (other.direction, other.origin, other.step, other.port)
        && one.loss.name == other.loss.name
        && one.loss.symbol == other.loss.symbol
        && one.loss.place == other.loss.place
        && one.loss.source == other.loss.source
}

fn of_lost(evidence: &PacketEvidence, lost: &LostCount) -> PlacedLoss {
    let reason = lost.reason.as_deref();
    let function = lost.function.as_deref();
    let source = match &lost.reason {
        Some(reason) => format!("kfree_skb reason {reason}"),
        None => "kfree_skb".to_owned(),
    };
    // An event that was not counted may have been one of these drops.
    let exactness = if evidence.seen.missed == 0 { LossExactness::Exact } else { LossExactness::Sampled };
    let (step, mut loss) = match causes::of_skb(reason, function, lost.route_error) {
        Some(StagedCause { step, cause }) => (step, StageLoss::of(cause, lost.packets, exactness, source)),
        None => unnamed(lost, reason, exactness, source),
    };
    let port = lost.device.and_then(|index| evidence.ports.get(evidence.seen.devices.get(&index)?));
    loss.symbol = function.map(str::to_owned);
    let sends = matches!(step, PathStep::Link | PathStep::Transmit) || loss.name == causes::TAP_FULL;
    loss.place = match port.filter(|_| sends) {
        Some(port) => Some(port.clone()),
        None => place(evidence, lost, step),
    };
    let has_reason = reason.is_some_and(|reason| reason != causes::NO_REASON);
    // A transmitting driver first detaches the packet from its socket (tun_net_xmit, Linux 6.18),
    // so that the packet seems to be arriving.
    let is_sent = lost.origin == PacketOrigin::Arriving
        && step == PathStep::Link
        && [causes::TRANSMIT_RING, causes::TAP_FULL].contains(&loss.name.as_str());
    let origin = if is_sent { PacketOrigin::Local } else { lost.origin };
    PlacedLoss { direction: lost.direction, origin, step, port: lost.port, has_reason, loss }
}

/// A loss with an unknown reason has that reason's name.
fn unnamed(
    lost: &LostCount,
    reason: Option<&str>,
    exactness: LossExactness,
    source: String,
) -> (PathStep, StageLoss) {
    let step = match lost.direction {
        PacketDirection::Request => PathStep::Route,
        PacketDirection::Reply => PathStep::Transmit,
    };
    let unknown = causes::unknown();
    let mut loss = StageLoss::of(unknown, lost.packets, exactness, source);
    if let Some(reason) = reason.filter(|reason| *reason != causes::NO_REASON) {
        loss.name = reason.to_lowercase().replace('_', "-");
        loss.what = format!("the kernel dropped it for the reason {reason}");
    }
    (step, loss)
}

fn place(evidence: &PacketEvidence, lost: &LostCount, step: PathStep) -> Option<String> {
    match step {
        PathStep::Socket | PathStep::Application if lost.port != 0 => Some(sockets(evidence, lost.port)),
        PathStep::Filter => chains(evidence, lost).or_else(|| device(evidence, lost)),
        _ => device(evidence, lost),
    }
}

/// The nftables chains at the hook, one of which dropped the packet; the hook if no chain is known.
/// Without a route it may have been an ingress hook or a bridge's hook.
fn chains(evidence: &PacketEvidence, lost: &LostCount) -> Option<String> {
    let Some(hook) = lost.hook.as_deref() else {
        return (evidence.chains.len() == 1).then(|| evidence.chains.concat());
    };
    let has_no_route = ["ingress", "prerouting"].contains(&hook);
    let is_there = |chain: &str| {
        let at = chain.split(' ').next_back();
        at == Some(hook) || has_no_route && (at == Some("ingress") || chain.starts_with("chain bridge "))
    };
    let here: Vec<&str> =
        evidence.chains.iter().map(String::as_str).filter(|chain| is_there(chain)).collect();
    match here.is_empty() {
        true => (!has_no_route).then(|| format!("hook {hook}")),
        false => Some(here.join(" or ")),
    }
}

// The sockets of a port with losses, largest first; the port if there are none.
fn sockets(evidence: &PacketEvidence, port: u16) -> String {
    let of_port =
        evidence.grown.iter().filter(|grown| grown.name == "drops" && is_of_port(&grown.place, port));
    let mut lossy: Vec<_> = of_port.collect();
    lossy.sort_by_key(|grown| std::cmp::Reverse(grown.packets));
    match lossy.as_slice() {
        [] => format!("port {port}"),
        [one] => one.place.clone(),
        [most, others @ ..] => format!("{} ({} of them) and {} more", most.place, most.packets, others.len()),
    }
}

/// Whether a socket's name contains this port.
pub(super) fn is_of_port(place: &str, port: u16) -> bool {
    let behind = format!(":{port}");
    place.split(' ').any(|word| word.ends_with(&behind))
}

fn device(evidence: &PacketEvidence, lost: &LostCount) -> Option<String> {
    let index = lost.device?;
    Some(evidence.seen.devices.get(&index).cloned().unwrap_or_else(|| format!("device {index}")))
}
