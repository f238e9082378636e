//! What looks at packets on their way: XDP, tc, netfilter, connection tracking.

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

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Filter,
    explain: "XDP programs see a packet before it has a socket buffer, tc after that, and netfilter at its hooks on the way \
              in and out. Each hook costs each packet, with rules or without; connection tracking looks up and makes \
              an entry a flow.",
    rules: RULES,
    counters: conntrack::counters,
};

const RULES: &[Rule] = &[drops::RULE, notrack::RULE, empty_tables::RULE, generic_xdp::RULE];

/// Filters of a host.
#[derive(Debug, Clone, Serialize)]
pub struct FilterState {
    /// An item an interface.
    pub interfaces: Vec<InterfaceFilters>,
    /// Functions at netfilter's hooks of IPv4, IPv6 and of these interfaces, in the order in which packets meet them
    /// (Linux 5.14).
    pub hooks: Known<Vec<NetfilterHook>>,
    /// nftables' tables.
    pub nftables: Known<Vec<NftTable>>,
    /// iptables' own tables; those that `iptables-nft` makes are nftables'.
    pub iptables: Known<Vec<IptablesTableState>>,
    /// Kernel modules that are loaded and have to do with netfilter; none where the kernel has no modules.
    pub modules: Known<Option<BTreeSet<String>>>,
    /// Connection tracking; none where it is not loaded.
    pub conntrack: Known<Option<ConntrackState>>,
}

/// Programs on an interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceFilters {
    /// The interface.
    pub interface: String,
    /// The XDP program; none without one.
    pub xdp: Known<Option<AttachedXdp>>,
    /// Whether the driver can run the program itself (Linux 6.3); none where no program is in generic mode, for which alone
    /// it matters.
    pub driver_runs_xdp: Known<Option<bool>>,
    /// How many tc filters and tcx programs packets meet on the way in, and on the way out.
    pub tc: Known<ProgramCounts>,
}

/// How many programs packets meet on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramCounts {
    /// On the way in.
    pub ingress: u32,
    /// On the way out.
    pub egress: u32,
}

/// A function at a netfilter hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetfilterHook {
    /// `ip`, `ip6` or `netdev`.
    pub family: String,
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress` or `egress`.
    pub hook: String,
    /// The interface, of family `netdev`.
    #[serde(default)]
    pub interface: Option<String>,
    /// Its priority; lower comes first.
    pub priority: i32,
    /// The kernel function or nftables chain: `ipv4_conntrack_in`, `chain inet filter input`; empty where the kernel does
    /// not tell.
    #[serde(default)]
    pub function: String,
    /// The kernel module; empty where it is built in or not told.
    #[serde(default)]
    pub module: String,
}

/// A table of iptables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IptablesTableState {
    /// Its family.
    pub family: IpFamily,
    /// Its name.
    pub name: String,
    /// What it holds.
    pub content: Known<IptablesTable>,
}

/// Connection tracking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConntrackState {
    /// Entries there are.
    pub count: Known<u64>,
    /// Entries there can be.
    pub max: Known<u64>,
    /// Counters of `/proc/net/stat/nf_conntrack` by name, summed over CPUs.
    pub statistics: Known<BTreeMap<String, u64>>,
}

impl FilterState {
    /// Reads what is on these interfaces and on the host.
    #[must_use]
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

    /// Whether packets are tracked: a function of connection tracking is at a hook. Where the hooks are unknown, entries
    /// that there are tell; without either it is unknown.
    #[must_use]
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
    /// Packets lost: those for which no entry was to be had, or whose entry could not be put into the table.
    #[must_use]
    pub fn drops(&self) -> Option<u64> {
        let statistics = self.statistics.value()?;
        Some(statistics.get("drop")?.saturating_add(*statistics.get("insert_failed")?))
    }
}
