//! Reads the IP layer.

use super::{InterfaceRoute, RouteState, conf_path, early_demux, read_number, snmp};
use crate::{Host, Known};

impl RouteState {
    pub fn observe(host: &Host, interfaces: &[&str]) -> Self {
        let rp_filter_all = read_number(host, &conf_path("all", "rp_filter"));
        let accept_all = read_number(host, &conf_path("all", "accept_local"));
        let route = |name: &&str| {
            let own_filter = read_number(host, &conf_path(name, "rp_filter"));
            let own_accept = read_number(host, &conf_path(name, "accept_local"));
            InterfaceRoute {
                interface: (*name).to_owned(),
                rp_filter: combine(&rp_filter_all, &own_filter, u32::max),
                rp_filter_own: own_filter,
                accept_local: combine(&accept_all, &own_accept, |all, own| (all | own != 0).into())
                    .map(|value| value != 0),
            }
        };
        Self {
            interfaces: interfaces.iter().map(route).collect(),
            rp_filter_all: rp_filter_all.clone(),
            ip_early_demux: read_number(host, "/proc/sys/net/ipv4/ip_early_demux").map(|value| value != 0),
            udp_early_demux: early_demux::read_udp_early_demux(host),
            snmp: snmp::read_table(host, snmp::SNMP),
            netstat: snmp::read_table(host, snmp::NETSTAT),
            snmp6: snmp::read_table6(host),
        }
    }
}

fn combine(left: &Known<u32>, right: &Known<u32>, operation: impl Fn(u32, u32) -> u32) -> Known<u32> {
    match (left, right) {
        (Known::Value(left), Known::Value(right)) => Known::Value(operation(*left, *right)),
        (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::unknown(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::route::conf_name;

    #[test]
    fn effective_settings_combine_conf_all_and_the_interface() {
        let host = Host::scripted([
            (conf_path("all", "rp_filter"), "2\n"),
            (conf_path("all", "accept_local"), "0\n"),
            (conf_path("eth0.5", "rp_filter"), "1\n"),
            (conf_path("eth0.5", "accept_local"), "1\n"),
            ("/proc/sys/net/ipv4/ip_early_demux".to_owned(), "1\n"),
        ]);
        let route = RouteState::observe(&host, &["eth0.5", "gone"]);
        assert_eq!(route.interfaces[0].rp_filter, Known::Value(2));
        assert_eq!(route.interfaces[0].rp_filter_own, Known::Value(1));
        assert_eq!(route.interfaces[0].accept_local, Known::Value(true));
        assert!(
            route.interfaces[1]
                .rp_filter
                .why()
                .is_some_and(|why| why.contains(&conf_path("gone", "rp_filter")))
        );
        assert_eq!(route.ip_early_demux, Known::Value(true));
        assert_eq!(conf_name("eth0.5", "rp_filter"), "net.ipv4.conf.eth0/5.rp_filter");
    }

    #[test]
    fn malformed_rp_filter_is_unknown_and_names_the_file() {
        let host = Host::scripted([(conf_path("all", "rp_filter"), "on\n")]);
        let route = RouteState::observe(&host, &[]);
        assert_eq!(
            route.rp_filter_all.why(),
            Some("/proc/sys/net/ipv4/conf/all/rp_filter: 'on' is no number")
        );
    }
}
