//! Programs and rules that examine packets: XDP, tc, netfilter, connection tracking.

pub(super) mod bridge_netfilter;
pub(super) mod conntrack;
pub(super) mod drops;
pub(super) mod empty_tables;
pub(super) mod generic_xdp;
mod hooks;
mod modules;
pub(super) mod notrack;
mod observe;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::Known;
use crate::netlink::AttachedXdp;

pub use crate::netlink::nfnetlink::hook::NetfilterHook;
pub use crate::netlink::nfnetlink::table::{BaseChain, NftTable};
pub use crate::netlink::tc::ProgramCounts;
pub use crate::sys::iptables::{IpFamily, IptablesTable};
pub(crate) use conntrack::statistics;
pub(crate) use modules::{parse_builtin_modules, parse_loaded_modules};

#[derive(Debug, Clone, Serialize)]
pub struct FilterState {
    pub interfaces: Vec<InterfaceFilters>,
    /// Functions at the netfilter hooks of IPv4, IPv6 and these interfaces, in packet order (Linux
    /// 5.14).
    pub hooks: Known<Vec<NetfilterHook>>,
    pub nftables: Known<Vec<NftTable>>,
    /// iptables-legacy tables; those of `iptables-nft` are in `nftables`.
    pub iptables: Known<Vec<IptablesTableState>>,
    /// Loaded kernel modules of netfilter; `None` if the kernel has no modules.
    pub modules: Known<Option<BTreeSet<String>>>,
    /// `None` if connection tracking is not loaded.
    pub conntrack: Known<Option<ConntrackState>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct InterfaceFilters {
    pub interface: String,
    pub xdp: Known<Option<AttachedXdp>>,
    /// Whether the driver can run XDP programs (Linux 6.3); `None` unless a program is in generic
    /// mode, the only case that needs it.
    pub driver_runs_xdp: Known<Option<bool>>,
    /// tc filters and tcx programs.
    pub tc: Known<ProgramCounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IptablesTableState {
    pub family: IpFamily,
    pub name: String,
    pub content: Known<IptablesTable>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConntrackState {
    pub count: Known<u64>,
    pub max: Known<u64>,
    /// `/proc/net/stat/nf_conntrack` by name, summed over CPUs.
    pub statistics: Known<BTreeMap<String, u64>>,
}

impl FilterState {
    /// Whether packets are tracked: a function of connection tracking is at a hook. If the hooks
    /// are unknown, existing entries decide; without either it is unknown.
    pub fn tracks(&self) -> Option<bool> {
        let Some(conntrack) = self.conntrack.value()? else { return Some(false) };
        match self.hooks.value() {
            Some(hooks) if hooks.iter().all(|hook| !hook.function.is_empty()) => {
                Some(hooks.iter().any(|hook| hook.function.contains("conntrack_in")))
            }
            _ => conntrack.count.value().is_some_and(|count| *count > 0).then_some(true),
        }
    }
}

impl ConntrackState {
    /// Packets that were dropped because they got no entry.
    ///
    /// `insert_failed` is left out: a clash counts there and in `drop`, and before Linux 5.10 a
    /// resolved clash, whose packet is accepted, counts there alone (`nf_ct_resolve_clash` in
    /// net/netfilter/nf_conntrack_core.c). Since Linux 5.15 packets with too long a hash chain
    /// (`chaintoolong`) have the column `chainlength`, and are not in `drop`.
    pub fn drops(&self) -> Option<u64> {
        let statistics = self.statistics.value()?;
        let too_long_chains = statistics.get("chainlength").copied().unwrap_or(0);
        Some(statistics.get("drop")?.saturating_add(too_long_chains))
    }
}
