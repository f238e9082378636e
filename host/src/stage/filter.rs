//! Programs and rules that examine packets: XDP, tc, netfilter, connection tracking.

mod conntrack;
mod drops;
mod empty_tables;
mod generic_xdp;
mod hooks;
mod modules;
mod notrack;
mod programs;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::link::LinkState;
use super::{StageInfo, StageName};
use crate::finding::Rule;
use crate::netlink::AttachedXdp;
use crate::{Host, Known};

pub(crate) use conntrack::statistics;
pub(crate) use modules::{builtin, loaded};
pub use tables::{BaseChain, IpFamily, IptablesTable, NftTable};

pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Filter,
    explain: "XDP programs see a packet before it has a socket buffer, tc after that, and netfilter at its \
              hooks on the way in and out. Each hook costs time per packet, with or without rules; \
              connection tracking looks up each packet and creates an entry per flow.",
    rules: RULES,
    counters: conntrack::counters,
};

const RULES: &[Rule] = &[drops::RULE, notrack::RULE, empty_tables::RULE, generic_xdp::RULE];

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramCounts {
    pub ingress: u32,
    pub egress: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetfilterHook {
    /// `ip`, `ip6` or `netdev`.
    pub family: String,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress` or `egress`.
    pub hook: String,
    /// Of family `netdev`.
    #[serde(default)]
    pub interface: Option<String>,
    /// Lower comes first.
    pub priority: i32,
    /// The kernel function or nftables chain: `ipv4_conntrack_in`, `chain inet filter input`; empty
    /// if the kernel does not report it.
    #[serde(default)]
    pub function: String,
    /// Empty if it is built in or unknown.
    #[serde(default)]
    pub module: String,
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
    pub fn observe(host: &Host, links: &[LinkState]) -> Self {
        let names: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
        let modules = modules::KernelModules::read(host);
        Self {
            interfaces: links.iter().map(|link| programs::on(host, link)).collect(),
            hooks: hooks::hooks(host, &modules, &names),
            nftables: tables::nftables(host, &modules),
            iptables: tables::iptables(host),
            conntrack: conntrack::conntrack(host),
            modules: modules.of_netfilter(),
        }
    }

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
    /// Packets that got no entry, or whose entry could not be inserted.
    pub fn drops(&self) -> Option<u64> {
        let statistics = self.statistics.value()?;
        Some(statistics.get("drop")?.saturating_add(*statistics.get("insert_failed")?))
    }
}
