//! Steal time of the hypervisor.

use super::{CpuTimes, proc_stat};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;

/// With fewer ticks, a share has no meaning: one second of one CPU.
const FEWEST_TICKS: u64 = 100;

const NOTABLE: f64 = 0.01;
const HEAVY: f64 = 0.10;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "machine.steal",
    title: "The hypervisor takes CPU time",
    why: "Steal is time in which a virtual CPU had work and the hypervisor ran something else. Packets wait in the \
          ring meanwhile, and are lost when it is full; a measurement during that time is not of the service alone.",
    effect: "At least the share of steal, and losses at peaks, because steal comes in pieces of \
             milliseconds.",
    published_ratio: None,
    source: "proc(5), /proc/stat",
    kernels: "all; the hypervisor must report it (KVM and Xen do)",
    remedy: "Nothing on this host fixes it: ask for dedicated CPUs, a machine type without CPU credits, or \
             fewer virtual CPUs than the physical host has free.",
    caveats: "The time was taken while the service was idle.",
    check: |view| check(view).into_iter().collect(),
};

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let now = view.now.machine.cpu_times.value()?;
    let before = view.before.and_then(|before| before.machine.cpu_times.value());
    let cpu_ticks: Vec<(u32, u64, u64)> = now
        .iter()
        .filter_map(|time| {
            let earlier = match before {
                Some(before) => Some(before.iter().find(|earlier| earlier.cpu == time.cpu)?),
                None => None,
            };
            let growth = |part: fn(&CpuTimes) -> u64| part(time).checked_sub(earlier.map_or(0, part));
            Some((time.cpu, growth(CpuTimes::total)?, growth(|time| time.steal)?))
        })
        .collect();
    let total: u64 = cpu_ticks.iter().map(|(_, total, _)| total).sum();
    let steal: u64 = cpu_ticks.iter().map(|(.., steal)| steal).sum();
    let share = share(steal, total);
    if total < FEWEST_TICKS || share <= NOTABLE {
        return None;
    }
    let (when, severity) = match (before.is_some(), share > HEAVY) {
        (true, true) => ("between the readings", Severity::High),
        (true, false) => ("between the readings", Severity::Medium),
        // A sum since boot does not show whether the hypervisor still takes time.
        (false, true) => ("since boot", Severity::Medium),
        (false, false) => ("since boot", Severity::Low),
    };
    let title = format!("The hypervisor took {:.1} % of the CPU time {when}", share * 100.0);
    let mut rule_match = RuleMatch::new(severity, title).evidence(
        format!("ticks of steal, of {total} on all CPUs, {when}"),
        steal,
        proc_stat::PATH,
    );
    let worst_cpu = cpu_ticks
        .iter()
        .max_by(|left, right| self::share(left.2, left.1).total_cmp(&self::share(right.2, right.1)));
    if let Some((cpu, total, steal)) = worst_cpu.filter(|_| cpu_ticks.len() > 1) {
        rule_match =
            rule_match.evidence(format!("ticks of steal on CPU {cpu}, of {total}"), *steal, proc_stat::PATH);
    }
    Some(rule_match)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;

    fn reading(stat: &str) -> PacketPath {
        PacketPath::scripted([("/proc/stat", stat)])
    }

    #[test]
    fn current_steal_outweighs_steal_since_boot() {
        let before = reading("cpu0 100 0 0 900 0 0 0 0\ncpu1 100 0 0 900 0 0 0 0\n");
        let now = reading("cpu0 150 0 0 930 0 0 0 20\ncpu1 150 0 0 950 0 0 0 0\n");
        let matches = RULE.twice(&before, &now);
        let title = "The hypervisor took 10.0 % of the CPU time between the readings";
        assert_eq!(matches[0].summary(), (Severity::Medium, title));
        assert_eq!(matches[0].evidence[1].what, "ticks of steal on CPU 0, of 100");
        assert_eq!(matches[0].evidence[1].value, 20);
        // The same steal is 0.9 % of the time since boot.
        assert!(RULE.once(&now).is_empty());
        let heavy = reading("cpu0 0 0 0 800 0 0 0 200\n");
        assert_eq!(RULE.once(&heavy)[0].severity, Severity::Medium);
        assert!(RULE.once(&heavy)[0].title.ends_with("since boot"));
    }

    #[test]
    fn absent_steal_short_uptime_and_malformed_stat_are_not_reported() {
        let before = reading("cpu0 100 0 0 900 0 0 0 50\n");
        let now = reading("cpu0 150 0 0 950 0 0 0 50\n");
        assert!(RULE.twice(&before, &now).is_empty());
        assert!(RULE.once(&reading("cpu0 0 0 0 10 0 0 0 5\n")).is_empty());
        assert!(RULE.once(&reading("garbage\n")).is_empty());
    }

    #[test]
    fn a_cpu_with_reset_counters_is_excluded_from_steal() {
        let before = reading("cpu0 100 0 0 900 0 0 0 0\ncpu1 500 0 0 900 0 0 0 800\n");
        let now = reading("cpu0 200 0 0 900 0 0 0 0\ncpu1 1 0 0 1 0 0 0 1\n");
        assert!(RULE.twice(&before, &now).is_empty());
    }
}
