//! Reads the IP layer.

use super::{InterfaceRoute, RouteState, conf, early_demux, number, snmp};
use crate::{Host, Known};

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
    use crate::stage::route::conf_name;

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
