//! Rules about the placement of interrupts.

pub(in crate::stage) mod isolated;
pub(in crate::stage) mod not_hint;
pub(in crate::stage) mod one_node;
pub(in crate::stage) mod owner_conflict;
pub(in crate::stage) mod stacked;

use std::collections::BTreeMap;

use super::IrqVector;
use crate::CpuSet;
use crate::finding::RuleMatch;
use crate::setting::{Setting, SettingValue};
use crate::stage::{HostView, PacketPath, spread};

const CAVEATS: &str = "Somebody put them there on purpose, for example to keep CPUs free for a service that \
                       does not use the network. A program that sets them must leave them alone, or it \
                       reverts the change: irqbalance within ten seconds. Do not switch irqbalance off on \
                       EC2, because Amazon advises against it. Google's images do not have it.";

fn each_interface(view: &HostView<'_>, of: fn(&HostView<'_>, &str) -> Option<RuleMatch>) -> Vec<RuleMatch> {
    view.now.irq.interfaces.iter().filter_map(|item| of(view, &item.interface)).collect()
}

/// Adds the CPUs of the vectors that serve receive queues.
fn with_vectors(matched: RuleMatch, vectors: &[&IrqVector]) -> RuleMatch {
    let shown = vectors.iter().map(|vector| {
        let cpus = vector.cpus().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        (format!("{} {}", vector.irq, vector.name), cpus)
    });
    matched.evidence_by("CPUs by vector", shown, "/proc/irq/*/effective_affinity_list or smp_affinity")
}

/// Adds the changes that spread the vectors over CPUs.
fn fix_by_spread(matched: RuleMatch, path: &PacketPath, interface: &str) -> RuleMatch {
    match spread::plan(path, interface) {
        Some(plan) => fix(matched, path, interface, &plan),
        None => matched,
    }
}

/// Adds the changes that move each vector according to `plan`, and the other tools that set
/// affinities.
fn fix(mut matched: RuleMatch, path: &PacketPath, interface: &str, plan: &BTreeMap<u32, u32>) -> RuleMatch {
    let moved: Vec<(&IrqVector, u32)> = path
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
    matched =
        super::owner::told(matched, path, &moved.iter().map(|(vector, _)| vector.irq).collect::<Vec<_>>());
    for (vector, cpu) in moved {
        let from = vector.affinity.value().map(|cpus| SettingValue::new(cpus.to_mask()));
        let to = SettingValue::new(CpuSet::from_iter([cpu]).to_mask());
        let setting = Setting::IrqAffinity { irq: vector.irq, action: vector.name.clone() };
        matched = matched.change(setting, from, to);
    }
    matched
}
