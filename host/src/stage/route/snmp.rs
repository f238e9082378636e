//! Counters of the IP layer: `/proc/net/snmp`, `netstat` and `snmp6`.

use std::collections::BTreeMap;

use super::RouteState;
use crate::counter::{CountedUnit, Counter};
use crate::stage::name::StageName;

pub(super) const SNMP: &str = "/proc/net/snmp";
pub(super) const NETSTAT: &str = "/proc/net/netstat";
pub(super) const SNMP6: &str = "/proc/net/snmp6";

/// Counters of `/proc/net/snmp` and `netstat` by names such as `Udp.InDatagrams`, from pairs of
/// lines (names and values) that begin with the protocol. Negative values (`Tcp.MaxConn`) are left
/// out.
///
/// # Errors
/// The line that is malformed.
pub fn parse_snmp(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    while let Some((index, names)) = lines.next() {
        let (protocol, names) =
            names.split_once(':').ok_or_else(|| format!("line {}: no protocol before it", index + 1))?;
        let values = lines
            .next()
            .and_then(|(_, values)| values.strip_prefix(protocol)?.strip_prefix(':'))
            .ok_or_else(|| format!("line {}: no line of values of '{protocol}' follows", index + 1))?;
        let (names, values): (Vec<&str>, Vec<&str>) =
            (names.split_ascii_whitespace().collect(), values.split_ascii_whitespace().collect());
        if names.len() != values.len() {
            return Err(format!(
                "line {}: '{protocol}' has {} names and {} values",
                index + 1,
                names.len(),
                values.len()
            ));
        }
        for (name, value) in names.iter().zip(values) {
            let name = format!("{protocol}.{name}");
            insert_counter(&mut counters, name, value)
                .map_err(|reason| format!("line {}: {reason}", index + 2))?;
        }
    }
    if counters.is_empty() { Err("no counters".to_owned()) } else { Ok(counters) }
}

/// Counters of `/proc/net/snmp6` by names such as `Udp6InDatagrams`, one per line.
///
/// # Errors
/// The line that is malformed.
pub fn parse_snmp6(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let mut counters = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let value = words.next().ok_or_else(|| format!("line {}: {name} has no value", index + 1))?;
        insert_counter(&mut counters, name.to_owned(), value)
            .map_err(|reason| format!("line {}: {reason}", index + 1))?;
    }
    if counters.is_empty() { Err("no counters".to_owned()) } else { Ok(counters) }
}

fn insert_counter(counters: &mut BTreeMap<String, u64>, name: String, value: &str) -> Result<(), String> {
    if value.strip_prefix('-').is_some_and(|digits| digits.parse::<u64>().is_ok()) {
        return Ok(());
    }
    let value = value.parse().map_err(|_| format!("{name} is '{value}'"))?;
    counters.insert(name, value);
    Ok(())
}

/// Counters of this stage; counters of sockets belong to the socket stage.
const COUNTED: &[(&str, CountedUnit, &str)] = &[
    ("Ip.InReceives", CountedUnit::PacketsIn, SNMP),
    ("Ip.InDelivers", CountedUnit::PacketsOut, SNMP),
    ("Ip.InHdrErrors", CountedUnit::PacketsLost, SNMP),
    ("Ip.InAddrErrors", CountedUnit::PacketsLost, SNMP),
    ("Ip.InUnknownProtos", CountedUnit::PacketsLost, SNMP),
    ("Ip.InDiscards", CountedUnit::PacketsLost, SNMP),
    ("Ip.OutDiscards", CountedUnit::PacketsLost, SNMP),
    ("Ip.OutNoRoutes", CountedUnit::PacketsLost, SNMP),
    ("Ip.ReasmFails", CountedUnit::Events, SNMP),
    ("IpExt.InNoRoutes", CountedUnit::PacketsLost, NETSTAT),
    ("IpExt.InTruncatedPkts", CountedUnit::PacketsLost, NETSTAT),
    ("TcpExt.IPReversePathFilter", CountedUnit::PacketsLost, NETSTAT),
    ("Ip6InReceives", CountedUnit::PacketsIn, SNMP6),
    ("Ip6InDelivers", CountedUnit::PacketsOut, SNMP6),
    ("Ip6InHdrErrors", CountedUnit::PacketsLost, SNMP6),
    ("Ip6InNoRoutes", CountedUnit::PacketsLost, SNMP6),
    ("Ip6InAddrErrors", CountedUnit::PacketsLost, SNMP6),
    ("Ip6InUnknownProtos", CountedUnit::PacketsLost, SNMP6),
    ("Ip6InTruncatedPkts", CountedUnit::PacketsLost, SNMP6),
    ("Ip6InDiscards", CountedUnit::PacketsLost, SNMP6),
    ("Ip6OutDiscards", CountedUnit::PacketsLost, SNMP6),
    ("Ip6OutNoRoutes", CountedUnit::PacketsLost, SNMP6),
    ("Ip6ReasmFails", CountedUnit::Events, SNMP6),
];

