//! Reads the IP layer.

use std::collections::BTreeMap;

use super::{InterfaceRoute, RouteState, conf_path, early_demux, snmp};
use crate::known::{UnknownReason, number};
use crate::{Host, Known};

impl RouteState {
    pub fn observe(host: &Host, interfaces: &[&str]) -> Self {
        let rp_filter_all = host.read_known(&conf_path("all", "rp_filter"), number);
        let accept_all = host.read_known(&conf_path("all", "accept_local"), number);
        let mut names: Vec<String> = Vec::new();
        for name in interfaces.iter().map(|name| entry_interface(host, name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let route = |name: &String| {
            let own_filter = host.read_known(&conf_path(name, "rp_filter"), number);
            let own_accept = host.read_known(&conf_path(name, "accept_local"), number);
            InterfaceRoute {
                interface: name.clone(),
                rp_filter: combine(&rp_filter_all, &own_filter, u32::max).into(),
                rp_filter_own: own_filter,
                accept_local: combine(&accept_all, &own_accept, u32::max).map(|value| value != 0).into(),
            }
        };
        Self {
            interfaces: names.iter().map(route).collect(),
            rp_filter_others: other_filters(host, &rp_filter_all, &names).into(),
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

/// The bond or bridge that this interface is a port of, directly or through another bond; otherwise
/// the interface itself.
fn entry_interface(host: &Host, interface: &str) -> String {
    /// A port of a bond in a bridge.
    const MOST_LEVELS: usize = 2;
    let mut name = interface.to_owned();
    for _ in 0..MOST_LEVELS {
        let directory = format!("/sys/class/net/{name}");
        let is_port = host
            .list(&directory)
            .is_ok_and(|files| files.iter().any(|file| matches!(file.as_str(), "bonding_slave" | "brport")));
        let master = is_port.then(|| host.read_link(&format!("{directory}/master")).ok()).flatten();
        match master.as_deref().and_then(|target| target.rsplit('/').next()) {
            Some(master) if !master.is_empty() => name = master.to_owned(),
            _ => break,
        }
    }
    name
}

/// Own values of interfaces that are not in `names`, and of `default`.
fn other_filters(
    host: &Host,
    all: &Known<u32>,
    names: &[String],
) -> Result<BTreeMap<String, u32>, UnknownReason> {
    if *all == Known::Value(0) {
        return Ok(BTreeMap::new());
    }
    let listed_names = host.list("/proc/sys/net/ipv4/conf")?;
    let is_other = |name: &String| !matches!(name.as_str(), "all" | "lo") && !names.contains(name);
    let mut filters = BTreeMap::new();
    for name in listed_names.into_iter().filter(is_other) {
        let path = conf_path(&name, "rp_filter");
        match host.read_known(&path, number) {
            Known::Value(value) => drop(filters.insert(name, value)),
            // The interface was removed meanwhile.
            Known::Unknown { .. } if host.list(&format!("/proc/sys/net/ipv4/conf/{name}")).is_err() => {}
            Known::Unknown { why } => return Err(why.into()),
        }
    }
    Ok(filters)
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
    use crate::recording::{HostRecording, RecordedEntry};
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
        assert!(route.interfaces[1].rp_filter.why_contains(&conf_path("gone", "rp_filter")));
        assert_eq!(route.ip_early_demux, Known::Value(true));
        assert_eq!(conf_name("eth0.5", "rp_filter"), "net.ipv4.conf.eth0/5.rp_filter");
    }

    #[test]
    fn ports_of_bonds_and_bridges_are_replaced_by_the_interface_above() {
        let mut recording = HostRecording::new();
        for (name, above, marker) in [
            ("eth0", "bond0", "bonding_slave"),
            ("eth1", "bond0", "bonding_slave"),
            ("bond0", "br0", "brport"),
        ] {
            let directory = format!("/sys/class/net/{name}");
            recording.insert(format!("{directory}/{marker}/state"), RecordedEntry::File("0\n".into()));
            let target = format!("../../../virtual/net/{above}");
            recording.insert(format!("{directory}/master"), RecordedEntry::Link(target));
        }
        // The port of a VRF: packets enter the IP layer on the port.
        recording.insert("/sys/class/net/eth2/master", RecordedEntry::Link("../../virtual/net/vrf0".into()));
        let route = RouteState::observe(&Host::recorded(recording), &["eth0", "eth1", "eth2"]);
        let names: Vec<&str> = route.interfaces.iter().map(|route| route.interface.as_str()).collect();
        assert_eq!(names, ["br0", "eth2"]);
    }
}
