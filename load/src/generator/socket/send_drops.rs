//! Datagrams that the kernel dropped after a successful send call.

use linerate_host::Host;

// Without IP_RECVERR, a send call succeeds although the queueing discipline drops the datagram
// (net/ipv4/udp.c, `udp_send_skb`); only this counter of the network namespace shows it. It also
// counts calls that find the socket's own buffer full.
pub(super) fn send_buffer_errors() -> u64 {
    let host = Host::live();
    let read = |path: &str| host.read(path).unwrap_or_default();
    parse_v4(&read("/proc/thread-self/net/snmp")) + parse_v6(&read("/proc/thread-self/net/snmp6"))
}

fn parse_v4(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split(' ').zip(values.split(' '));
    let value = pairs.find(|(name, _)| *name == "SndbufErrors").map(|(_, value)| value);
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn parse_v6(text: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix("Udp6SndbufErrors"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_buffer_errors_are_read_for_both_families() {
        let v4 = "Icmp: InMsgs\nIcmp: 9\nUdp: InDatagrams SndbufErrors InCsumErrors\nUdp: 7 42 3\n";
        assert_eq!((parse_v4(v4), parse_v4("")), (42, 0));
        assert_eq!(parse_v6("Udp6RcvbufErrors     \t1\nUdp6SndbufErrors     \t17\n"), 17);
    }
}
