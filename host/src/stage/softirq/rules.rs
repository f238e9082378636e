//! Rules about packet processing.

mod backlog_drops;
mod livelock_risk;
mod rps_crosses_node;
mod rps_missing;
mod rps_on_sibling;
mod skew;
mod squeezed;

use std::collections::BTreeMap;

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch};
use crate::setting::{QueueDirection, Setting, SettingValue};
use crate::stage::PacketPath;

pub(super) const RULES: &[Rule] = &[
    rps_missing::RULE,
    rps_crosses_node::RULE,
    rps_on_sibling::RULE,
    skew::RULE,
    backlog_drops::RULE,
    squeezed::RULE,
    livelock_risk::RULE,
];

/// Adds a change of RPS of a receive queue, unless it is set already.
fn with_rps(matched: RuleMatch, path: &PacketPath, interface: &str, queue: u32, to: &CpuSet) -> RuleMatch {
    let now = path.softirq.rps_cpus(interface, queue);
    if now == Some(to) {
        return matched;
    }
    let setting =
        Setting::QueueCpus { interface: interface.to_owned(), direction: QueueDirection::Receive, queue };
    matched.change(
        setting,
        now.map(|cpus| SettingValue::new(cpus.to_mask())),
        SettingValue::new(to.to_mask()),
    )
}

/// Rates by CPU, as evidence.
fn rounded(rates: &BTreeMap<u32, f64>) -> impl Iterator<Item = (u32, f64)> {
    rates.iter().map(|(cpu, rate)| (*cpu, rate.round()))
}

fn with_sysctl(matched: RuleMatch, name: &str, from: u64, to: u64) -> RuleMatch {
    let setting = Setting::sysctl(format!("net.core.{name}"));
    matched.change(setting, Some(SettingValue::new(from.to_string())), SettingValue::new(to.to_string()))
}

fn sysctl(path: &PacketPath, name: &str) -> Option<u64> {
    path.softirq.sysctls.get(name)?.value().copied()
}

fn rps_files(interface: &str) -> String {
    format!("/sys/class/net/{interface}/queues/rx-*/rps_cpus")
}
