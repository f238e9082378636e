//! Reads interfaces without a device.

use std::collections::BTreeMap;

use super::{PortKind, VirtualNetwork, VirtualPort, functions, owners, vhost};
use crate::Host;
use crate::known::number;
use crate::stage::link::LinkState;
use crate::stage::machine::NumaNode;

const INTERFACES: &str = "/sys/class/net";

/// Flags of `tun_flags` (linux/if_tun.h).
const IFF_TAP: u32 = 0x2;
const IFF_MULTI_QUEUE: u32 = 0x100;

impl VirtualNetwork {
    /// `links` are the interfaces whose virtual functions are read.
    pub fn observe(host: &Host, links: &[LinkState], nodes: &[NumaNode]) -> Self {
        let names = host.list(INTERFACES).unwrap_or_default();
        let mut ports: Vec<VirtualPort> = names.iter().filter_map(|name| port(host, name)).collect();
        let machines = owners::assign(host, &mut ports);
        let (mut functions, mut described_functions) = (Vec::new(), BTreeMap::new());
        for link in links {
            if let Some((of_link, described)) = functions::observe(host, link) {
                functions.extend(of_link);
                described_functions.insert(link.interface.clone(), described);
            }
        }
        let bridge_netfilter = host.read("/proc/sys/net/bridge/bridge-nf-call-iptables").ok();
        Self {
            vhost: vhost::threads(host, &machines, nodes),
            functions,
            described_functions,
            iommu: host.list("/sys/class/iommu").ok().map(|units| !units.is_empty()),
            bridge_netfilter: bridge_netfilter.map(|text| text.trim() != "0"),
            ports,
        }
    }
}

// `None` if it is another kind of interface.
fn port(host: &Host, interface: &str) -> Option<VirtualPort> {
    let base = format!("{INTERFACES}/{interface}");
    let files = host.list(&base).ok()?;
    let has_file = |name: &str| files.iter().any(|file| file == name);
    if has_file("device") {
        return None;
    }
    let number = |file: &str| host.read_parsed(&format!("{base}/{file}"), number::<u64>).ok();
    let tun_flags = || {
        let text = host.read(&format!("{base}/tun_flags")).ok()?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let flags = if has_file("tun_flags") { tun_flags().unwrap_or(0) } else { 0 };
    let kind = if flags & IFF_TAP != 0 {
        PortKind::Tap
    } else if has_file("macvtap") {
        PortKind::Macvtap
    } else if has_file("bridge") {
        PortKind::Bridge
    } else if number("iflink").is_some_and(|peer| Some(peer) != number("ifindex"))
        && host.driver(interface).is_ok_and(|driver| driver.name == "veth")
    {
        PortKind::Veth
    } else {
        return None;
    };
    let master = host.read_link(&format!("{base}/master")).ok();
    let queues = host.list(&format!("{base}/queues")).unwrap_or_default();
    let receive_queues = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
    let totals = ["rx_packets", "tx_packets", "rx_dropped", "tx_dropped"].into_iter();
    Some(VirtualPort {
        interface: interface.to_owned(),
        kind,
        index: number("ifindex").and_then(|index| u32::try_from(index).ok()),
        peer: number("iflink").and_then(|peer| u32::try_from(peer).ok()).filter(|_| kind == PortKind::Veth),
        up: host.read(&format!("{base}/operstate")).is_ok_and(|state| state.trim() != "down"),
        master: master.and_then(|target| Some(target.rsplit('/').next()?.to_owned())),
        multi_queue: flags & IFF_MULTI_QUEUE != 0,
        receive_queues: u32::try_from(receive_queues).unwrap_or(u32::MAX),
        owner: None,
        totals: totals
            .filter_map(|name| Some((name.to_owned(), number(&format!("statistics/{name}"))?)))
            .collect(),
    })
}
