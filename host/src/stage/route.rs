//! The IP layer: reverse-path filter, early demux, and counters.

pub(super) mod early_demux;
mod observe;
pub(super) mod reverse_path;
pub(super) mod snmp;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Known;

pub use snmp::{parse_snmp, parse_snmp6};

#[derive(Debug, Clone, Serialize)]
pub struct RouteState {
    /// The observed interfaces; instead of the port of a bond or bridge, the bond or bridge, on
    /// which its packets enter the IP layer.
    pub interfaces: Vec<InterfaceRoute>,
    /// `rp_filter` of `all`: the larger of this and the interface's own is in effect.
    pub rp_filter_all: Known<u32>,
    /// `rp_filter` of `default` and of the interfaces that are not in `interfaces`, without the
    /// loopback. Empty if that of `all` is 0.
    pub rp_filter_others: Known<BTreeMap<String, u32>>,
    pub ip_early_demux: Known<bool>,
    /// `None` before Linux 4.12.
    pub udp_early_demux: Known<Option<bool>>,
    /// `/proc/net/snmp`, such as `Udp.RcvbufErrors`, without negative values.
    pub snmp: Known<BTreeMap<String, u64>>,
    /// `/proc/net/netstat`, such as `IpExt.InNoRoutes`.
    pub netstat: Known<BTreeMap<String, u64>>,
    /// `/proc/net/snmp6`, such as `Udp6RcvbufErrors`; `None` without IPv6.
    pub snmp6: Known<Option<BTreeMap<String, u64>>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct InterfaceRoute {
    pub interface: String,
    /// The effective value: the larger of `all` and the interface's own (ip-sysctl): 0 off, 1
    /// strict, 2 loose.
    pub rp_filter: Known<u32>,
    pub rp_filter_own: Known<u32>,
    /// Set in `all` or the interface's own.
    pub accept_local: Known<bool>,
}

impl RouteState {
    /// A counter of `/proc/net/snmp`, `netstat` or `snmp6`, such as `Udp.RcvbufErrors`.
    pub fn snmp(&self, name: &str) -> Option<u64> {
        let snmp6 = self.snmp6.value().and_then(Option::as_ref);
        let tables = [self.snmp.value(), self.netstat.value(), snmp6];
        tables.into_iter().flatten().find_map(|table| table.get(name)).copied()
    }

    /// The sum of the known counters among these; `None` if all are unknown.
    pub(in crate::stage) fn snmp_sum(&self, names: &[&str]) -> Option<u64> {
        names.iter().filter_map(|name| self.snmp(name)).reduce(u64::saturating_add)
    }
}

fn conf_path(interface: &str, setting: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{interface}/{setting}")
}

/// The `sysctl` name of an interface's setting; a dot in the interface's name becomes a slash.
fn conf_name(interface: &str, setting: &str) -> String {
    format!("net.ipv4.conf.{}.{setting}", interface.replace('.', "/"))
}
