//! Where a packet is for: reverse-path filter, early demux, and what the IP layer counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{PacketPath, Stage, StageName};
use crate::counter::Counter;
use crate::finding::Rule;
use crate::{Host, Known};

/// The stage.
pub(super) const STAGE: Stage = Stage {
    name: StageName::Route,
    explain: "The kernel looks up where each packet is for; with source validation it looks up a second time, where an \
              answer to it would go. Early demux looks for a connected socket first, to save the lookup.",
    rules: RULES,
    counters,
};

const RULES: &[Rule] = &[];

/// State of the IP layer.
#[derive(Debug, Clone, Serialize)]
pub struct Route {
    /// An item an interface.
    pub interfaces: Vec<InterfaceRoute>,
    /// `net.ipv4.ip_early_demux`.
    pub ip_early_demux: Known<bool>,
    /// `net.ipv4.udp_early_demux` (Linux 4.12); none where the kernel has none.
    pub udp_early_demux: Known<Option<bool>>,
    /// Counters of `/proc/net/snmp` and `/proc/net/netstat`, such as `Udp.RcvbufErrors`, `IpExt.InNoRoutes`.
    pub snmp: Known<BTreeMap<String, u64>>,
}

/// Source validation of an interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceRoute {
    /// The interface.
    pub interface: String,
    /// `rp_filter` in effect: the larger of `all` and the interface's own (ip-sysctl): 0 off, 1 strict, 2 loose.
    pub rp_filter: Known<u32>,
    /// `accept_local`: either of `all` and the interface's own.
    pub accept_local: Known<bool>,
}

impl Route {
    /// Reads what belongs to these interfaces and to the host.
    #[must_use]
    pub fn observe(_host: &Host, interfaces: &[&str]) -> Self {
        let route = |name: &&str| InterfaceRoute {
            interface: (*name).to_owned(),
            rp_filter: Known::unknown("not read yet"),
            accept_local: Known::unknown("not read yet"),
        };
        Self {
            interfaces: interfaces.iter().map(route).collect(),
            ip_early_demux: Known::unknown("not read yet"),
            udp_early_demux: Known::unknown("not read yet"),
            snmp: Known::unknown("not read yet"),
        }
    }

    /// A counter of `/proc/net/snmp` or `/proc/net/netstat`, such as `Udp.RcvbufErrors`.
    #[must_use]
    pub fn snmp(&self, name: &str) -> Option<u64> {
        self.snmp.value()?.get(name).copied()
    }
}

fn counters(_path: &PacketPath) -> Vec<Counter> {
    Vec::new()
}
