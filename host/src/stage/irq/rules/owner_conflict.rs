//! Several tools that set the affinity of the same interrupts.

use std::collections::BTreeSet;

use super::super::{IrqOwner, IrqVector};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::{HostView, PacketPath, spread};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "irq.owner-conflict",
    title: "Affinities are set by more than one",
    why: "irqbalance moves interrupts every ten seconds by load. An affinity set by a .link file, TuneD, a \
          cloud agent or an administrator stays only until irqbalance moves it. Packets then change CPUs \
          under load, away from the matching sockets, threads and transmit queues.",
    effect: "None while irqbalance leaves them alone. If it moves them, the gain of a careful placement is \
             lost.",
    published_ratio: None,
    source: "irqbalance(1), systemd.link(5); T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "all",
    remedy: "Decide for one owner. To place the NIC's interrupts manually or by another program, make \
             irqbalance leave them alone: --banirq for each. Interrupt numbers may change at the next boot; \
             a --policyscript that bans by device remains valid.",
    caveats: "Load on this host changes so much that a fixed placement would be wrong most of the time. On EC2 keep \
             irqbalance running and ban the NIC's interrupts only; Google's images come without it.",
    check: |view| check(view).into_iter().collect(),
};

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let path = view.now;
    let owners = path.irq.owners.value()?;
    let balancer = owners.iter().find(|owner| owner.name == "irqbalance")?;
    let movable_irqs: Vec<u32> = path
        .irq
        .interfaces
        .iter()
        .flat_map(|item| item.vectors.value().into_iter().flatten())
        .filter(|vector| vector.receive_queue.is_some() || vector.transmit_queue.is_some())
        .filter(|vector| !vector.is_managed())
        .map(|vector| vector.irq)
        .filter(|irq| !balancer.leaves_alone.contains(irq))
        .collect();
    if movable_irqs.is_empty() {
        return None;
    }
    let rivals: Vec<&IrqOwner> = owners.iter().filter(|owner| is_rival(owner, balancer)).collect();
    let rule_match = if rivals.is_empty() {
        match_manual_placement(path, balancer)?
    } else {
        match_rivals(balancer, &rivals, movable_irqs.len())
    };
    Some(super::super::owner::add_owners(rule_match, path, &movable_irqs))
}

fn is_rival(owner: &IrqOwner, balancer: &IrqOwner) -> bool {
    match owner.name.as_str() {
        "irqbalance" => false,
        // TuneD's profiles for isolated cores cooperate with an irqbalance that avoids these cores.
        "tuned" => !owner.how.contains("banned_cpus") && !balancer.how.contains("IRQBALANCE_BANNED_CPU"),
        _ => true,
    }
}

