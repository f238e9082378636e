//! Interrupts of a busy interface on CPUs that are kept for other work.

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::irq::IrqVector;
use crate::stage::rss::rules::table_misses;
use crate::stage::softirq::traffic;
use crate::stage::{HostView, spread};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "irq.on-isolated-cpu",
    title: "A NIC interrupts a CPU that is kept for other work",
    why: "isolcpus= and nohz_full= keep the scheduler and the timer tick away from a CPU, but not the \
          interrupts of a NIC. Each of them stops the thread to which the CPU is given, and its softirq \
          processes the packets there. Drivers that place a queue on each CPU do this, and so does an \
          affinity that was written by hand.",
    effect: "The isolated CPUs run without interruptions, and packets are processed on the others.",
    published_ratio: None,
    source: "Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus, nohz_full and irqaffinity; \
             Documentation/core-api/irq/irq-affinity.rst",
    kernels: "4.2 and later, which list isolated CPUs",
    remedy: "Move the vectors to the other CPUs, or use fewer queues than there are other CPUs. Vectors that the \
             kernel manages follow isolcpus=managed_irq at boot.",
    caveats: "The CPUs are isolated for the server itself, whose threads read their packets there.",
    check: |view| super::check_interfaces(view, match_interface),
};

fn match_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let isolated = path.irq.isolated.value()?.as_ref().filter(|cpus| !cpus.is_empty())?;
    let vectors = spread::receive_vectors(path, interface);
    let is_isolated = |vector: &&IrqVector| {
        vector.cpus().is_some_and(|cpus| !cpus.is_empty() && cpus.iter().all(|cpu| isolated.contains(cpu)))
    };
    let silent_queues = table_misses::silent_queues(view, interface);
    let active_vectors = vectors.iter().filter(|(queue, _)| !silent_queues.contains(queue));
    let isolated_vectors: Vec<&IrqVector> =
        active_vectors.map(|(_, vector)| *vector).filter(is_isolated).collect();
    if isolated_vectors.is_empty() || traffic::is_quiet(view, interface) {
        return None;
    }
    let interrupted_cpus: CpuSet =
        isolated_vectors.iter().filter_map(|vector| vector.cpus()).flat_map(CpuSet::iter).collect();
    let severity =
        if has_serving_thread(view, &interrupted_cpus) { Severity::Note } else { Severity::Medium };
    let title = format!(
        "{} of {} receive queues of {interface} interrupt isolated CPUs ({interrupted_cpus})",
        isolated_vectors.len(),
        vectors.len()
    );
    let rule_match = super::with_vectors(RuleMatch::new(severity, title), &isolated_vectors).evidence(
        "isolated CPUs",
        isolated.to_string(),
        "/sys/devices/system/cpu/isolated, nohz_full",
    );
    Some(super::add_spread_changes(rule_match, path, interface))
}

/// Whether threads of UDP services run on these CPUs only, so that packets belong there.
fn has_serving_thread(view: &HostView<'_>, cpus: &CpuSet) -> bool {
    view.serving().iter().any(|thread| {
        let allowed = thread.allowed.value();
        allowed.is_some_and(|thread_cpus| {
            !thread_cpus.is_empty() && thread_cpus.iter().all(|cpu| cpus.contains(cpu))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, path};
    use crate::stage::rss::sample::rss;
    use crate::stage::socket::sample::thread;

    const BUSY: [(&str, &str); 2] =
        [("/proc/uptime", "1000.00 1.00\n"), ("/sys/class/net/eth0/statistics/rx_packets", "9900000\n")];

    #[test]
    fn busy_queues_on_isolated_cpus_are_moved_to_other_cpus() {
        let machine =
            SampleMachine { vectors: &[0, 2], isolated: "2-3", files: &BUSY, ..SampleMachine::PLAIN };
        let rule_match = RULE.on(&machine).remove(0);
        let title = "1 of 2 receive queues of eth0 interrupt isolated CPUs (2)";
        assert_eq!(rule_match.summary(), (Severity::Medium, title));
        assert_eq!(rule_match.change_texts(), ["affinity of IRQ 101 (eth0-TxRx-1) 00000002"]);
    }

    #[test]
    fn nohz_full_cpus_count_as_isolated() {
        let match_count = |list| {
            let files = [BUSY[0], BUSY[1], ("/sys/devices/system/cpu/nohz_full", list)];
            RULE.on(&SampleMachine { vectors: &[0, 2], files: &files, ..SampleMachine::PLAIN }).len()
        };
        assert_eq!((match_count("2-3\n"), match_count("(null)\n"), match_count("\n")), (1, 0, 0));
    }

    #[test]
    fn quiet_interfaces_and_queues_on_housekeeping_cpus_are_not_reported() {
        let quiet = [BUSY[0], ("/sys/class/net/eth0/statistics/rx_packets", "99000\n")];
        let machine = SampleMachine { vectors: &[0, 2], isolated: "2-3", ..SampleMachine::PLAIN };
        assert!(RULE.on(&SampleMachine { files: &quiet, ..machine.clone() }).is_empty());
        let files = &BUSY[..];
        assert!(RULE.on(&SampleMachine { vectors: &[0, 1], files, ..machine.clone() }).is_empty());
        assert!(RULE.on(&SampleMachine { isolated: "", files, ..machine }).is_empty());
    }

    #[test]
    fn vectors_of_queues_that_are_off_or_not_in_the_table_are_not_reported() {
        let machine =
            SampleMachine { vectors: &[0, 2], isolated: "2-3", files: &BUSY, ..SampleMachine::PLAIN };
        let mut path = path(&machine);
        let mut outside_table = path.clone();
        outside_table.rss = vec![rss("eth0", 1)];
        assert!(RULE.once(&outside_table).is_empty());
        path.link[0].receive_queues = Known::Value(1);
        assert!(RULE.once(&path).is_empty());
    }

    #[test]
    fn queues_on_isolated_cpus_are_a_note_if_the_server_runs_there() {
        let machine =
            SampleMachine { vectors: &[0, 2], isolated: "2-3", files: &BUSY, ..SampleMachine::PLAIN };
        let mut path = path(&machine);
        let mut severity = |allowed| {
            path.thread.serving = Known::Value(vec![thread(7, 1, allowed)]);
            RULE.once(&path)[0].severity
        };
        assert_eq!((severity("2"), severity("0-3")), (Severity::Note, Severity::Medium));
    }
}
