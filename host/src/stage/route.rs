//! The IP layer: reverse-path filter, early demux, and counters.

mod early_demux;
mod reverse_path;
mod snmp;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{StageInfo, StageName};
use crate::finding::Rule;
use crate::{Host, Known};

pub(crate) use snmp::{pairs_of_lines, words};

pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Route,
    explain: "The kernel looks up the route of each packet; with source validation it also looks up the \
              route back to its source. Early demux looks for a connected socket first, to save the lookup.",
    rules: RULES,
    counters: snmp::counters,
};

const RULES: &[Rule] = &[reverse_path::VALIDATION, reverse_path::DROPS, early_demux::RULE];

#[derive(Debug, Clone, Serialize)]
pub struct RouteState {
    pub interfaces: Vec<InterfaceRoute>,
    /// `rp_filter` of `all`: the larger of this and the interface's own is in effect.
    pub rp_filter_all: Known<u32>,
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
    pub fn observe(host: &Host, interfaces: &[&str]) -> Self {
        let rp_filter_all = number(host, &conf("all", "rp_filter"));
        let accept_all = number(host, &conf("all", "accept_local"));
        let route = |name: &&str| {
            let own = number(host, &conf(name, "rp_filter"));
            let accept = number(host, &conf(name, "accept_local"));
            InterfaceRoute {
                interface: (*name).to_owned(),
                rp_filter: both(&rp_filter_all, &own, u32::max),
                rp_filter_own: own,
                accept_local: both(&accept_all, &accept, |all, own| (all | own != 0).into())
                    .map(|accepted| accepted != 0),
            }
        };
        Self {
            interfaces: interfaces.iter().map(route).collect(),
            rp_filter_all: rp_filter_all.clone(),
            ip_early_demux: number(host, "/proc/sys/net/ipv4/ip_early_demux").map(|on| on != 0),
            udp_early_demux: early_demux::of_udp(host),
            snmp: snmp::table(host, snmp::SNMP),
            netstat: snmp::table(host, snmp::NETSTAT),
            snmp6: snmp::table6(host),
        }
    }

    /// From `/proc/net/snmp`, `netstat` or `snmp6`, such as `Udp.RcvbufErrors`.
    pub fn snmp(&self, name: &str) -> Option<u64> {
        let snmp6 = self.snmp6.value().and_then(Option::as_ref);
        let tables = [self.snmp.value(), self.netstat.value(), snmp6];
        tables.into_iter().flatten().find_map(|table| table.get(name)).copied()
    }
}

fn conf(interface: &str, setting: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{interface}/{setting}")
}

/// The `sysctl` name of an interface's setting; a dot in the interface's name becomes a slash.
fn conf_name(interface: &str, setting: &str) -> String {
    format!("net.ipv4.conf.{}.{setting}", interface.replace('.', "/"))
}

fn number(host: &Host, path: &str) -> Known<u32> {
    match host.read(path) {
        Ok(text) => text
            .trim()
            .parse()
            .map_or_else(|_| Known::unknown(format!("{path}: '{}' is no number", text.trim())), Known::Value),
        Err(error) => Known::unknown(error.to_string()),
    }
}

fn both(one: &Known<u32>, other: &Known<u32>, of: impl Fn(u32, u32) -> u32) -> Known<u32> {
    match (one, other) {
        (Known::Value(one), Known::Value(other)) => Known::Value(of(*one, *other)),
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::unknown(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_effect_is_of_all_and_of_the_interface() {
        let host = Host::scripted([
            (conf("all", "rp_filter"), "2\n"),
            (conf("all", "accept_local"), "0\n"),
            (conf("eth0.5", "rp_filter"), "1\n"),
            (conf("eth0.5", "accept_local"), "1\n"),
            ("/proc/sys/net/ipv4/ip_early_demux".to_owned(), "1\n"),
        ]);
        let route = RouteState::observe(&host, &["eth0.5", "gone"]);
        assert_eq!(route.interfaces[0].rp_filter, Known::Value(2));
        assert_eq!(route.interfaces[0].rp_filter_own, Known::Value(1));
        assert_eq!(route.interfaces[0].accept_local, Known::Value(true));
        assert!(
            route.interfaces[1].rp_filter.why().is_some_and(|why| why.contains(&conf("gone", "rp_filter")))
        );
        assert_eq!(route.ip_early_demux, Known::Value(true));
        assert_eq!(conf_name("eth0.5", "rp_filter"), "net.ipv4.conf.eth0/5.rp_filter");
    }

    #[test]
    fn a_garbled_setting_is_unknown() {
        let host = Host::scripted([(conf("all", "rp_filter"), "on\n")]);
        let route = RouteState::observe(&host, &[]);
        assert_eq!(
            route.rp_filter_all.why(),
            Some("/proc/sys/net/ipv4/conf/all/rp_filter: 'on' is no number")
        );
    }
}
