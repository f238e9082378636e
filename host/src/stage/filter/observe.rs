//! Reads programs and rules.

use super::{FilterState, conntrack, hooks, modules, programs, tables};
use crate::Host;
use crate::stage::link::LinkState;

impl FilterState {
    pub fn observe(host: &Host, links: &[LinkState]) -> Self {
        let names: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
        let modules = modules::KernelModules::read(host);
        Self {
            interfaces: links.iter().map(|link| programs::read_programs(host, link)).collect(),
            hooks: hooks::hooks(host, &modules, &names),
            nftables: tables::nftables(host, &modules),
            iptables: tables::iptables(host).into(),
            conntrack: conntrack::conntrack(host),
            modules: modules.netfilter_modules(),
        }
    }
}
