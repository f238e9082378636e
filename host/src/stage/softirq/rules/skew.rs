//! One CPU that processes most of the packets.

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::amount;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::{ServiceSockets, SteeringState};
use crate::stage::softirq::load;
use crate::stage::spread;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.skew",
    title: "One CPU processes most packets",
    why: "A CPU's softirqs run on that CPU only. If most packets come to one CPU, it is full while the \
          others wait. The cause is a single queue, a single flow, vectors on one CPU, or a hash that does \
          not separate flows.",
    effect: "The rate of one CPU is the limit of the host: 200 to 450 kpps in one published case, where spreading over \
             two queues gave 650 kpps.",
    published_ratio: Some(650.0 / 370.0),
    source: "M. Majkowski, How to receive a million packets per second, 2015",
    kernels: "all",
    remedy: "Look at the other findings of rss, irq and softirq for the cause: more queues, ports in the \
             hash, vectors on CPUs of their own, or RPS. If RPS hands the packets of all queues to one CPU, \
             give each queue its own CPU.",
    caveats: "That CPU has time left, or the host has two CPUs of which the other runs the service.",
    check: |view| check(view).into_iter().collect(),
};

const MOST: f64 = 0.6;

/// Packets per second above which the share of one CPU matters.
const WORTH_A_LOOK: f64 = 1_000.0;

/// Softirq share of a nearly full CPU, and of a well used CPU.
const FULL: f64 = 0.5;
const USED: f64 = 0.2;

/// With fewer softirq ticks since boot, nothing is reported: one minute.
const A_MINUTE: u64 = 6_000;

/// Minimum share of time since boot in softirqs.
const OFTEN: f64 = 0.05;

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    if spread::usable_cpus(view.now).is_none_or(|cpus| cpus.len() < 2) {
        return None;
    }
    if view.before.is_some() { match_between_readings(view) } else { match_since_boot(view) }
}

fn match_between_readings(view: &HostView<'_>) -> Option<RuleMatch> {
    let rates = load::packet_rates(view)?;
    let (cpu, rate) = rates.iter().max_by(|left, right| left.1.total_cmp(right.1))?;
    let share = rate / rates.values().sum::<f64>();
    if *rate < WORTH_A_LOOK || share < MOST {
        return None;
    }
    let softirq_share = load::time_shares(view).and_then(|shares| shares.get(cpu).copied());
    let rps_interface = find_rps_interface(view, *cpu);
    let severity = match softirq_share {
        // RPS takes packets from CPUs whose sockets wait for them.
        Some(softirq_share) if rps_interface.is_some() && softirq_share >= FULL => Severity::High,
        _ if rps_interface.is_some() => Severity::Medium,
        // On two CPUs, one for packets and one for the service is a good use.
        _ if rates.len() < 3 => Severity::Note,
        Some(softirq_share) if softirq_share >= FULL => Severity::High,
        Some(softirq_share) if softirq_share >= USED => Severity::Medium,
        _ => Severity::Note,
    };
    let other_cpus = match rates.len() - 1 {
        1 => "the other CPU".to_owned(),
        count => format!("{count} other CPUs"),
    };
    let title = format!(
        "CPU {cpu} processes {:.0} % of {} packets/s, {other_cpus} the rest",
        share * 100.0,
        amount::rate(rates.values().sum()),
    );
    let rule_match = RuleMatch::new(severity, title)
        .evidence_by("packets/s by CPU", super::rounded_rates(&rates), "/proc/net/softnet_stat")
        .evidence_if(format!("share of CPU {cpu}'s time in softirqs"), softirq_share, "/proc/stat");
    Some(match rps_interface {
        Some(interface) => add_rps_changes(view, rule_match, interface),
        None => rule_match,
    })
}

