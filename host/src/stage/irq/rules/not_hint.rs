//! Vectors that do not follow their driver's hint.

use std::collections::BTreeSet;

use super::super::IrqVector;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::{HostView, spread};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "irq.not-hint",
    title: "Interrupts do not go where their driver hints",
    why: "Many drivers create one queue per CPU, set XPS accordingly, and hint each vector to the queue's \
          CPU. If the vector goes elsewhere, packets arrive on one CPU and replies leave by the queue of \
          another, and several vectors may share a CPU. Kernels do not follow hints by themselves, and \
          irqbalance has no option for it since 1.7.",
    effect: "Following the hints spread 20 queues over 20 cores instead of ten. The steps from 270,000 to \
             4,250,000 transactions/s require this. Alone it made the server slower (17,000), because all \
             threads shared one socket.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "2.6.35 and later",
    remedy: "Put each vector on the CPU of its hint. First make other programs that set affinities leave these alone. \
             irqbalance up to 1.6 can follow hints: --hintpolicy=exact.",
    caveats: super::CAVEATS,
    check: |view| super::check_interfaces(view, match_interface),
};

fn match_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let usable = spread::usable_cpus(path)?;
    let vectors = spread::receive_vectors(path, interface);
    // A hint with many CPUs has no meaning, and a hint to an excluded CPU cannot be followed.
    let usable_hint = |vector: &IrqVector| vector.hinted_cpu().filter(|cpu| usable.contains(*cpu));
    let hints: Vec<(&IrqVector, u32)> =
        vectors.values().filter_map(|vector| Some((*vector, usable_hint(vector)?))).collect();
    let misplaced =
        hints.iter().filter(|(vector, hint)| vector.cpu().is_some_and(|cpu| cpu != *hint)).count();
    if misplaced == 0 {
        return None;
    }
    let hinted_cpus: BTreeSet<u32> = hints.iter().map(|(_, cpu)| *cpu).collect();
    let current_cpus: BTreeSet<u32> = hints.iter().filter_map(|(vector, _)| vector.cpu()).collect();
    let is_worse = current_cpus.len() < hinted_cpus.len();
    let severity = if is_worse { Severity::Medium } else { Severity::Note };
    let title = format!(
        "{misplaced} of {} receive queues of {interface} interrupt another CPU than their driver hints{}",
        hints.len(),
        if is_worse {
            format!(": they use {} CPUs, the hints {}", current_cpus.len(), hinted_cpus.len())
        } else {
            String::new()
        }
    );
    let hinted_vectors: Vec<&IrqVector> = hints.iter().map(|(vector, _)| *vector).collect();
    let rule_match = RuleMatch::new(severity, title).costs_packets_of(interface);
    let rule_match = super::with_vectors(rule_match, &hinted_vectors).evidence_by(
        "hinted CPU by interrupt",
        hints.iter().map(|(vector, cpu)| (vector.irq, *cpu)),
        "/proc/irq/*/affinity_hint",
    );
    if !is_worse {
        return Some(rule_match);
    }
    let plan = vectors.iter().filter_map(|(queue, vector)| Some((*queue, usable_hint(vector)?))).collect();
    Some(super::add_changes(rule_match, path, interface, &plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, cpus, path};

    #[test]
    fn affinity_hints_that_only_reorder_cpus_are_a_note_without_changes() {
        let machine =
            SampleMachine { vectors: &[1, 0, 2, 3], hints: Some(&[0, 1, 2, 3]), ..SampleMachine::PLAIN };
        let rule_match = RULE.on(&machine).remove(0);
        let title = "2 of 4 receive queues of eth0 interrupt another CPU than their driver hints";
        assert_eq!(rule_match.summary(), (Severity::Note, title));
        assert!(rule_match.changes.is_empty());
    }

    #[test]
    fn hints_to_isolated_cpus_are_not_followed() {
        let machine = SampleMachine {
            vectors: &[0, 0, 0, 0],
            hints: Some(&[0, 1, 2, 3]),
            isolated: "2-3",
            ..SampleMachine::PLAIN
        };
        let rule_match = RULE.on(&machine).remove(0);
        let cpus: Vec<&str> = rule_match.changes.iter().map(|change| change.to.as_str()).collect();
        assert_eq!((rule_match.severity, cpus), (Severity::Medium, vec!["00000002"]));
    }

    #[test]
    fn absent_followed_isolated_and_multi_cpu_hints_are_not_reported() {
        RULE.assert_none_on(&[
            SampleMachine { vectors: &[0, 0, 0, 0], ..SampleMachine::PLAIN },
            SampleMachine { hints: Some(&[0, 1, 2, 3]), ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[0, 0], hints: Some(&[2, 3]), isolated: "2-3", ..SampleMachine::PLAIN },
        ]);
        let mut path = path(&SampleMachine { vectors: &[0, 0], ..SampleMachine::PLAIN });
        path.irq.interfaces[0].vectors.expect_mut()[1].hint = Known::Value(Some(cpus("0-3")));
        assert!(RULE.once(&path).is_empty());
    }
}
