//! Interrupts of a busy interface on CPUs that are kept for other work.

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::irq::IrqVector;
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
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    super::each_interface(view, of_interface)
}

fn of_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let isolated = path.irq.isolated.value()?.as_ref().filter(|cpus| !cpus.is_empty())?;
    let vectors = spread::receive_vectors(path, interface);
    let is_isolated = |vector: &&IrqVector| {
        vector.cpus().is_some_and(|cpus| !cpus.is_empty() && cpus.iter().all(|cpu| isolated.contains(cpu)))
    };
    let list: Vec<&IrqVector> = vectors.values().copied().filter(is_isolated).collect();
    if list.is_empty() || traffic::is_quiet(view, interface) {
        return None;
    }
    let here: CpuSet = list.iter().filter_map(|vector| vector.cpus()).flat_map(CpuSet::iter).collect();
    let severity = if serves_there(view, &here) { Severity::Note } else { Severity::Medium };
    let title = format!(
        "{} of {} receive queues of {interface} interrupt isolated CPUs ({here})",
        list.len(),
        vectors.len()
    );
    let matched = super::with_vectors(RuleMatch::new(severity, title), &list).evidence(
        "isolated CPUs",
        isolated.to_string(),
        "/sys/devices/system/cpu/isolated, nohz_full",
    );
    Some(super::fix_by_spread(matched, path, interface))
}

/// Whether threads of UDP services run on these CPUs only, so that packets belong there.
fn serves_there(view: &HostView<'_>, cpus: &CpuSet) -> bool {
    view.serving().iter().any(|thread| {
        let allowed = thread.allowed.value();
        allowed.is_some_and(|own| !own.is_empty() && own.iter().all(|cpu| cpus.contains(cpu)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, cpus, path};
    use crate::stage::thread::{ServingEvidence, ServingThread};

    const BUSY: [(&str, &str); 2] =
        [("/proc/uptime", "1000.00 1.00\n"), ("/sys/class/net/eth0/statistics/rx_packets", "9900000\n")];

    fn found(machine: &SampleMachine<'_>) -> Vec<RuleMatch> {
        check(&HostView::once(&path(machine)))
    }

    #[test]
    fn a_busy_queue_on_an_isolated_cpu_moves_to_another() {
        let machine =
            SampleMachine { vectors: &[0, 2], isolated: "2-3", files: &BUSY, ..SampleMachine::default() };
        let matched = found(&machine).remove(0);
        assert_eq!(matched.title, "1 of 2 receive queues of eth0 interrupt isolated CPUs (2)");
        assert_eq!(matched.severity, Severity::Medium);
        let changes: Vec<String> =
            matched.changes.iter().map(|change| format!("{} {}", change.setting, change.to)).collect();
        assert_eq!(changes, ["affinity of IRQ 101 (eth0-TxRx-1) 00000002"]);
    }

    #[test]
    fn cpus_of_nohz_full_are_isolated_too() {
        let with = |list| {
            let files = [BUSY[0], BUSY[1], ("/sys/devices/system/cpu/nohz_full", list)];
            found(&SampleMachine { vectors: &[0, 2], files: &files, ..SampleMachine::default() }).len()
        };
        assert_eq!((with("2-3\n"), with("(null)\n"), with("\n")), (1, 0, 0));
    }

    #[test]
    fn a_quiet_interface_and_queues_on_other_cpus_are_no_fault() {
        let quiet = [BUSY[0], ("/sys/class/net/eth0/statistics/rx_packets", "99000\n")];
        let machine = SampleMachine { vectors: &[0, 2], isolated: "2-3", ..SampleMachine::default() };
        assert!(found(&SampleMachine { files: &quiet, ..machine.clone() }).is_empty());
        let files = &BUSY[..];
        assert!(found(&SampleMachine { vectors: &[0, 1], files, ..machine.clone() }).is_empty());
        assert!(found(&SampleMachine { isolated: "", files, ..machine }).is_empty());
    }

    #[test]
    fn a_server_on_the_isolated_cpus_wants_its_packets_there() {
        let machine =
            SampleMachine { vectors: &[0, 2], isolated: "2-3", files: &BUSY, ..SampleMachine::default() };
        let mut path = path(&machine);
        let thread = |allowed: &str| ServingThread {
            pid: 7,
            tid: 7,
            name: "server".into(),
            sockets: vec![1],
            how: ServingEvidence::OnlyThread,
            takes_turns_at: None,
            allowed: Known::Value(cpus(allowed)),
            last_cpu: Known::Value(0),
            user_ticks: Known::Value(0),
            system_ticks: Known::Value(0),
        };
        let mut severity = |allowed| {
            path.thread.serving = Known::Value(vec![thread(allowed)]);
            check(&HostView::once(&path))[0].severity
        };
        assert_eq!((severity("2"), severity("0-3")), (Severity::Note, Severity::Medium));
    }
}
