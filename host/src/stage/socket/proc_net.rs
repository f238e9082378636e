//! `/proc/net/udp` and similar files, for hosts without socket diagnosis.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::SocketProtocol;
use crate::netlink::DiagSocket;
use crate::root::Host;

/// Fields of a line: `sl local remote st tx:rx tr:tm retrnsmt uid timeout inode ref pointer drops`
/// (udp4_format_sock in net/ipv4/udp.c; `drops` since Linux 2.6.27).
const LOCAL: usize = 1;
const STATE: usize = 3;
const QUEUES: usize = 4;
const UID: usize = 7;
const INODE: usize = 9;
const DROPS: usize = 12;

/// First and last port.
pub(crate) type PortRange = (u16, u16);

/// Unconnected UDP sockets, or TCP listeners. Only UDP sockets have drops.
///
/// Addresses are words in the byte order of the captured machine; they are read as little-endian.
pub(crate) fn proc_net_sockets(text: &str, protocol: SocketProtocol) -> Result<Vec<DiagSocket>, String> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, header)| header);
    if !header.contains("local_address") {
        return Err("its first line does not name 'local_address'".to_owned());
    }
    // A truncated number is still a number.
    if !text.ends_with('\n') {
        return Err(format!("line {}: cut short", text.lines().count()));
    }
    let state = match protocol {
        SocketProtocol::Udp => "07",
        SocketProtocol::Tcp => "0A",
    };
    let has_drops = protocol == SocketProtocol::Udp && header.split_whitespace().any(|name| name == "drops");
    let mut sockets = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let parse_error = |item: &str| format!("line {}: no {item} in '{}'", index + 1, line.trim());
        let fields: Vec<&str> = line.split_whitespace().collect();
        let field = |number: usize| fields.get(number).copied();
        if field(STATE).ok_or_else(|| parse_error("state"))? != state {
            continue;
        }
        let queues = field(QUEUES).and_then(|queues| queues.split_once(':'));
        sockets.push(DiagSocket {
            local: field(LOCAL).and_then(address).ok_or_else(|| parse_error("local address"))?,
            inode: field(INODE).and_then(|inode| inode.parse().ok()).ok_or_else(|| parse_error("inode"))?,
            cookie: None,
            uid: field(UID).and_then(|uid| uid.parse().ok()).ok_or_else(|| parse_error("uid"))?,
            interface_index: 0,
            queued: queues
                .and_then(|(_, queued)| u64::from_str_radix(queued, 16).ok())
                .ok_or_else(|| parse_error("rx_queue"))?,
            receive_buffer_bytes: None,
            drops: match field(DROPS).map(str::parse) {
                Some(Ok(drops)) if has_drops => Some(drops),
                _ if has_drops => return Err(parse_error("drops")),
                _ => None,
            },
            v6_only: None,
        });
    }
    Ok(sockets)
}

/// Datagrams dropped at a full receive buffer, of all unconnected UDP sockets on this port, since
/// each socket was opened.
///
/// # Errors
/// The message names the file that cannot be read, and the reason.
pub fn udp_socket_drops(host: &Host, port: u16) -> Result<u64, String> {
    let mut drops = 0;
    // The files of the calling thread's network namespace. Without IPv6 the second file is missing.
    for (path, is_optional) in [("/proc/thread-self/net/udp", false), ("/proc/thread-self/net/udp6", true)] {
        let sockets = match host.read_parsed(path, |text| proc_net_sockets(text, SocketProtocol::Udp)) {
            Ok(sockets) => sockets,
            Err(error) if is_optional && error.is_missing() => continue,
            Err(error) => return Err(error.to_string()),
        };
        let port_sockets = sockets.iter().filter(|socket| socket.local.port() == port);
        drops += port_sockets.filter_map(|socket| socket.drops).sum::<u64>();
    }
    Ok(drops)
}

/// The local ports of all UDP sockets of the calling thread's network namespace, in any state.
pub fn bound_udp_ports() -> BTreeSet<u16> {
    ["udp", "udp6"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok())
        .flat_map(|text| {
            let fields = text.lines().filter_map(|line| line.split_whitespace().nth(LOCAL));
            fields.filter_map(address).map(|local| local.port()).collect::<Vec<_>>()
        })
        .collect()
}

