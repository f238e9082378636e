//! Reads the IP layer.

use super::{InterfaceRoute, RouteState, conf_path, early_demux, snmp};
use crate::known::{UnknownReason, number};
use crate::{Host, Known};

impl RouteState {
    pub fn observe(host: &Host, interfaces: &[&str]) -> Self {
        let rp_filter_all = host.read_known(&conf_path("all", "rp_filter"), number);
        let accept_all = host.read_known(&conf_path("all", "accept_local"), number);
        let route = |name: &&str| {
            let own_filter = host.read_known(&conf_path(name, "rp_filter"), number);
            let own_accept = host.read_known(&conf_path(name, "accept_local"), number);
            InterfaceRoute {
                interface: (*name).to_owned(),
                rp_filter: combine(&rp_filter_all, &own_filter, u32::max).into(),
                rp_filter_own: own_filter,
                accept_local: combine(&accept_all, &own_accept, u32::max).map(|value| value != 0).into(),
            }
        };
        Self {
            interfaces: interfaces.iter().map(route).collect(),
            rp_filter_all: rp_filter_all.clone(),
            ip_early_demux: host.read_known("/proc/sys/net/ipv4/ip_early_demux", is_on),
            udp_early_demux: host.read_optional(early_demux::UDP_PATH, is_on),
            snmp: host.read_known(snmp::SNMP, snmp::parse_snmp),
            netstat: host.read_known(snmp::NETSTAT, snmp::parse_snmp),
            snmp6: host.read_optional(snmp::SNMP6, snmp::parse_snmp6),
        }
    }
}

fn is_on(text: &str) -> Result<bool, String> {
    number(text).map(|value: u32| value != 0)
}

fn combine(
    left: &Known<u32>,
    right: &Known<u32>,
    operation: impl Fn(u32, u32) -> u32,
) -> Result<u32, UnknownReason> {
    Ok(operation(*left.known()?, *right.known()?))
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
            Some("/proc/sys/net/ipv4/conf/all/rp_filter: 'on' is not a number that fits")
        );
    }
}
