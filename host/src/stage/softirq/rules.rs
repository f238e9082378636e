//! Rules about packet processing.

pub(in crate::stage) mod backlog_drops;
pub(in crate::stage) mod livelock_risk;
pub(in crate::stage) mod rps_crosses_node;
pub(in crate::stage) mod rps_missing;
pub(in crate::stage) mod rps_on_sibling;
pub(in crate::stage) mod skew;
pub(in crate::stage) mod squeezed;

use std::collections::BTreeMap;

use crate::CpuSet;
use crate::finding::RuleMatch;
use crate::setting::{QueueDirection, Setting};
use crate::stage::{HostView, PacketPath};

fn check_interfaces(
    view: &HostView<'_>,
    match_interface: fn(&PacketPath, &str) -> Option<RuleMatch>,
) -> Vec<RuleMatch> {
    view.now.softirq.rps.iter().filter_map(|item| match_interface(view.now, &item.interface)).collect()
}

/// Adds a change of RPS of a receive queue, unless it already has these CPUs.
fn with_rps(rule_match: RuleMatch, path: &PacketPath, interface: &str, queue: u32, to: &CpuSet) -> RuleMatch {
    let current_cpus = path.softirq.rps_cpus(interface, queue);
    if current_cpus == Some(to) {
        return rule_match;
    }
    let setting =
        Setting::QueueCpus { interface: interface.to_owned(), direction: QueueDirection::Receive, queue };
    rule_match.change(setting, current_cpus.map(CpuSet::to_mask), to.to_mask())
}

/// Rounded rates by CPU, for evidence.
fn rounded_rates(rates: &BTreeMap<u32, f64>) -> impl Iterator<Item = (u32, f64)> {
    rates.iter().map(|(cpu, rate)| (*cpu, rate.round()))
}

fn with_sysctl(rule_match: RuleMatch, name: &str, from: u64, to: u64) -> RuleMatch {
    rule_match.change(Setting::sysctl(format!("net.core.{name}")), Some(from), to)
}

fn sysctl(path: &PacketPath, name: &str) -> Option<u64> {
    path.softirq.sysctls.get(name)?.value().copied()
}

fn rps_files(interface: &str) -> String {
    format!("/sys/class/net/{interface}/queues/rx-*/rps_cpus")
}
