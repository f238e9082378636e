//! What a look at the cost of packets comes to: one sentence, and the victims as they are asked for.

use linerate_trace::cost::{CostReport, CpuCost, VictimGroup};

use super::format::{UNKNOWN, percent};
use crate::command::cost::VictimGrouping;

/// Packets that take less than this of every CPU take nothing to speak of.
const NOTHING: f64 = 0.005;

/// Somebody whom packets took time from.
pub(crate) struct TopVictim {
    /// As it is known: `openssl (812)`, or the path of a cgroup.
    pub(crate) name: String,
    pub(crate) group: VictimGroup,
}

/// A part as a share of a whole; nothing of nothing.
pub(crate) fn share(part: u64, whole: f64) -> f64 {
    if whole > 0.0 { part as f64 / whole } else { 0.0 }
}

/// Time that passed, ns.
pub(crate) fn wall_ns(cost: &CostReport) -> f64 {
    cost.seconds * 1e9
}

/// Those whom packets took time from, who lost most first, then who ran most.
pub(crate) fn top_victims(cost: &CostReport, by: VictimGrouping) -> Vec<TopVictim> {
    let mut losers: Vec<TopVictim> = match by {
        VictimGrouping::Process => cost
            .by_process()
            .into_iter()
            .map(|(pid, comm, group)| TopVictim { name: format!("{comm} ({pid})"), group })
            .collect(),
        VictimGrouping::Cgroup => {
            cost.by_cgroup().into_iter().map(|(name, group)| TopVictim { name, group }).collect()
        }
        VictimGrouping::Thread => cost
            .victims
            .iter()
            .map(|victim| TopVictim {
                name: format!("{} ({})", victim.comm, victim.tid),
                group: VictimGroup {
                    threads: 1,
                    on_cpu_ns: victim.on_cpu_ns,
                    taken_ns: victim.taken_ns,
                    taken_in_own_calls_ns: victim.taken_in_own_calls_ns.value().copied().unwrap_or(0),
                    taken_other_ns: victim.taken_other_ns,
                    displaced_ns: victim.displaced_ns,
                    accounted_ns: victim.accounted_ns.value().copied().unwrap_or(0),
                    unaccounted_threads: usize::from(victim.accounted_ns.value().is_none()),
                },
            })
            .collect(),
    };
    losers.sort_by_key(|loser| std::cmp::Reverse((loser.group.lost_ns(), loser.group.on_cpu_ns)));
    losers
}

/// What top says they had; nothing where it says so of none of them.
pub(crate) fn accounted(group: &VictimGroup) -> Option<u64> {
    (group.unaccounted_threads < group.threads).then_some(group.accounted_ns)
}

/// The same as a share of a CPU, and that it is more where it is not known of all of them.
pub(crate) fn accounted_share(group: &VictimGroup, wall: f64) -> String {
    let Some(told) = accounted(group) else { return UNKNOWN.to_owned() };
    let more = if group.unaccounted_threads > 0 { "≥" } else { "" };
    format!("{more}{}", percent(share(told, wall)))
}

/// The CPU of which packets took most.
pub(crate) fn most_affected_cpu(cost: &CostReport) -> Option<&CpuCost> {
    cost.cpus.iter().max_by(|one, other| packets_share(one).total_cmp(&packets_share(other)))
}

/// What packets took of a CPU, 0 to 1.
pub(crate) fn packets_share(cpu: &CpuCost) -> f64 {
    share(cpu.packets_ns(), cpu.elapsed_ns as f64)
}

/// The sentence a reader begins with.
pub(crate) fn verdict(cost: &CostReport, by: VictimGrouping) -> String {
    let Some(cpu) = most_affected_cpu(cost) else { return "Packets: no CPU was looked at.".to_owned() };
    let (taken, number) = (packets_share(cpu), cpu.cpu);
    if taken == 0.0 {
        return "Packets took nothing: none came to these CPUs.".to_owned();
    }
    if taken < NOTHING {
        return format!("Packets took next to nothing: {} of CPU {number}, which had most.", percent(taken));
    }
    format!("Packets took {} of CPU {number}, {}.", percent(taken), victim_clause(cost, by))
}

fn victim_clause(cost: &CostReport, by: VictimGrouping) -> String {
    let all = cost.all_cpus();
    let whole = all.packets_ns() as f64;
    let losers = top_victims(cost, by);
    let most = losers.first().map_or(0, |loser| loser.group.lost_ns());
    // What these threads had instead of another is that one's loss.
    let displaced: u64 = losers.iter().map(|loser| loser.group.displaced_ns).sum();
    let kernel = (all.in_ksoftirqd_ns + all.in_threads_ns).saturating_sub(displaced);
    let words = |part: u64| if share(part, whole) > 0.5 { "most" } else { "the largest part" };
    if all.from_idle_ns >= most && all.from_idle_ns >= kernel {
        return format!("{} of it in idle time", words(all.from_idle_ns));
    }
    if kernel >= most {
        let who = if all.in_threads_ns > all.in_ksoftirqd_ns { "threads of NAPI" } else { "ksoftirqd" };
        return format!("{} of it in {who}", words(kernel));
    }
    let Some(loser) = losers.first() else { return "from nobody".to_owned() };
    let wall = wall_ns(cost);
    let had = percent(share(loser.group.had_ns(), wall));
    match accounted(&loser.group) {
        Some(_) => {
            let says = accounted_share(&loser.group, wall);
            format!("{} from {}: top says {says}, it had {had}", words(most), loser.name)
        }
        None => format!("{} from {}: it had {had}", words(most), loser.name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up_cost::cost;
    use super::*;

    #[test]
    fn the_verdict_names_who_lost_most_and_what_top_says() {
        let told = "Packets took 40 % of CPU 2, most from openssl (812): top says 99 %, it had 59 %.";
        assert_eq!(verdict(&cost(), VictimGrouping::Process), told);
        let mut idle = cost();
        idle.victims.clear();
        for cpu in &mut idle.cpus {
            (cpu.from_idle_ns, cpu.in_ksoftirqd_ns) = (cpu.packets_ns(), 0);
        }
        assert_eq!(
            verdict(&idle, VictimGrouping::Process),
            "Packets took 40 % of CPU 2, most of it in idle time."
        );
        for cpu in &mut idle.cpus {
            (cpu.net_rx_ns, cpu.net_tx_ns, cpu.nic_irq_ns) = (10_000_000, 0, 0);
        }
        let told = "Packets took next to nothing: 0.10 % of CPU 2, which had most.";
        assert_eq!(verdict(&idle, VictimGrouping::Process), told);
    }

    #[test]
    fn threads_of_a_process_are_one_loser() {
        let names = |by| top_victims(&cost(), by).into_iter().map(|loser| loser.name).collect::<Vec<_>>();
        assert_eq!(names(VictimGrouping::Process), ["openssl (812)", "nsd (900)"]);
        assert_eq!(names(VictimGrouping::Thread), ["openssl (812)", "nsd (900)", "nsd (901)"]);
        assert_eq!(
            names(VictimGrouping::Cgroup),
            ["/system.slice/openssl.service", "/system.slice/nsd.service"]
        );
        let threads = top_victims(&cost(), VictimGrouping::Thread);
        assert_eq!(accounted(&threads[1].group), Some(1_990_000_000));
        assert_eq!(accounted(&threads[2].group), None);
    }
}
