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
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    super::each_interface(view, of_interface)
}

fn of_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let usable = spread::usable_cpus(path)?;
    let vectors = spread::receive_vectors(path, interface);
    // A hint with many CPUs has no meaning, and a hint to an excluded CPU cannot be followed.
    let hinted: Vec<(&IrqVector, u32)> = vectors
        .values()
        .filter_map(|vector| vector.hinted_cpu().map(|cpu| (*vector, cpu)))
        .filter(|(_, cpu)| usable.contains(*cpu))
        .collect();
    let elsewhere =
        hinted.iter().filter(|(vector, hint)| vector.cpu().is_some_and(|cpu| cpu != *hint)).count();
    if elsewhere == 0 {
        return None;
    }
    let by_hint: BTreeSet<u32> = hinted.iter().map(|(_, cpu)| *cpu).collect();
    let now: BTreeSet<u32> = hinted.iter().filter_map(|(vector, _)| vector.cpu()).collect();
    let worse = now.len() < by_hint.len();
    let severity = if worse { Severity::Medium } else { Severity::Note };
    let title = format!(
        "{elsewhere} of {} receive queues of {interface} interrupt another CPU than their driver hints{}",
        hinted.len(),
        if worse {
            format!(": they use {} CPUs, the hints {}", now.len(), by_hint.len())
        } else {
            String::new()
        }
    );
    let list: Vec<&IrqVector> = hinted.iter().map(|(vector, _)| *vector).collect();
    let matched = super::with_vectors(RuleMatch::new(severity, title), &list).evidence_by(
        "hinted CPU by interrupt",
        hinted.iter().map(|(vector, cpu)| (vector.irq, *cpu)),
        "/proc/irq/*/affinity_hint",
    );
    if !worse {
        return Some(matched);
    }
    let plan = vectors.iter().filter_map(|(queue, vector)| Some((*queue, vector.hinted_cpu()?))).collect();
    Some(super::fix(matched, path, interface, &plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, cpus, path};

    fn found(machine: &SampleMachine<'_>) -> Vec<RuleMatch> {
        check(&HostView::once(&path(machine)))
    }

    #[test]
    fn hints_that_would_use_more_cpus_are_followed() {
        let machine =
            SampleMachine { vectors: &[0, 0, 2, 1], hints: Some(&[0, 1, 2, 3]), ..SampleMachine::default() };
        let matched = found(&machine).remove(0);
        assert_eq!(
            matched.title,
            "2 of 4 receive queues of eth0 interrupt another CPU than their driver hints: they use 3 CPUs, the hints 4"
        );
        assert_eq!(matched.severity, Severity::Medium);
        assert_eq!(matched.evidence[1].value["101"], 1);
        let changes: Vec<String> =
            matched.changes.iter().map(|change| format!("{} {}", change.setting, change.to)).collect();
        assert_eq!(
            changes,
            ["affinity of IRQ 101 (eth0-TxRx-1) 00000002", "affinity of IRQ 103 (eth0-TxRx-3) 00000008"]
        );
    }

    #[test]
    fn another_order_of_as_many_cpus_is_only_noted_and_left_alone() {
        let machine =
            SampleMachine { vectors: &[1, 0, 2, 3], hints: Some(&[0, 1, 2, 3]), ..SampleMachine::default() };
        let matched = found(&machine).remove(0);
        assert_eq!(matched.severity, Severity::Note);
        assert_eq!(
            matched.title,
            "2 of 4 receive queues of eth0 interrupt another CPU than their driver hints"
        );
        assert!(matched.changes.is_empty());
    }

    #[test]
    fn without_hints_or_with_wide_ones_or_with_all_followed_nothing_is_found() {
        for machine in [
            SampleMachine { vectors: &[0, 0, 0, 0], ..SampleMachine::default() },
            SampleMachine { hints: Some(&[0, 1, 2, 3]), ..SampleMachine::default() },
            SampleMachine {
                vectors: &[0, 0],
                hints: Some(&[2, 3]),
                isolated: "2-3",
                ..SampleMachine::default()
            },
        ] {
            assert!(found(&machine).is_empty(), "{machine:?}");
        }
        let mut path = path(&SampleMachine { vectors: &[0, 0], ..SampleMachine::default() });
        let Known::Value(vectors) = &mut path.irq.interfaces[0].vectors else { panic!("vectors") };
        vectors[1].hint = Known::Value(Some(cpus("0-3")));
        assert!(check(&HostView::once(&path)).is_empty());
    }
}
