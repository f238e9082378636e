//! Rules about the placement of interrupts.

pub(in crate::stage) mod isolated;
pub(in crate::stage) mod not_hint;
pub(in crate::stage) mod one_node;
pub(in crate::stage) mod owner_conflict;
pub(in crate::stage) mod stacked;

use std::collections::BTreeMap;

use super::IrqVector;
use crate::finding::{CostUnit, RuleMatch};
use crate::stage::softirq::traffic;
use crate::stage::{HostView, PacketPath, spread};

const CAVEATS: &str = "Somebody put them there on purpose, for example to keep CPUs free for a service that \
                       does not use the network. A program that sets them must leave them alone, or it \
                       reverts the change: irqbalance within ten seconds. Do not switch irqbalance off on \
                       EC2, because Amazon advises against it. Google's images do not have it.";

fn check_interfaces(
    view: &HostView<'_>,
    match_interface: fn(&HostView<'_>, &str) -> Option<RuleMatch>,
) -> Vec<RuleMatch> {
    view.now.irq.interfaces.iter().filter_map(|item| match_interface(view, &item.interface)).collect()
}

/// Adds the CPUs of the vectors that serve receive queues.
fn with_vectors(rule_match: RuleMatch, vectors: &[&IrqVector]) -> RuleMatch {
    let cpus_by_vector = vectors.iter().map(|vector| {
        let cpus = vector.cpus().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        (format!("{} {}", vector.irq, vector.name), cpus)
    });
    rule_match.evidence_by(
        "CPUs by vector",
        cpus_by_vector,
        "/proc/irq/*/effective_affinity_list or smp_affinity",
    )
}

/// Sets the effect to a cost per packet, unless two readings show that one of the vectors' CPUs has
/// little time left.
fn with_cost(rule_match: RuleMatch, view: &HostView<'_>, cpus: impl Iterator<Item = u32>) -> RuleMatch {
    if traffic::is_any_busy(view, cpus) { rule_match } else { rule_match.costs_per(CostUnit::IpPacket) }
}

/// Adds the changes that spread the vectors over CPUs.
pub(in crate::stage) fn add_spread_changes(
    rule_match: RuleMatch,
    path: &PacketPath,
    interface: &str,
) -> RuleMatch {
    match spread::plan(path, interface) {
        Some(plan) => add_changes(rule_match, path, interface, &plan),
        None => rule_match,
    }
}

/// Adds the changes that move each vector according to `plan`, and the other tools that set
/// affinities.
fn add_changes(
    mut rule_match: RuleMatch,
    path: &PacketPath,
    interface: &str,
    plan: &BTreeMap<u32, u32>,
) -> RuleMatch {
    let moves: Vec<(&IrqVector, u32)> = path
        .irq
        .vectors(interface)
        .iter()
        .filter(|vector| !vector.is_managed())
        .filter_map(|vector| {
            let queue = vector.receive_queue.or(vector.transmit_queue)?;
            let cpu = *plan.get(&queue)?;
            (vector.cpu() != Some(cpu)).then_some((vector, cpu))
        })
        .collect();
    rule_match = super::owner::add_owners(
        rule_match,
        path,
        &moves.iter().map(|(vector, _)| vector.irq).collect::<Vec<_>>(),
    );
    moves.into_iter().fold(rule_match, |rule_match, (vector, cpu)| rule_match.move_vector(vector, cpu))
}
