//! What looks at packets on their way: XDP, tc, netfilter, connection tracking.

use serde::{Deserialize, Serialize};

use super::link::Link;
use super::{PacketPath, Stage, StageName};
use crate::counter::Counter;
use crate::finding::Rule;
use crate::{Host, Known};

/// The stage.
pub(super) const STAGE: Stage = Stage {
    name: StageName::Filter,
    explain: "XDP programs see a packet before it has a socket buffer, tc after that, and netfilter at its hooks on the way \
              in and out. Each hook costs each packet, with rules or without; connection tracking looks up and makes \
              an entry a flow.",
    rules: RULES,
    counters,
};

const RULES: &[Rule] = &[];

/// Filters of a host.
#[derive(Debug, Clone, Serialize)]
pub struct Filter {
    /// An item an interface.
    pub interfaces: Vec<InterfaceFilters>,
    /// Netfilter hooks of the families ip, ip6, inet and netdev, in the order in which packets meet them; none where no way to list them is there.
    pub hooks: Known<Vec<Hook>>,
    /// nftables' and iptables' tables.
    pub tables: Known<Vec<Table>>,
    /// Connection tracking; none where it is not loaded.
    pub conntrack: Known<Option<Conntrack>>,
}

/// Programs on an interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceFilters {
    /// The interface.
    pub interface: String,
    /// The XDP program; none without one.
    pub xdp: Known<Option<Xdp>>,
    /// How many tc filters and tcx programs packets meet on the way in.
    pub ingress: Known<u32>,
    /// How many on the way out.
    pub egress: Known<u32>,
}

/// An attached XDP program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xdp {
    /// `native`, `generic`, `offloaded` or `several`.
    pub mode: String,
    /// The program's id; none where there are several.
    #[serde(default)]
    pub id: Option<u32>,
}

/// A function at a netfilter hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// `ip`, `ip6`, `netdev`, ...
    pub family: String,
    /// `prerouting`, `input`, `output`, `postrouting`, `ingress`, ...
    pub hook: String,
    /// Its priority; lower comes first.
    pub priority: i32,
    /// The kernel function or nftables chain: `ipv4_conntrack_in`, `chain inet filter input`.
    pub function: String,
    /// The kernel module; empty where it is built in or not told.
    #[serde(default)]
    pub module: String,
}

/// A table of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    /// Its name.
    pub name: String,
    /// `nftables` or `iptables`.
    pub kind: String,
    /// How many rules it holds; none where that cannot be told.
    #[serde(default)]
    pub rules: Option<u32>,
}

/// Connection tracking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conntrack {
    /// Entries there are.
    pub count: Known<u64>,
    /// Entries there can be.
    pub max: Known<u64>,
    /// Packets lost: new flows for which there was no entry, or whose insertion failed, summed over CPUs.
    pub drops: Known<u64>,
}

impl Filter {
    /// Reads what is on these interfaces and on the host.
    #[must_use]
    pub fn observe(_host: &Host, links: &[Link]) -> Self {
        let programs = |link: &Link| InterfaceFilters {
            interface: link.interface.clone(),
            xdp: Known::unknown("not read yet"),
            ingress: Known::unknown("not read yet"),
            egress: Known::unknown("not read yet"),
        };
        Self {
            interfaces: links.iter().map(programs).collect(),
            hooks: Known::unknown("not read yet"),
            tables: Known::unknown("not read yet"),
            conntrack: Known::unknown("not read yet"),
        }
    }
}

fn counters(_path: &PacketPath) -> Vec<Counter> {
    Vec::new()
}