pub(in crate::stage) fn counters(route: &RouteState) -> Vec<Counter> {
    let counter = |(name, counts, file): &(&str, CountedUnit, &str)| {
        Some(Counter::new(StageName::Route, "host", *name, *counts, route.snmp(name)?, *file))
    };
    COUNTED.iter().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::PacketPath;
    use crate::{Host, Known};

    /// Captured on Linux 6.18, without some protocols.
    const CAPTURED: &str = "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos \
        InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs \
        FragFails FragCreates OutTransmits\n\
        Ip: 2 64 151227910 0 0 0 0 0 151227910 151216041 56986 0 0 0 0 0 0 0 0 151216041\n\
        Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens\n\
        Tcp: 1 200 120000 -1 2416\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
        Udp: 140480646 114038 10332243 151064154 10332243 0 0 0 0\n";

    #[test]
    fn snmp_and_snmp6_counters_are_parsed() {
        let counters = parse_snmp(CAPTURED).expect("counters");
        assert_eq!(counters.get("Udp.RcvbufErrors"), Some(&10_332_243));
        assert_eq!(counters.get("Ip.Forwarding"), Some(&2));
        assert_eq!(counters.get("Tcp.MaxConn"), None);
        assert_eq!(counters.get("Tcp.ActiveOpens"), Some(&2416));
        let snmp6 = parse_snmp6("Ip6InReceives                   \t12\nUdp6NoPorts \t0\n").expect("counters");
        assert_eq!(snmp6.get("Ip6InReceives"), Some(&12));
    }

    #[test]
    fn malformed_snmp_tables_are_errors_that_name_the_line() {
        let error = |text: &str| parse_snmp(text).expect_err("no table");
        assert_eq!(error("Ip: A B\nIp: 1"), "line 1: 'Ip' has 2 names and 1 values");
        assert_eq!(error("Ip: A\nIp: 1\nUdp: B\n"), "line 3: no line of values of 'Udp' follows");
        assert_eq!(error("Ip: A\nIp: x"), "line 2: Ip.A is 'x'");
        assert_eq!(error("nothing"), "line 1: no protocol before it");
        assert_eq!(error(""), "no counters");
        assert_eq!(parse_snmp6("Ip6InReceives").expect_err("no value"), "line 1: Ip6InReceives has no value");
        let host = Host::scripted([(SNMP, CAPTURED.get(..200).unwrap_or_default())]);
        assert!(
            host.read_known(SNMP, parse_snmp)
                .why()
                .is_some_and(|why| why.starts_with("/proc/net/snmp: line 1: "))
        );
        assert_eq!(host.read_optional(SNMP6, parse_snmp6), Known::Value(None));
    }

    #[test]
    fn route_stage_counters_include_ip_layer_losses() {
        let path = PacketPath::scripted([
            (SNMP, CAPTURED),
            (NETSTAT, "TcpExt: IPReversePathFilter\nTcpExt: 7\n"),
            (SNMP6, "Ip6InNoRoutes 3\n"),
        ]);
        let counters = counters(&path.route);
        let losses: Vec<String> = counters
            .iter()
            .filter(|counter| counter.counts == CountedUnit::PacketsLost && counter.value > 0)
            .map(|counter| format!("{} {} {}", counter.name, counter.value, counter.read_from))
            .collect();
        assert_eq!(
            losses,
            [
                "Ip.OutDiscards 56986 /proc/net/snmp",
                "TcpExt.IPReversePathFilter 7 /proc/net/netstat",
                "Ip6InNoRoutes 3 /proc/net/snmp6"
            ]
        );
    }
}