fn match_rivals(balancer: &IrqOwner, rivals: &[&IrqOwner], vectors: usize) -> RuleMatch {
    let names: BTreeSet<&str> = rivals.iter().map(|owner| owner.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let title = format!(
        "irqbalance ({}) may move {vectors} interrupts that {} {} too",
        balancer.pid.map_or_else(|| "running".to_owned(), |pid| format!("process {pid}")),
        names.join(" and "),
        if names.len() == 1 { "sets" } else { "set" },
    );
    rivals.iter().fold(RuleMatch::new(Severity::Low, title), |rule_match, owner| {
        rule_match.evidence(owner.name.clone(), owner.how.clone(), owner.read_from.clone())
    })
}

/// Finds interfaces whose vectors all follow their hints. irqbalance would not do this by itself.
fn match_manual_placement(path: &PacketPath, balancer: &IrqOwner) -> Option<RuleMatch> {
    if balancer.how.contains("hintpolicy")
        || balancer.how.contains("policyscript")
        || balancer.how.contains("-h ")
    {
        return None;
    }
    let follows_hints = |interface: &str| {
        let vectors = spread::receive_vectors(path, interface);
        let follows_hint =
            |vector: &&IrqVector| vector.hinted_cpu().is_some() && vector.hinted_cpu() == vector.cpu();
        let hinted_cpus: BTreeSet<u32> = vectors.values().filter_map(|vector| vector.hinted_cpu()).collect();
        hinted_cpus.len() > 1 && vectors.values().all(follows_hint)
    };
    let interfaces = path.irq.interfaces.iter().map(|item| item.interface.as_str());
    let placed_interfaces: Vec<&str> = interfaces.filter(|interface| follows_hints(interface)).collect();
    let title = match placed_interfaces.as_slice() {
        [] => return None,
        [interface] => format!(
            "The interrupts of {interface} are where its driver hints, and irqbalance runs and may move them"
        ),
        names => format!(
            "The interrupts of {} are where their drivers hint, and irqbalance runs and may move them",
            names.join(" and ")
        ),
    };
    Some(RuleMatch::new(Severity::Note, title))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::irq::sample::SampleMachine;

    const BALANCER: [(&str, &str); 2] =
        [("/proc/9/comm", "irqbalance\n"), ("/proc/9/cmdline", "/usr/sbin/irqbalance\0--foreground\0")];
    const LINK: (&str, &str) = ("/etc/systemd/network/10-nic.link", "[Link]\nIRQAffinityPolicy=spread\n");

    fn matches(files: &[(&str, &str)], hints: Option<&[u32]>) -> Vec<RuleMatch> {
        RULE.on(&SampleMachine { files, hints, ..SampleMachine::PLAIN })
    }

    #[test]
    fn irqbalance_and_a_link_file_conflict() {
        let rule_match = matches(&[BALANCER[0], BALANCER[1], LINK], None).remove(0);
        let title = "irqbalance (process 9) may move 4 interrupts that systemd .link sets too";
        assert_eq!(rule_match.summary(), (Severity::Low, title));
        assert_eq!(rule_match.evidence[0].value, "IRQAffinityPolicy=spread");
        assert_eq!(rule_match.evidence[0].read_from, LINK.0);
        assert_eq!(rule_match.evidence[1].value, "/usr/sbin/irqbalance --foreground");
        assert_eq!(
            rule_match.first_commands,
            ["echo 'IRQBALANCE_ARGS=\"--banirq=100 --banirq=101 --banirq=102 --banirq=103\"' \
              >> /etc/default/irqbalance && systemctl restart irqbalance"]
        );
    }

    #[test]
    fn a_single_owner_or_irqbalance_with_bans_or_exact_hints_is_no_conflict() {
        let exact_hints = ("/proc/9/cmdline", "irqbalance\0--hintpolicy=exact\0");
        let with_bans = ("/proc/9/cmdline", "irqbalance\0--banirq=100\0--banirq=101\0--banirq=102,103\0");
        assert!(matches(&[LINK], Some(&[0, 1, 2, 3])).is_empty());
        assert!(matches(&BALANCER, None).is_empty());
        assert!(matches(&[BALANCER[0], exact_hints], Some(&[0, 1, 2, 3])).is_empty());
        assert!(matches(&[BALANCER[0], with_bans, LINK], None).is_empty());
    }

    #[test]
    fn tuned_conflicts_with_irqbalance_unless_its_cpus_are_banned() {
        let tuned = [
            ("/proc/10/comm", "tuned\n"),
            ("/etc/tuned/active_profile", "realtime\n"),
            ("/etc/tuned/realtime/tuned.conf", "[scheduler]\nisolated_cores=2-3\n"),
        ];
        let mut files = vec![BALANCER[0], BALANCER[1]];
        files.extend(tuned);
        assert_eq!(
            matches(&files, None)[0].title,
            "irqbalance (process 9) may move 4 interrupts that tuned sets too"
        );
        files.push(("/etc/sysconfig/irqbalance", "IRQBALANCE_BANNED_CPULIST=2-3\n"));
        assert!(matches(&files, None).is_empty());
    }
}
