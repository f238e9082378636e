//! CPUs without a receive queue and RPS.

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::link::LinkState;
use crate::stage::softirq::{load, traffic};
use crate::stage::spread::{self, RpsTarget};
use crate::stage::{HostView, PacketPath};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.rps-missing",
    title: "CPUs get no packets, and RPS is off",
    why: "A NIC spreads packets over the receive queues in its indirection table, and each queue interrupts \
          one CPU. With fewer queues than CPUs, the other CPUs process no packets. With RPS the CPU of a \
          queue hands packets to other CPUs by hash, which costs less than processing them.",
    effect: "Adds at most the CPUs that receive no packets now: four of 20 in the published case. RPS alone, \
             with one socket for all threads, made it worse there (17,000 transactions/s). With one socket \
             per thread it was part of all later steps, and RPS on every queue reached 7,010,000.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016; Documentation/networking/scaling.rst",
    kernels: "2.6.35 and later",
    remedy: "Raise the number of queues first if the NIC has more. Else give the CPUs without packets to queues whose own \
             CPU is on the same node. First give each thread its own socket (SO_REUSEPORT).",
    caveats: "The queues' CPUs have time left, or the service's threads need the CPUs without packets. With \
              two CPUs, one for packets and one for the service is often best.",
    check,
};

/// If fewer than one in this many CPUs get no packets, the fix gains a few percent.
const FEW: usize = 10;

/// Softirq share of CPU time with spare capacity, and with almost none.
const ROOM: f64 = 0.5;
const FULL: f64 = 0.9;

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    if is_every_cpu_reached(view.now) {
        return Vec::new();
    }
    view.now.link.iter().filter_map(|link| match_interface(view, link)).collect()
}

/// Whether queues and RPS of all interfaces together are known to reach every CPU.
pub(in crate::stage) fn is_every_cpu_reached(path: &PacketPath) -> bool {
    let Some(usable) = &spread::usable_cpus(path) else { return false };
    let mut uncovered: BTreeSet<u32> = usable.iter().collect();
    for queues in path.link.iter().filter_map(|link| queues(path, &link.interface)) {
        let Some(cpus) = &queues.cpus else { continue };
        let uncovered_by_link = uncovered_cpus(path, &queues, cpus, usable);
        uncovered.retain(|cpu| uncovered_by_link.contains(*cpu));
    }
    uncovered.is_empty()
}

struct InterfaceQueues<'a> {
    interface: &'a str,
    all: usize,
    /// Queues that get packets.
    reached: BTreeSet<u32>,
    /// The CPU of each reached queue when its vectors are well spread; `None` if unknown.
    cpus: Option<BTreeMap<u32, u32>>,
    /// Number of reached queues with RPS.
    with_rps: usize,
}

fn match_interface(view: &HostView<'_>, link: &LinkState) -> Option<RuleMatch> {
    let path = view.now;
    let usable = spread::usable_cpus(path)?;
    if !spread::has_own_queues(path, link) || usable.len() < 3 {
        return None;
    }
    let queues = queues(path, &link.interface)?;
    let uncovered = match &queues.cpus {
        Some(cpus) => uncovered_cpus(path, &queues, cpus, &usable),
        None if queues.with_rps > 0 => return None,
        None => usable.iter().skip(queues.reached.len()).collect(),
    };
    if uncovered.is_empty() {
        return None;
    }
    let title = title(&queues, &usable, &uncovered);
    let mut rule_match = RuleMatch::new(severity(view, &queues, &usable, &uncovered), title)
        .evidence("receive queues", queues.all, format!("/sys/class/net/{}/queues", queues.interface))
        .evidence(
            "CPUs that may take packets",
            usable.to_string(),
            "/sys/devices/system/cpu/online, isolated",
        )
        .evidence("queues with RPS", queues.with_rps, super::rps_files(queues.interface));
    if queues.reached.len() < queues.all {
        let reached: CpuSet = queues.reached.iter().copied().collect();
        let read_from = format!("indirection table of {} (ethtool -x)", queues.interface);
        rule_match = rule_match.evidence("receive queues in the table", reached.to_string(), read_from);
    }
    // Two readings show how busy the queues' CPUs are.
    if view.before.is_none() {
        rule_match = rule_match.costs_per(CostUnit::IpPacket);
    }
    for (queue, cpus) in plan(path, &queues, &uncovered) {
        rule_match = super::with_rps(rule_match, path, queues.interface, queue, &cpus);
    }
    Some(rule_match)
}