/// An interface with several receive queues whose RPS has only this CPU, while the sockets of a
/// group are chosen by CPU: then one socket of the group gets all packets.
fn find_rps_interface<'a>(view: &HostView<'a>, cpu: u32) -> Option<&'a str> {
    let is_by_cpu = |service: &ServiceSockets| {
        service.sockets.len() > 1
            && matches!(service.steering.value(), Some(Some(SteeringState::Cpu)))
            && view.matters(service)
    };
    if !view.udp_services().any(is_by_cpu) {
        return None;
    }
    let cpu_set = CpuSet::from_iter([cpu]);
    let uses_only_cpu = |interface: &str| {
        let queues = view.now.softirq.rps_queues(interface);
        queues.len() > 1 && queues.iter().all(|queue| queue.cpus.value() == Some(&cpu_set))
    };
    let interfaces = view.now.link.iter().map(|link| link.interface.as_str());
    interfaces.into_iter().find(|interface| uses_only_cpu(interface))
}

/// Queues whose interrupts have their own CPUs need no RPS. Other queues, such as those of veth,
/// get the CPUs in turn.
fn add_rps_changes(view: &HostView<'_>, rule_match: RuleMatch, interface: &str) -> RuleMatch {
    let path = view.now;
    let mut rule_match = rule_match;
    let queues = path.softirq.rps_queues(interface);
    for queue in queues {
        let cpus = queue.cpus.value().map(ToString::to_string);
        let file = format!("/sys/class/net/{interface}/queues/rx-{}/rps_cpus", queue.queue);
        rule_match = rule_match.evidence(format!("CPUs that RPS hands queue {} to", queue.queue), cpus, file);
    }
    let own_cpus: Option<BTreeMap<u32, u32>> = spread::settled_cpus(path, interface)
        .filter(|own_cpus| queues.iter().all(|queue| own_cpus.contains_key(&queue.queue)))
        .filter(|own_cpus| own_cpus.values().collect::<BTreeSet<_>>().len() > 1);
    let usable: Vec<u32> = spread::usable_cpus(path).iter().flat_map(CpuSet::iter).collect();
    for (queue, &cpu) in queues.iter().zip(usable.iter().cycle()) {
        let to = if own_cpus.is_some() { CpuSet::default() } else { CpuSet::from_iter([cpu]) };
        rule_match = super::with_rps(rule_match, path, interface, queue.queue, &to);
    }
    rule_match
}

