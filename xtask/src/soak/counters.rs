//! Counters of the receiving host and its server.

use std::time::{Duration, Instant};

use anyhow::Context;
use linerate_engine::Counts;
use linerate_host::Scope;
use linerate_host::stage::link;
use linerate_host::stage::route::RouteState;
use linerate_host::{Host, Known};
use linerate_lab::{Lab, LabHost};

use super::server::SoakServer;

// Statistics of the neighbour table of IPv4 (net/core/neighbour.c, `neigh_stat_seq_show`).
const ARP: &str = "/proc/net/stat/arp_cache";

// Counters are stable if they do not change for this long.
const QUIET: Duration = Duration::from_millis(50);

// Time limit for stable counters.
const PATIENCE: Duration = Duration::from_secs(10);

// Counters along the path of a request, each since its creation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathCounters {
    /// The server's own counters.
    pub(super) server: Counts,
    // Requests lost by the device while it polled its queues, or when a redirect failed:
    // `rx_queue_*_drops` of veth (drivers/net/veth.c).
    pub(super) device_lost: u64,
    /// IPv4 packets that reached the stack: `Ip: InReceives`.
    pub(super) stack_received: u64,
    // IPv4 packets lost before UDP: `InHdrErrors`, `InAddrErrors`, `InUnknownProtos`, `InDiscards`,
    // and of `IpExt` `InNoRoutes`, `InTruncatedPkts`.
    pub(super) ip_lost: u64,
    /// Packets without a socket at the port: `Udp: NoPorts`.
    pub(super) no_port: u64,
    /// Packets lost because the receive buffer was full: `RcvbufErrors`.
    pub(super) buffer_full: u64,
    /// The rest of `Udp: InErrors`.
    pub(super) udp_errors: u64,
    // Replies lost by the stack: `Ip: OutDiscards`, `OutNoRoutes`.
    pub(super) replies_discarded: u64,
    // Replies in excess of those that may wait for the client's link address:
    // `unresolved_discards`. The interface forgets addresses when it goes down, and a lost ARP
    // request is repeated after a second. The kernel counts these replies for all network
    // namespaces together, and shows the count only in the initial namespace.
    pub(super) unresolved: u64,
    /// Replies that did not fit into the wire: `tx_dropped` of the interface.
    pub(super) wire_full: u64,
}

impl PathCounters {
    // The counters when they are stable, even if other programs delay the server.
    pub(super) fn read_settled(lab: &Lab, server: &mut SoakServer) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let mut last = Self::read(lab, server)?;
        loop {
            std::thread::sleep(QUIET);
            let current = Self::read(lab, server)?;
            if current.progress_counts() == last.progress_counts() || begin.elapsed() > PATIENCE {
                return Ok(current);
            }
            last = current;
        }
    }

    /// Counts of requests and replies at all points.
    fn progress_counts(&self) -> [u64; 5] {
        let server = &self.server;
        [self.stack_received, server.frames, server.received, server.answered, server.send_failed.total()]
    }

    fn read(lab: &Lab, server: &mut SoakServer) -> anyhow::Result<Self> {
        let server = server.counts()?;
        let (device_lost, wire_full) = veth_losses(lab.receiver(), &lab.links()[0].receiver.interface)?;
        let route = lab.receiver().run(|| RouteState::observe(&Host::live(), &[]))?;
        let why = route.snmp.why().or_else(|| route.netstat.why()).unwrap_or("no such counter");
        let counter = |name: &str| route.snmp(name).with_context(|| format!("/proc/net: {name}: {why}"));
        let buffer_full = counter("Udp.RcvbufErrors")?;
        Ok(Self {
            server,
            device_lost,
            stack_received: counter("Ip.InReceives")?,
            ip_lost: counter("Ip.InHdrErrors")?
                + counter("Ip.InAddrErrors")?
                + counter("Ip.InUnknownProtos")?
                + counter("Ip.InDiscards")?
                + counter("IpExt.InNoRoutes")?
                + counter("IpExt.InTruncatedPkts")?,
            no_port: counter("Udp.NoPorts")?,
            buffer_full,
            udp_errors: counter("Udp.InErrors")?.saturating_sub(buffer_full),
            replies_discarded: counter("Ip.OutDiscards")? + counter("Ip.OutNoRoutes")?,
            unresolved: std::fs::read_to_string(ARP).map_or(Ok(0), |text| unresolved(&text))?,
            wire_full,
        })
    }
}

/// Packets that the device lost, and packets that did not fit into the wire.
fn veth_losses(host: &LabHost, interface: &str) -> anyhow::Result<(u64, u64)> {
    let sys = Host::live_with_sys(host.sys_path()?);
    let scope = Scope { interfaces: vec![interface.to_owned()], ..Scope::default() };
    let link = host.run(|| link::observe(&sys, &scope))?.pop().context("no such interface")?;
    let statistics = match link.statistics {
        Known::Value(Some(statistics)) => statistics,
        Known::Value(None) => anyhow::bail!("{interface} has no statistics"),
        Known::Unknown { why } => anyhow::bail!("statistics of {interface}: {why}"),
    };
    let totals = link.totals.value().with_context(|| format!("{interface} has no counters"))?;
    // The drivers count packets that an XDP program dropped in `rx_queue_3_xdp_drops`. None of
    // our programs drops requests, so every `rx_queue_3_drops` is a loss.
    let is_loss = |name: &str| {
        name.strip_prefix("rx_queue_")
            .and_then(|suffix| suffix.split_once('_'))
            .is_some_and(|(_, counter)| counter == "drops")
    };
    let lost = statistics.iter().filter(|(name, _)| is_loss(name)).map(|(_, count)| *count).sum();
    Ok((lost, totals.get("tx_dropped").copied().unwrap_or(0)))
}

/// The sum over CPUs of a file whose first line has names, and each other line the hexadecimal
/// counts of a CPU.
fn unresolved(text: &str) -> anyhow::Result<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let column = lines.next().and_then(|mut names| names.position(|name| name == "unresolved_discards"));
    let column = column.with_context(|| format!("{ARP}: no unresolved_discards"))?;
    let cpu_count = |mut counts: std::str::SplitWhitespace<'_>| {
        let count = counts.nth(column).and_then(|count| u64::from_str_radix(count, 16).ok());
        count.with_context(|| format!("{ARP}: a line without unresolved_discards"))
    };
    lines.map(cpu_count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unresolved_discards_are_summed_over_cpus() {
        let text = "entries  allocs   unresolved_discards table_fulls\n00000002 00000134 00000010            00000000\n\
                    00000002 00000209 00023a22            00000000\n";
        assert_eq!(unresolved(text).unwrap(), 16 + 145_954);
        assert!(unresolved("entries allocs\n1 2\n").is_err());
        assert!(unresolved("entries unresolved_discards\n1 x\n").is_err());
    }
}