fn queues<'a>(path: &'a PacketPath, interface: &'a str) -> Option<InterfaceQueues<'a>> {
    let rps = path.softirq.rps_queues(interface);
    if rps.is_empty() || rps.iter().any(|queue| queue.cpus.value().is_none()) {
        return None;
    }
    let reached = spread::reached_queues(path, interface)?;
    let cpus = spread::settled_cpus(path, interface).and_then(|cpu_of_queue| {
        reached
            .iter()
            .map(|queue| cpu_of_queue.get(queue).map(|cpu| (*queue, *cpu)))
            .collect::<Option<BTreeMap<_, _>>>()
    });
    let with_rps = rps
        .iter()
        .filter(|item| reached.contains(&item.queue))
        .filter(|item| item.cpus.value().is_some_and(|cpus| !cpus.is_empty()))
        .count();
    Some(InterfaceQueues { interface, all: rps.len(), reached, cpus, with_rps })
}

/// The CPUs without packets from a queue or RPS.
fn uncovered_cpus(
    path: &PacketPath,
    queues: &InterfaceQueues<'_>,
    cpus: &BTreeMap<u32, u32>,
    usable: &CpuSet,
) -> CpuSet {
    let rps_sets = queues.reached.iter().filter_map(|queue| path.softirq.rps_cpus(queues.interface, *queue));
    let mut covered_cpus: BTreeSet<u32> = rps_sets.flat_map(CpuSet::iter).collect();
    covered_cpus.extend(cpus.values());
    usable.iter().filter(|cpu| !covered_cpus.contains(cpu)).collect()
}

fn severity(
    view: &HostView<'_>,
    queues: &InterfaceQueues<'_>,
    usable: &CpuSet,
    uncovered: &CpuSet,
) -> Severity {
    // RPS was set on purpose without these CPUs.
    if queues.with_rps > 0 || traffic::is_quiet(view, queues.interface) {
        return Severity::Note;
    }
    match average_softirq_share(view, queues) {
        Some(share) if share < ROOM => Severity::Note,
        // Two readings would have shown a shortage, but did not.
        None if view.before.is_some() => Severity::Note,
        Some(share) if share >= FULL && uncovered.len() * 2 >= usable.len() => Severity::High,
        _ if uncovered.len() * FEW >= usable.len() => Severity::Medium,
        _ => Severity::Low,
    }
}

/// Average softirq share of the queues' CPUs. If one CPU is full next to idle ones, the packets
/// need a better spread, not more CPUs. `None` without two readings.
fn average_softirq_share(view: &HostView<'_>, queues: &InterfaceQueues<'_>) -> Option<f64> {
    let shares = view.before.and_then(|_| load::time_shares(view))?;
    let queue_cpus: BTreeSet<&u32> = queues.cpus.as_ref()?.values().collect();
    let queue_cpus: Vec<f64> = queue_cpus.into_iter().filter_map(|cpu| shares.get(cpu).copied()).collect();
    let count = queue_cpus.len() as f64;
    (count > 0.0).then(|| queue_cpus.iter().sum::<f64>() / count)
}

