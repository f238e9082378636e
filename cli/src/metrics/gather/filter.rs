//! Programs, netfilter's hooks, connection tracking; and what is lost there.

use std::collections::BTreeMap;

use linerate_host::PacketPath;
use linerate_host::stage::filter::ConntrackState;

use super::GatheredSamples;
use crate::metrics::families::{
    CONNTRACK_ENTRIES, CONNTRACK_EVENTS, CONNTRACK_LIMIT, FILTER_HOOKS, FILTER_PROGRAMS, LOST_PACKETS,
};

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    for item in &path.filter.interfaces {
        let interface = item.interface.as_str();
        if let Some(xdp) = item.xdp.value() {
            all.add_gauge(&FILTER_PROGRAMS, &[interface, "xdp"], f64::from(u8::from(xdp.is_some())));
        }
        if let Some(tc) = item.tc.value() {
            all.add_gauge(&FILTER_PROGRAMS, &[interface, "tc_ingress"], f64::from(tc.ingress));
            all.add_gauge(&FILTER_PROGRAMS, &[interface, "tc_egress"], f64::from(tc.egress));
        }
    }
    let mut hooks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for hook in path.filter.hooks.value().into_iter().flatten() {
        *hooks.entry((&hook.family, &hook.hook)).or_default() += 1;
    }
    for ((family, hook), functions) in hooks {
        all.add_integer_gauge(&FILTER_HOOKS, &[family, hook], functions);
    }
    if let Some(Some(conntrack)) = path.filter.conntrack.value() {
        of_conntrack(conntrack, all);
    }
}

fn of_conntrack(conntrack: &ConntrackState, all: &mut GatheredSamples) {
    if let Some(entries) = conntrack.count.value() {
        all.add_integer_gauge(&CONNTRACK_ENTRIES, &[], *entries);
    }
    if let Some(limit) = conntrack.max.value() {
        all.add_integer_gauge(&CONNTRACK_LIMIT, &[], *limit);
    }
    let Some(statistics) = conntrack.statistics.value() else { return };
    for (name, reason) in [("drop", "conntrack_full"), ("insert_failed", "conntrack_insert_failed")] {
        if let Some(count) = statistics.get(name) {
            all.add_counter(&LOST_PACKETS, &["filter", reason, "", ""], *count);
        }
    }
    for event in ["early_drop", "invalid"] {
        if let Some(count) = statistics.get(event) {
            all.add_counter(&CONNTRACK_EVENTS, &[event], *count);
        }
    }
}