/// Reads `0100007F:0035`, or four words for IPv6.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let word = |range| Some(u32::from_str_radix(words.get(range)?, 16).ok()?.to_le_bytes());
    let ip = match words.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0..8)?)),
        32 => {
            let bytes = [word(0..8)?, word(8..16)?, word(16..24)?, word(24..32)?].concat();
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Reads `32768\t60999`, as in `/proc/sys/net/ipv4/ip_local_port_range`.
pub fn port_range(text: &str) -> Option<(u16, u16)> {
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next()?, ports.next()?) {
        (Ok(first), Ok(last)) => Some((first, last)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops            \n\
        \x20 493: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 20164 2 0000000000000000 0         \n\
        \x20 700: 00000000:1F40 00000000:0000 07 00000000:00034800 00:00000000 00000000     0        0 31337 2 0000000000000000 8123      \n\
        \x20 812: 0100007F:A2C1 0100007F:0035 01 00000000:00000000 00:00000000 00000000     0        0 31400 2 0000000000000000 0         \n";
    const UDP6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
        \x20 493: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20170 2 0000000000000000 0\n";
    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n\
        \x20  0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1658 1 00000000d2f75115 100 0 0 10 0                      \n\
        \x20  1: 0100007F:C0A2 0100007F:D6B7 06 00000000:00000000 03:0000176A 00000000     0        0 0 3 0000000088be337a                                      \n";

    #[test]
    fn only_unconnected_udp_sockets_are_read() {
        let sockets = proc_net_sockets(UDP, SocketProtocol::Udp).expect("read");
        let locals: Vec<String> = sockets.iter().map(|socket| socket.local.to_string()).collect();
        assert_eq!(locals, ["127.0.0.53:53", "0.0.0.0:8000"]);
        assert_eq!((sockets[1].inode, sockets[1].queued), (31_337, 0x34800));
        assert_eq!((sockets[1].drops, sockets[0].uid), (Some(8123), 101));
        let sockets = proc_net_sockets(UDP6, SocketProtocol::Udp).expect("read");
        assert_eq!(sockets[0].local.to_string(), "[::1]:53");
    }

    #[test]
    fn tcp_listeners_have_no_drop_count() {
        let sockets = proc_net_sockets(TCP, SocketProtocol::Tcp).expect("read");
        assert_eq!((sockets.len(), sockets[0].drops, sockets[0].local.port()), (1, None, 2024));
    }

    #[test]
    fn malformed_socket_files_are_errors_with_the_line() {
        let error = proc_net_sockets(&UDP[..UDP.len() - 160], SocketProtocol::Udp).expect_err("cut");
        assert_eq!(error, "line 3: cut short");
        let error = proc_net_sockets(&UDP.replace(" 8123", ""), SocketProtocol::Udp).expect_err("no drops");
        assert!(error.starts_with("line 3: no drops in '700: "), "{error}");
        let error = proc_net_sockets("", SocketProtocol::Udp).expect_err("empty");
        assert_eq!(error, "its first line does not name 'local_address'");
        assert_eq!(port_range("32768\t60999\n"), Some((32_768, 60_999)));
        assert_eq!(port_range("32768\n"), None);
    }

    #[test]
    fn udp_drops_are_read_per_port() {
        let two_sockets = format!("{UDP}{}\n", UDP.lines().nth(2).expect("port 8000"));
        let udp6 = UDP6.replace(" 0\n", " 5\n");
        let files = [("/proc/thread-self/net/udp", two_sockets), ("/proc/thread-self/net/udp6", udp6)];
        let host = Host::scripted(files);
        assert_eq!(udp_socket_drops(&host, 0x1F40), Ok(2 * 8123));
        assert_eq!(udp_socket_drops(&host, 53), Ok(5));
        let without_ipv6 = Host::scripted([("/proc/thread-self/net/udp", UDP)]);
        assert_eq!(udp_socket_drops(&without_ipv6, 0x1F40), Ok(8123));
    }
}
