//! Several receive queues of an interface on one CPU, while other CPUs have none.

use std::collections::BTreeMap;

use super::super::IrqVector;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::softirq::traffic;
use crate::stage::{HostView, spread};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "irq.stacked",
    title: "Several receive queues interrupt the same CPU",
    why: "A CPU polls the queues whose vectors go to it one after the other. Two queues on one CPU share its capacity, \
          however evenly the NIC spreads packets over them, while a CPU without a queue takes no part.",
    effect: "Packet processing is limited by the fullest CPU: with n queues, each gets 1/n of it. At 270,000 \
             transactions/s, 20 queues shared nine of 20 CPUs, with up to four queues on one CPU.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016; Documentation/networking/scaling.rst",
    kernels: "all",
    remedy: "Give each receive queue's vector a CPU of its own: cores of the NIC's node first, then those of other \
             nodes, hardware threads that share a core last. First make other programs that set affinities leave these \
             alone.",
    caveats: super::CAVEATS,
    check: |view| super::check_interfaces(view, match_interface),
};

fn match_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let usable = spread::usable_cpus(path)?;
    let vectors = spread::receive_vectors(path, interface);
    let by_cpu = queues_by_cpu(&vectors)?;
    let (fullest, queues) = by_cpu.iter().max_by_key(|(_, queues)| queues.len())?;
    let free_count = usable.iter().filter(|cpu| !by_cpu.contains_key(cpu)).count();
    if queues.len() < 2 || free_count == 0 {
        return None;
    }
    let best_count = vectors.len().min(usable.len());
    let severity = if traffic::is_quiet(view, interface) {
        Severity::Note
    } else if by_cpu.len() * 2 <= best_count {
        Severity::High
    } else {
        Severity::Medium
    };
    let title = format!(
        "{} receive queues of {interface} interrupt {} of {} CPUs: CPU {fullest} has {} of them, {free_count} {} none",
        vectors.len(),
        by_cpu.len(),
        usable.len(),
        queues.len(),
        if free_count == 1 { "CPU has" } else { "CPUs have" },
    );
    let vector_list: Vec<&IrqVector> = vectors.values().copied().collect();
    let rule_match = super::with_vectors(RuleMatch::new(severity, title), &vector_list);
    let rule_match = super::with_cost(rule_match, view, by_cpu.into_keys());
    Some(super::add_spread_changes(rule_match, path, interface))
}

/// `None` if a vector goes to several CPUs, or if its CPU is unknown.
fn queues_by_cpu(vectors: &BTreeMap<u32, &IrqVector>) -> Option<BTreeMap<u32, Vec<u32>>> {
    let mut by_cpu: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (queue, vector) in vectors {
        by_cpu.entry(vector.cpu()?).or_default().push(*queue);
    }
    Some(by_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, cpus, path};

    #[test]
    fn queues_sharing_a_cpu_are_a_note_without_traffic() {
        let machine = SampleMachine { vectors: &[0, 0, 2, 3], ..SampleMachine::PLAIN };
        assert_eq!(RULE.on(&machine)[0].severity, Severity::Medium);
        let quiet =
            [("/proc/uptime", "1000.00 1.00\n"), ("/sys/class/net/eth0/statistics/rx_packets", "99000\n")];
        let machine = SampleMachine { vectors: &[0; 4], files: &quiet, ..SampleMachine::PLAIN };
        assert_eq!(RULE.on(&machine)[0].severity, Severity::Note);
        let busy = [quiet[0], ("/sys/class/net/eth0/statistics/rx_packets", "9900000\n")];
        assert_eq!(RULE.on(&SampleMachine { files: &busy, ..machine.clone() })[0].severity, Severity::High);
    }

    #[test]
    fn queues_sharing_a_cpu_are_a_note_at_low_rates_unless_the_cpu_is_busy() {
        const NOTE: (Severity, Severity) = (Severity::Note, Severity::High);
        const HIGH: (Severity, Severity) = (Severity::High, Severity::High);
        let reading = |uptime: &str, packets: u64, (softirq, idle): (u64, u64)| {
            let received = format!("{packets}\n");
            let snmp = format!("Ip: InReceives\nIp: {packets}\n");
            let others = "cpu1 0 0 0 9 0 0 0 0\ncpu2 0 0 0 9 0 0 0 0\ncpu3 0 0 0 9 0 0 0 0\n";
            let stat = format!("cpu0 0 0 0 {idle} 0 0 {softirq} 0\n{others}");
            let files = [
                ("/proc/uptime", uptime),
                ("/sys/class/net/eth0/statistics/rx_packets", &*received),
                ("/proc/net/snmp", &*snmp),
                ("/proc/stat", &*stat),
            ];
            path(&SampleMachine { vectors: &[0; 4], files: &files, ..SampleMachine::PLAIN })
        };
        let severities = |view: &HostView<'_>| {
            let finding = RULE.findings(view).remove(0);
            (finding.severity, finding.severity_under_load)
        };
        let average = |packets| severities(&HostView::once(&reading("1000 1", packets, (0, 1000))));
        assert_eq!((average(4_900_000), average(5_100_000)), (NOTE, HIGH));
        let current = |packets, times| {
            let before = reading("1000 1", 0, (0, 0));
            severities(&HostView::twice(&before, &reading("1010 1", packets, times)))
        };
        assert_eq!((current(190_000, (490, 510)), current(190_000, (510, 490))), (NOTE, HIGH));
        assert_eq!(current(210_000, (10, 990)), HIGH);
    }

    #[test]
    fn queues_on_their_own_cpus_or_without_free_cpus_are_not_reported() {
        RULE.assert_none_on(&[
            SampleMachine::PLAIN,
            SampleMachine { vectors: &[3], ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[], ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[0, 1, 2, 3, 0, 1], ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[0, 1, 0, 1], isolated: "2-3", ..SampleMachine::PLAIN },
            SampleMachine { nodes: &["0"], vectors: &[0, 0], ..SampleMachine::PLAIN },
        ]);
    }

    #[test]
    fn managed_and_multi_cpu_vectors_are_not_moved() {
        let mut path = path(&SampleMachine { vectors: &[0, 0], ..SampleMachine::PLAIN });
        path.irq.interfaces[0].vectors.expect_mut()[1].managed = Known::Value(Some(true));
        assert!(RULE.once(&path)[0].changes.is_empty());
        let vector = &mut path.irq.interfaces[0].vectors.expect_mut()[1];
        vector.affinity = Known::Value(cpus("0-1"));
        vector.effective = Known::Value(Some(cpus("0-1")));
        assert!(RULE.once(&path).is_empty());
    }

    #[test]
    fn pending_affinity_overrides_the_effective_affinity() {
        let mut path = path(&SampleMachine { vectors: &[0, 0], ..SampleMachine::PLAIN });
        path.irq.interfaces[0].vectors.expect_mut()[1].affinity = Known::Value(cpus("1"));
        assert!(RULE.once(&path).is_empty());
    }
}
