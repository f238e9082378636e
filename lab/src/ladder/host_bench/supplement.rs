//! What a step sets where doctor sees no need of it, so that measuring can tell whether there is.

use linerate_host::setting::{Offload, QueueDirection};
use linerate_host::{CpuSet, Host, Setting, SettingValue};
use linerate_tune::plan::{ChangeImpact, PlannedChange};
use linerate_tune::profile::FindingPolicy;
use linerate_tune::{TunePlan, TuneProfile};

use crate::ladder::lab_bench::senders;

/// Adds transmit queues to CPUs, where the plan has nothing to say of them and none has CPUs yet: without interrupts, as of
/// a virtual interface, nothing tells which queue a CPU is nearest to.
pub(crate) fn transmit(plan: &mut TunePlan, host: &Host, interface: &str, queues: u32, cpus: &[u32]) {
    let is_transmit =
        |setting: &Setting| matches!(setting, Setting::QueueCpus { direction: QueueDirection::Transmit, .. });
    let is_left = plan.left.iter().any(|left| left.finding.starts_with("transmit.xps-"));
    if queues < 2 || is_left || plan.changes.iter().any(|change| is_transmit(&change.setting)) {
        return;
    }
    let changes: Option<Vec<PlannedChange>> =
        (0..queues).map(|queue| one(host, interface, queue, &senders(cpus, queue, queues))).collect();
    // With fewer CPUs than queues some have none, before and after.
    let differs = |change: &PlannedChange| !change.setting.same(&change.from, &change.to);
    plan.changes.extend(changes.into_iter().flatten().filter(differs));
}

/// Adds that GRO is switched off, where the profile is for that and the plan says nothing of it, as of a virtual interface.
pub(crate) fn offload(plan: &mut TunePlan, host: &Host, interface: &str, profile: &TuneProfile) {
    let setting = Setting::Offload { interface: interface.to_owned(), offload: Offload::GenericReceive };
    let name = setting.to_string();
    let is_told = plan.changes.iter().any(|change| change.setting == setting)
        || plan.left.iter().any(|left| left.title.starts_with(&name));
    let is_wanted = matches!(profile.verdict("link.gro-for-udp"), FindingPolicy::Fix(_));
    match setting.read(host) {
        Ok(from) if from.as_str() == "on" && is_wanted && !is_told => plan.changes.push(change(
            setting,
            from,
            SettingValue::new("off"),
            "Datagrams are merged only for sockets that ask for it, so that for others each packet is looked at in vain.",
            "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
        )),
        _ => {}
    }
}

/// The change of one queue; none where it cannot be read, or has CPUs.
fn one(host: &Host, interface: &str, queue: u32, cpus: &CpuSet) -> Option<PlannedChange> {
    let direction = QueueDirection::Transmit;
    let setting = Setting::QueueCpus { interface: interface.to_owned(), direction, queue };
    let from = setting.read(host).ok()?;
    CpuSet::from_mask(from.as_str()).ok().filter(CpuSet::is_empty)?;
    Some(change(
        setting,
        from,
        SettingValue::new(cpus.to_mask()),
        "Each CPU sends by a queue of its own instead of one chosen by flow hash.",
        "Documentation/networking/scaling.rst, XPS",
    ))
}

fn change(setting: Setting, from: SettingValue, to: SettingValue, why: &str, source: &str) -> PlannedChange {
    PlannedChange {
        setting,
        from,
        to,
        why: why.to_owned(),
        findings: Vec::new(),
        effect: None,
        source: Some(source.to_owned()),
        risk: None,
        interrupts: ChangeImpact::Nothing,
        claims: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_tune::plan::SCHEMA;

    fn added(masks: [&str; 2], cpus: &[u32]) -> Vec<String> {
        let file = |queue: usize| format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus");
        let host = Host::scripted((0..2).map(|queue| (file(queue), masks[queue].to_owned())));
        let mut plan = TunePlan {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            read_unix_seconds: None,
            goal: String::new(),
            devices: Vec::new(),
            cpus: cpus.to_vec(),
            layouts: Vec::new(),
            agreements: Vec::new(),
            changes: Vec::new(),
            target: Vec::new(),
            held_back: Vec::new(),
            left: Vec::new(),
        };
        transmit(&mut plan, &host, "eth0", 2, cpus);
        plan.changes.iter().map(|change| change.to.to_string()).collect()
    }

    #[test]
    fn every_cpu_gets_a_queue_where_none_has_any() {
        assert_eq!(added(["0\n", "00\n"], &[0, 1, 2]), ["00000005", "00000002"]);
    }

    #[test]
    fn a_queue_without_a_cpu_is_no_change() {
        assert_eq!(added(["0\n", "0\n"], &[3]), ["00000008"]);
    }

    #[test]
    fn what_somebody_set_is_left() {
        assert!(added(["0\n", "2\n"], &[0, 1]).is_empty());
    }
}
