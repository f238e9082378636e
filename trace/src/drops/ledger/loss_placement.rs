//! Packets dropped at tracepoints, as losses of a stage.

use super::divide::{PlacedLoss, divide_losses};
use super::evidence::PacketEvidence;
use super::{LossExactness, PathStep, StageLoss};
use crate::drops::causes::{self, LossCause, StagedCause};
use crate::drops::packet_counts::{CountedEvent, LossSite, PacketDirection, PacketOrigin};

impl StageLoss {
    pub(super) fn new(cause: &LossCause, packets: u64, exactness: LossExactness, source: String) -> Self {
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
pub(super) fn place_losses(evidence: &PacketEvidence) -> Vec<PlacedLoss> {
    let mut losses: Vec<PlacedLoss> = Vec::new();
    for (site, packets) in &evidence.seen.lost {
        let placed = place_loss(evidence, site, *packets);
        let existing = losses.iter_mut().find(|existing| is_same(existing, &placed));
        match existing {
            Some(existing) => {
                existing.loss.packets = existing.loss.packets.saturating_add(placed.loss.packets);
            }
            None => losses.push(placed),
        }
    }
    let mut losses = divide_losses(evidence, losses);
    losses.retain(|placed| placed.loss.packets > 0);
    losses.sort_by_key(|placed| std::cmp::Reverse(placed.loss.packets));
    losses
}

fn is_same(left: &PlacedLoss, right: &PlacedLoss) -> bool {
    (left.direction, left.origin, left.step, left.port)
        == (right.direction, right.origin, right.step, right.port)
        && left.loss.name == right.loss.name
        && left.loss.symbol == right.loss.symbol
        && left.loss.place == right.loss.place
        && left.loss.source == right.loss.source
}

fn place_loss(evidence: &PacketEvidence, site: &LossSite, packets: u64) -> PlacedLoss {
    let reason = site.reason.as_deref();
    let function = site.function.as_deref();
    let source = match &site.reason {
        Some(reason) => format!("kfree_skb reason {reason}"),
        None => "kfree_skb".to_owned(),
    };
    // An event that was not counted may have been one of these drops.
    let exactness = match evidence.seen.event_count(CountedEvent::Missed) {
        0 => LossExactness::Exact,
        _ => LossExactness::Sampled,
    };
    let (step, mut loss) = match causes::of_skb(reason, function, site.route_error) {
        Some(StagedCause { step, cause }) => (step, StageLoss::new(cause, packets, exactness, source)),
        None => unnamed_loss(site, packets, exactness, source),
    };
    let port = site.device.and_then(|index| evidence.ports.get(evidence.seen.devices.get(&index)?));
    loss.symbol = function.map(str::to_owned);
    let is_transmitting =
        matches!(step, PathStep::Link | PathStep::Transmit) || loss.name == causes::TAP_FULL;
    loss.place = match port.filter(|_| is_transmitting) {
        Some(port) => Some(port.clone()),
        None => place(evidence, site, step),
    };
    let has_reason = reason.is_some_and(|reason| reason != causes::NO_REASON);
    // A transmitting driver first detaches the packet from its socket (tun_net_xmit, Linux 6.18),
    // so that the packet seems to be arriving.
    let is_sent = site.origin == PacketOrigin::Arriving
        && step == PathStep::Link
        && [causes::TRANSMIT_RING, causes::TAP_FULL].contains(&loss.name.as_str());
    let origin = if is_sent { PacketOrigin::Local } else { site.origin };
    PlacedLoss { direction: site.direction, origin, step, port: site.port, has_reason, loss }
}

/// A loss with an unknown reason has that reason's name.
fn unnamed_loss(
    site: &LossSite,
    packets: u64,
    exactness: LossExactness,
    source: String,
) -> (PathStep, StageLoss) {
    let step = match site.direction {
        PacketDirection::Request => PathStep::Route,
        PacketDirection::Reply => PathStep::Transmit,
    };
    let mut loss = StageLoss::new(causes::unknown(), packets, exactness, source);
    if let Some(reason) = site.reason.as_deref().filter(|reason| *reason != causes::NO_REASON) {
        loss.name = reason.to_lowercase().replace('_', "-");
        loss.what = format!("the kernel dropped it for the reason {reason}");
    }
    (step, loss)
}

fn place(evidence: &PacketEvidence, site: &LossSite, step: PathStep) -> Option<String> {
    match step {
        PathStep::Socket | PathStep::Application if site.port != 0 => Some(sockets(evidence, site.port)),
        PathStep::Filter => chains(evidence, site).or_else(|| device(evidence, site)),
        _ => device(evidence, site),
    }
}

/// The nftables chains at the hook, one of which dropped the packet; the hook if no chain is known.
/// Without a route it may have been an ingress hook or a bridge's hook.
fn chains(evidence: &PacketEvidence, site: &LossSite) -> Option<String> {
    let Some(hook) = site.hook else {
        return (evidence.chains.len() == 1).then(|| evidence.chains.concat());
    };
    let has_no_route = ["ingress", "prerouting"].contains(&hook);
    let is_at_hook = |chain: &str| {
        let chain_hook = chain.split(' ').next_back();
        chain_hook == Some(hook)
            || has_no_route && (chain_hook == Some("ingress") || chain.starts_with("chain bridge "))
    };
    let matching: Vec<&str> =
        evidence.chains.iter().map(String::as_str).filter(|chain| is_at_hook(chain)).collect();
    match matching.is_empty() {
        true => (!has_no_route).then(|| format!("hook {hook}")),
        false => Some(matching.join(" or ")),
    }
}

// The sockets of a port with losses, largest first; the port if there are none.
fn sockets(evidence: &PacketEvidence, port: u16) -> String {
    let port_counters =
        evidence.grown.iter().filter(|counter| counter.name == "drops" && is_of_port(&counter.place, port));
    let mut counters: Vec<_> = port_counters.collect();
    counters.sort_by_key(|counter| std::cmp::Reverse(counter.packets));
    match counters.as_slice() {
        [] => format!("port {port}"),
        [only] => only.place.clone(),
        [largest, others @ ..] => {
            format!("{} ({} of them) and {} more", largest.place, largest.packets, others.len())
        }
    }
}

pub(super) fn is_of_port(place: &str, port: u16) -> bool {
    let suffix = format!(":{port}");
    place.split(' ').any(|word| word.ends_with(&suffix))
}

fn device(evidence: &PacketEvidence, site: &LossSite) -> Option<String> {
    let index = site.device?;
    Some(evidence.seen.devices.get(&index).cloned().unwrap_or_else(|| format!("device {index}")))
}
