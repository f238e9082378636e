//! Reads programs and rules.

use super::{FilterState, InterfaceFilters, conntrack, hooks, modules, tables};
use crate::netlink::{XdpAttachKind, tc, xdp_attached, xdp_features};
use crate::stage::link::LinkState;
use crate::{Host, Known};

impl FilterState {
    pub fn observe(host: &Host, links: &[LinkState]) -> Self {
        let names: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
        let modules = modules::KernelModules::read(host);
        Self {
            interfaces: links.iter().map(|link| read_programs(host, link)).collect(),
            hooks: hooks::hooks(host, &modules, &names),
            nftables: tables::nftables(host, &modules),
            iptables: tables::iptables(host).into(),
            conntrack: conntrack::conntrack(host),
            modules: modules.netfilter_modules(),
        }
    }
}

/// Programs on an interface: XDP, tc and tcx.
fn read_programs(host: &Host, link: &LinkState) -> InterfaceFilters {
    let interface = link.interface.clone();
    let index = match &link.index {
        Known::Value(index) => *index,
        Known::Unknown { why } => {
            return InterfaceFilters {
                interface,
                xdp: Known::unknown(why.clone()),
                driver_runs_xdp: Known::unknown(why.clone()),
                tc: Known::unknown(why.clone()),
            };
        }
    };
    let xdp = Known::from(xdp_attached(host, &interface, index));
    let driver_runs_xdp = match &xdp {
        Known::Value(Some(program)) if program.mode == XdpAttachKind::Generic => {
            xdp_features(host, &interface, index).map(|features| Some(features.basic))
        }
        Known::Value(_) => Known::Value(None),
        Known::Unknown { why } => Known::unknown(why.clone()),
    };
    let action = format!("counting the tc filters of {interface}");
    let tc = host.call(&format!("tc/{interface}"), &action, || tc::programs(index)).into();
    InterfaceFilters { interface, xdp, driver_runs_xdp, tc }
}
