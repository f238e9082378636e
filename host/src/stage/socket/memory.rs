//! Memory and number of all UDP sockets: `udp_mem` and `sockstat`.

use super::UdpMemory;
use crate::Host;
use crate::known::UnknownReason;

pub(super) const LIMIT: &str = "/proc/sys/net/ipv4/udp_mem";
pub(super) const USED: &str = "/proc/net/sockstat";
const USED6: &str = "/proc/net/sockstat6";

/// `None` if the kernel does not show the limit, as in network namespaces.
pub(super) fn udp_memory(host: &Host) -> Result<Option<UdpMemory>, UnknownReason> {
    let limit = |text: &str| {
        let pages = text.split_whitespace().nth(2).and_then(|pages| pages.parse().ok());
        pages.ok_or_else(|| format!("'{}' is no three numbers", text.trim()))
    };
    let Some(limit_pages) = host.read_optional(LIMIT, limit).into_known()? else { return Ok(None) };
    let used_pages = |text: &str| field(text, "UDP:", "mem").ok_or("no line 'UDP:' with 'mem'");
    Ok(Some(UdpMemory { limit_pages, used_pages: host.read_known(USED, used_pages).into_known()? }))
}

pub(super) fn udp_in_use(host: &Host) -> Result<Option<u64>, UnknownReason> {
    let in_use = |text: &str, line| field(text, line, "inuse").ok_or("no line of UDP with 'inuse'");
    let sockets = host.read_optional(USED, |text| in_use(text, "UDP:")).into_known()?;
    // Missing without IPv6.
    let sockets6 = host.read_optional(USED6, |text| in_use(text, "UDP6:")).into_known()?;
    Ok(sockets.map(|sockets| sockets.saturating_add(sockets6.unwrap_or(0))))
}

/// Reads a line such as `UDP: inuse 5 mem 258` (sockstat_seq_show, net/ipv4/proc.c).
fn field(text: &str, line: &str, name: &str) -> Option<u64> {
    let values = text.lines().find_map(|text| text.strip_prefix(line))?;
    values.split_whitespace().skip_while(|word| *word != name).nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;

    #[test]
    fn udp_sockets_in_use_are_of_both_address_families() {
        let sockstat6 = (USED6, "TCP6: inuse 4\nUDP6: inuse 3\nUDPLITE6: inuse 0\n");
        let in_use = |files: &[(&str, &str)]| Known::from(udp_in_use(&Host::scripted(files.iter().copied())));
        assert_eq!(in_use(&[(USED, SOCKSTAT), sockstat6]), Known::Value(Some(8)));
        assert_eq!(in_use(&[(USED, SOCKSTAT)]), Known::Value(Some(5)));
        assert_eq!(in_use(&[sockstat6]), Known::Value(None));
        assert!(in_use(&[(USED, "TCP: inuse 2\n")]).why_contains("inuse"));
    }

    const SOCKSTAT: &str = "sockets: used 60\nTCP: inuse 2 orphan 0 tw 0 alloc 4 mem 1\nUDP: inuse 5 mem 258\nUDPLITE: inuse 0\n";

    #[test]
    fn udp_memory_limit_and_usage_are_read() {
        let read = |limit: &str, sockstat: &str| {
            Known::from(udp_memory(&Host::scripted([(LIMIT, limit), (USED, sockstat)])))
        };
        let expected = UdpMemory { limit_pages: 94_002, used_pages: 258 };
        assert_eq!(read("46998\t62667\t94002\n", SOCKSTAT), Known::Value(Some(expected)));
        assert!(read("46998\n", SOCKSTAT).why_contains("udp_mem"));
        assert!(read("1 2 3", "TCP: mem 1\n").why_contains("sockstat"));
        assert_eq!(Known::from(udp_memory(&Host::scripted([(USED, SOCKSTAT)]))), Known::Value(None));
    }
}
