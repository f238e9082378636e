//! Datagrams that the kernel dropped after a successful send call.

use std::collections::BTreeMap;

use linerate_host::Host;
use linerate_host::stage::route::{parse_snmp, parse_snmp6};

// Without IP_RECVERR, a send call succeeds although the queueing discipline drops the datagram
// (net/ipv4/udp.c, `udp_send_skb`); only this counter of the network namespace shows it. It also
// counts calls that find the socket's own buffer full.
pub(super) fn send_buffer_errors() -> u64 {
    let host = Host::live();
    let counters_of = |path: &str, parse: fn(&str) -> Result<BTreeMap<String, u64>, String>| {
        host.read(path).ok().and_then(|text| parse(&text).ok()).unwrap_or_default()
    };
    let v4 = counters_of("/proc/thread-self/net/snmp", parse_snmp);
    let v6 = counters_of("/proc/thread-self/net/snmp6", parse_snmp6);
    [v4.get("Udp.SndbufErrors"), v6.get("Udp6SndbufErrors")].into_iter().flatten().sum()
}
