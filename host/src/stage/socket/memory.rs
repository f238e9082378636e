//! Memory of all UDP sockets: `udp_mem` and `sockstat`.

use super::UdpMemory;
use crate::Host;
use crate::known::UnknownReason;

pub(super) const LIMIT: &str = "/proc/sys/net/ipv4/udp_mem";
pub(super) const USED: &str = "/proc/net/sockstat";

/// `None` if the kernel does not show the limit, as in network namespaces.
pub(super) fn udp_memory(host: &Host) -> Result<Option<UdpMemory>, UnknownReason> {
    let limit = |text: &str| {
        let pages = text.split_whitespace().nth(2).and_then(|pages| pages.parse().ok());
        pages.ok_or_else(|| format!("'{}' is no three numbers", text.trim()))
    };
    let Some(limit_pages) = host.read_optional(LIMIT, limit).into_known()? else { return Ok(None) };
    let used_pages = |text: &str| used_pages(text).ok_or("no line 'UDP:' with 'mem'");
    Ok(Some(UdpMemory { limit_pages, used_pages: host.read_known(USED, used_pages).into_known()? }))
}

/// Reads a line such as `UDP: inuse 5 mem 258` (sockstat_seq_show, net/ipv4/proc.c).
fn used_pages(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("UDP:"))?;
    line.split_whitespace().skip_while(|word| *word != "mem").nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;

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