/// Compares times, because packet counters wrap at 2^32.
fn match_since_boot(view: &HostView<'_>) -> Option<RuleMatch> {
    let ticks = load::ticks(view.now)?;
    let total_ticks: u64 = ticks.values().sum();
    let (cpu, most_ticks) = ticks.iter().max_by_key(|(_, ticks)| **ticks)?;
    let softirq_share = load::time_shares(view)?.get(cpu).copied()?;
    let share = *most_ticks as f64 / total_ticks.max(1) as f64;
    if ticks.len() < 3 || total_ticks < A_MINUTE || share < MOST || softirq_share < OFTEN {
        return None;
    }
    let title = format!(
        "Since boot CPU {cpu} spent {:.0} % of all time in softirqs, on {} CPUs",
        share * 100.0,
        ticks.len()
    );
    Some(
        RuleMatch::new(Severity::Low, title)
            .evidence_by("ticks in softirqs since boot, by CPU", ticks.clone(), "/proc/stat")
            .evidence(format!("share of CPU {cpu}'s time in softirqs"), softirq_share, "/proc/stat"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::irq::sample::{SampleMachine, path, softnet};
    use crate::stage::socket::sample::{host, later, service};

    /// A reading `seconds` after boot: packets and softirq ticks of each CPU.
    fn reading(seconds: u32, cpus: &[(u32, u32)]) -> PacketPath {
        let stat: String = cpus
            .iter()
            .enumerate()
            .map(|(cpu, (_, ticks))| {
                format!("cpu{cpu} 0 0 0 {} 0 0 {ticks} 0\n", (seconds * 100).saturating_sub(*ticks))
            })
            .collect();
        let stat = format!("cpu  0 0 0 0 0 0 0 0\n{stat}");
        let files = [("/proc/stat", stat.as_str())];
        let online = format!("0-{}", cpus.len() - 1);
        let mut path = path(&SampleMachine { nodes: &[&online], files: &files, ..SampleMachine::PLAIN });
        path.softirq.softnet = softnet(cpus.iter().map(|(packets, _)| [u64::from(*packets), 0, 0]));
        path.uptime_seconds = Known::Value(f64::from(seconds));
        path
    }

    fn matches_between(before: &[(u32, u32)], now: &[(u32, u32)]) -> Vec<RuleMatch> {
        RULE.twice(&reading(100, before), &reading(110, now))
    }

    #[test]
    fn a_cpu_with_most_packets_is_named_with_its_share() {
        let before = [(0xffff_ff00, 0), (0, 0), (0, 0), (0, 0)];
        let high = matches_between(&before, &[(899_744, 800), (50_000, 20), (50_000, 20), (0, 0)]);
        assert!(high[0].title.starts_with("CPU 0 processes 90 % of 100,000 packets/s"), "{high:?}");
        assert_eq!(high[0].severity, Severity::High);
        let medium = matches_between(&before, &[(899_744, 250), (50_000, 20), (50_000, 20), (0, 0)]);
        assert_eq!(medium[0].severity, Severity::Medium);
        let idle = matches_between(&before, &[(899_744, 10), (50_000, 2), (50_000, 2), (0, 0)]);
        assert_eq!(idle[0].severity, Severity::Note);
    }

    #[test]
    fn even_load_and_low_traffic_are_no_skew_and_two_cpus_a_note() {
        assert!(
            matches_between(&[(0, 0); 4], &[(90_000, 500), (80_000, 500), (90_000, 500), (9, 0)]).is_empty()
        );
        assert!(matches_between(&[(0, 0); 4], &[(9_000, 1), (80, 0), (9, 0), (9, 0)]).is_empty());
        assert!(matches_between(&[(0, 0); 4], &[(0, 0); 4]).is_empty());
        assert_eq!(matches_between(&[(0, 0); 2], &[(900_000, 900), (0, 0)])[0].severity, Severity::Note);
        assert!(matches_between(&[(0, 0)], &[(900_000, 900)]).is_empty());
    }

    #[test]
    fn rps_of_all_queues_to_one_cpu_is_medium_with_cpu_steering() {
        let cpu_steered_path = |packets: u32| {
            let mut path = host(&[0, 0]).with(service(2), Vec::new());
            path.service().steering = Known::Value(Some(SteeringState::Cpu));
            let softnet_reading = reading(0, &[(packets, 0), (0, 0)]);
            path.softirq.softnet = softnet_reading.softirq.softnet;
            path.machine.online = Known::Value((0..2).collect());
            path
        };
        let (before, mut now) = (cpu_steered_path(0), later(&cpu_steered_path(600_000)));
        let rule_match = RULE.twice(&before, &now).remove(0);
        let title = "CPU 0 processes 100 % of 60,000 packets/s, the other CPU the rest";
        assert_eq!(rule_match.summary(), (Severity::Medium, title));
        assert_eq!(
            rule_match.change_commands(),
            ["echo 00000002 > /sys/class/net/eth0/queues/rx-1/rps_cpus"]
        );
        now.service().steering = Known::Value(Some(SteeringState::Hash));
        assert_eq!(RULE.twice(&before, &now)[0].severity, Severity::Note);
    }

    #[test]
    fn skew_since_boot_is_reported_by_softirq_time_at_low_severity() {
        let matches = RULE.once(&reading(1_000, &[(0, 9_000), (0, 500), (0, 400), (0, 100)]));
        let title = "Since boot CPU 0 spent 90 % of all time in softirqs, on 4 CPUs";
        assert_eq!(matches[0].summary(), (Severity::Low, title));
        assert!(RULE.once(&reading(1_000, &[(0, 900), (0, 50), (0, 40), (0, 10)])).is_empty());
        assert!(RULE.once(&reading(1_000, &[(0, 9_000), (0, 500)])).is_empty());
    }
}