fn title(queues: &InterfaceQueues<'_>, usable: &CpuSet, uncovered: &CpuSet) -> String {
    let InterfaceQueues { interface, all, reached, .. } = queues;
    let count = reached.len();
    let queue_text = match (count, *all) {
        (1, 1) => format!("{interface} has 1 receive queue"),
        (count, all) if count == all => format!("{interface} has {all} receive queues"),
        (count, all) => format!("Packets reach {count} of {all} receive queues of {interface}"),
    };
    let cpu_text = match (uncovered.len(), queues.cpus.is_some()) {
        (1, true) => format!("CPU {uncovered} gets none of its packets"),
        (_, true) => format!("CPUs {uncovered} get none of its packets"),
        (1, false) => "1 CPU gets none of its packets".to_owned(),
        (count, false) => format!("{count} CPUs get none of its packets"),
    };
    let rps_text = match queues.with_rps {
        0 => "RPS is off".to_owned(),
        1 => "RPS of 1 queue does not make up for it".to_owned(),
        count => format!("RPS of {count} queues does not make up for it"),
    };
    format!("{queue_text} for {} CPUs, and {rps_text}: {cpu_text}", usable.len())
}

/// RPS for the CPUs without packets, in addition to the current masks. Each of these CPUs is added
/// to the queue of its node that has the fewest CPUs, preferably not to a queue of its own core.
fn plan(path: &PacketPath, queues: &InterfaceQueues<'_>, uncovered: &CpuSet) -> BTreeMap<u32, CpuSet> {
    let Some(cpus) = &queues.cpus else { return BTreeMap::new() };
    let usable = spread::usable_cpus(path).unwrap_or_default();
    let own_of = |queue: u32| cpus.get(&queue).copied().filter(|own_cpu| usable.contains(*own_cpu));
    let rps_sets = spread::rps_targets(&path.machine, cpus, uncovered, RpsTarget::OwnNode);
    let add_own = |(queue, mut cpu_set): (u32, BTreeSet<u32>)| {
        cpu_set.extend(path.softirq.rps_cpus(queues.interface, queue).into_iter().flat_map(CpuSet::iter));
        (queue, spread::add_own_cpu(cpu_set, own_of(queue)))
    };
    rps_sets.into_iter().map(add_own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, path};

    #[test]
    fn rps_of_a_single_queue_targets_cpus_of_its_own_node() {
        let machine = SampleMachine { nodes: &["0-7"], vectors: &[0], ..SampleMachine::PLAIN };
        let rule_match = RULE.on(&machine).remove(0);
        assert_eq!(
            rule_match.title,
            "eth0 has 1 receive queue for 8 CPUs, and RPS is off: CPUs 1-7 get none of its packets"
        );
        assert_eq!(rule_match.change_texts(), ["eth0 rx-0/rps_cpus 000000fe"]);
        let two_nodes = SampleMachine { nodes: &["0-1", "2-3"], vectors: &[0], ..SampleMachine::PLAIN };
        assert_eq!(RULE.on(&two_nodes)[0].change_texts(), ["eth0 rx-0/rps_cpus 00000003"]);
    }

    #[test]
    fn rps_prefers_another_core_to_the_sibling_thread() {
        let machine = SampleMachine { cores: &["0,2", "1,3"], vectors: &[0, 1], ..SampleMachine::PLAIN };
        let rule_match = RULE.on(&machine).remove(0);
        assert_eq!(rule_match.change_texts(), ["eth0 rx-0/rps_cpus 00000009", "eth0 rx-1/rps_cpus 00000006"]);
    }

    #[test]
    fn stacked_interrupts_are_not_reported_as_missing_rps() {
        let machine = SampleMachine { vectors: &[0, 0, 0, 0], ..SampleMachine::PLAIN };
        assert!(RULE.on(&machine).is_empty());
    }

    #[test]
    fn with_unknown_vectors_only_the_cpu_count_is_reported() {
        let mut path = path(&SampleMachine { vectors: &[0, 1], ..SampleMachine::PLAIN });
        path.irq.interfaces[0].vectors = Known::unknown("garbled");
        let rule_match = RULE.once(&path).remove(0);
        assert_eq!(
            rule_match.title,
            "eth0 has 2 receive queues for 4 CPUs, and RPS is off: 2 CPUs get none of its packets"
        );
        assert!(rule_match.changes.is_empty());
    }

    #[test]
    fn partial_rps_and_quiet_interfaces_are_a_note() {
        let machine = SampleMachine { vectors: &[0, 1], rps: &["0,2"], ..SampleMachine::PLAIN };
        let rule_match = RULE.on(&machine).remove(0);
        let title = "eth0 has 2 receive queues for 4 CPUs, and RPS of 1 queue does not make up for it: CPU 3 gets none of its packets";
        assert_eq!(rule_match.summary(), (Severity::Note, title));
        let files = [("/proc/uptime", "1000.0 1.0\n"), ("/sys/class/net/eth0/statistics/rx_packets", "5\n")];
        let quiet = SampleMachine { vectors: &[0], files: &files, ..SampleMachine::PLAIN };
        assert_eq!(RULE.on(&quiet)[0].severity, Severity::Note);
    }

    #[test]
    fn enough_queues_few_cpus_virtual_links_or_full_rps_are_not_reported() {
        RULE.assert_none_on(&[
            SampleMachine::PLAIN,
            SampleMachine { nodes: &["0-1"], vectors: &[0], ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[], ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[0, 1], rps: &["0,2", "1,3"], ..SampleMachine::PLAIN },
            SampleMachine { vectors: &[0, 1, 2], isolated: "3", ..SampleMachine::PLAIN },
        ]);
        let mut path = path(&SampleMachine { vectors: &[0, 1], ..SampleMachine::PLAIN });
        assert!(!RULE.once(&path).is_empty());
        path.softirq.rps[0].queues = Known::unknown("garbled");
        assert!(RULE.once(&path).is_empty());
    }

    #[test]
    fn two_interfaces_that_together_reach_all_cpus_are_not_reported() {
        let mut host_path = path(&SampleMachine { vectors: &[0, 1], ..SampleMachine::PLAIN });
        let second = path(&SampleMachine { vectors: &[2, 3], ..SampleMachine::PLAIN });
        let (mut link, mut rps) = (second.link[0].clone(), second.softirq.rps[0].clone());
        let mut vectors = second.irq.interfaces[0].clone();
        for name in [&mut link.interface, &mut rps.interface, &mut vectors.interface] {
            *name = "eth1".to_owned();
        }
        assert_eq!(RULE.once(&host_path).len(), 1);
        host_path.link.push(link);
        host_path.softirq.rps.push(rps);
        host_path.irq.interfaces.push(vectors);
        assert!(RULE.once(&host_path).is_empty());
    }

    #[test]
    fn missing_rps_severity_follows_softirq_load_between_readings() {
        let reading = |softirq: u64, idle: u64| {
            let other_cpus: String =
                (1..4).map(|cpu| format!("cpu{cpu} 0 0 0 {} 0 0 0 0\n", idle + softirq)).collect();
            let stat = format!("cpu0 0 0 0 {idle} 0 0 {softirq} 0\n{other_cpus}");
            let files = [
                ("/proc/stat", stat.as_str()),
                ("/proc/uptime", "1.0 1.0\n"),
                ("/sys/class/net/eth0/statistics/rx_packets", "5\n"),
            ];
            let mut path = path(&SampleMachine { vectors: &[0], files: &files, ..SampleMachine::PLAIN });
            path.uptime_seconds = Known::Value(if softirq > 0 || idle > 0 { 11.0 } else { 10.0 });
            path.link[0].totals = Known::unknown("not read");
            path
        };
        let before = reading(0, 0);
        for (softirq, idle, severity) in
            [(10, 90, Severity::Note), (95, 5, Severity::High), (70, 30, Severity::Medium)]
        {
            let now = reading(softirq, idle);
            assert_eq!(RULE.twice(&before, &now)[0].severity, severity);
        }
        let mut unknown = reading(95, 5);
        unknown.machine.cpu_times = Known::unknown("cut short");
        assert_eq!(RULE.twice(&before, &unknown)[0].severity, Severity::Note);
    }
}
