//! Sockets and protocols: `/proc/net/udp`, `tcp`, `snmp`, `netstat`.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::specimen::{Kernel, Tree};

/// A UDP socket that is bound and not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocket {
    /// The address it is bound to.
    pub local: SocketAddr,
    pub inode: u64,
    pub cookie: u64,
    /// Memory of what waits in its receive queue, in bytes.
    pub queued_bytes: u32,
    /// Its receive buffer in bytes.
    pub receive_buffer: u32,
    pub drops: u32,
    /// Whether it is bound with SO_REUSEPORT.
    pub reuseport: bool,
}

/// A listening TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// The address it is bound to.
    pub local: SocketAddr,
    pub inode: u64,
    pub cookie: u64,
}

/// Counters of UDP in `/proc/net/snmp`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpCounts {
    /// Packets delivered to sockets and read.
    pub in_datagrams: u64,
    /// Packets for no socket.
    pub no_ports: u64,
    pub in_errors: u64,
    pub out_datagrams: u64,
    /// Of `in_errors`, those for which the socket's buffer was full.
    pub receive_buffer_errors: u64,
}

/// There is no such system call.
const ENOSYS: i32 = 38;

const UDP_HEADER: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops             \n";
const UDP6_HEADER: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr \
                           tm->when retrnsmt   uid  timeout inode ref pointer drops\n";
const TCP_HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n";
const TCP6_HEADER: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr \
                           tm->when retrnsmt   uid  timeout inode\n";

pub(crate) fn write(tree: &mut Tree, kernel: Kernel, udp: &[UdpSocket], tcp: &[Listener], counts: UdpCounts) {
    for (v6, protocol, mut text) in
        [(false, "udp", UDP_HEADER.to_owned()), (true, "udp6", UDP6_HEADER.to_owned())]
    {
        for (slot, socket) in udp.iter().filter(|socket| socket.local.is_ipv6() == v6).enumerate() {
            text.push_str(&udp_line(slot, socket));
        }
        tree.file(format!("/proc/net/{protocol}"), text);
    }
    for (v6, protocol, mut text) in
        [(false, "tcp", TCP_HEADER.to_owned()), (true, "tcp6", TCP6_HEADER.to_owned())]
    {
        for (slot, socket) in tcp.iter().filter(|socket| socket.local.is_ipv6() == v6).enumerate() {
            text.push_str(&tcp_line(slot, socket));
        }
        tree.file(format!("/proc/net/{protocol}"), text);
    }
    write_answers(tree, kernel, udp, tcp);
    tree.file("/proc/net/snmp", snmp(kernel, counts));
    tree.file("/proc/net/netstat", netstat(counts));
}

/// What sock_diag lists, and what a copy of each descriptor tells, which takes `pidfd_getfd` (Linux 5.6).
fn write_answers(tree: &mut Tree, kernel: Kernel, udp: &[UdpSocket], tcp: &[Listener]) {
    for (v6, family) in [(false, 4), (true, 6)] {
        let sockets = udp.iter().filter(|socket| socket.local.is_ipv6() == v6).map(|socket| {
            json!({
                "local": socket.local.to_string(), "inode": socket.inode, "cookie": socket.cookie, "queued": socket.queued_bytes,
                "receive_buffer_bytes": socket.receive_buffer, "drops": socket.drops,
            })
        });
        tree.call(&format!("sock_diag/udp{family}"), &sockets.collect());
        let listeners = tcp.iter().filter(|socket| socket.local.is_ipv6() == v6).map(|socket| {
            json!({ "local": socket.local.to_string(), "inode": socket.inode, "cookie": socket.cookie })
        });
        tree.call(&format!("sock_diag/tcp{family}"), &listeners.collect());
    }
    tree.call("reuseport/udp", &choosers(kernel, udp));
    let options = |inode: u64, reuseport: bool, buffer: u32| {
        let key = format!("socket/{inode}/options");
        let set = json!({ "reuseport": reuseport, "incoming_cpu": null, "gro": false, "receive_buffer_bytes": buffer });
        (key, if kernel.at_least(5, 6) { set } else { json!({ "errno": ENOSYS }) })
    };
    let udp = udp.iter().map(|socket| options(socket.inode, socket.reuseport, socket.receive_buffer));
    for (key, answer) in udp.chain(tcp.iter().map(|socket| options(socket.inode, false, 131_072))) {
        tree.call(&key, &answer);
    }
}

/// What chooses in each reuseport group, told by a BPF iterator (Linux 5.9): in these, a program by CPU.
fn choosers(kernel: Kernel, udp: &[UdpSocket]) -> Value {
    if !kernel.at_least(5, 9) {
        return json!({ "error": "no BTF in /sys/kernel/btf/vmlinux" });
    }
    let members = udp.iter().filter(|socket| socket.reuseport).enumerate();
    members
        .map(
            |(place, socket)| json!({ "cookie": socket.cookie, "place": place, "chooser": "classic_by_cpu" }),
        )
        .collect()
}

/// udp4_format_sock in net/ipv4/udp.c; padded to 127 letters by udp4_seq_show.
fn udp_line(slot: usize, socket: &UdpSocket) -> String {
    let UdpSocket { queued_bytes, inode, drops, .. } = socket;
    let pointer = 0xffff_8808_5f00_0000_u64 + inode * 0x400;
    let line = format!(
        "{:5}: {} {} 07 00000000:{queued_bytes:08X} 00:00000000 00000000     0        0 {inode} 2 {pointer:016x} {drops}",
        2000 + slot,
        address(socket.local),
        any(socket.local),
    );
    if socket.local.is_ipv6() { format!("{line}\n") } else { format!("{line:<127}\n") }
}

/// get_openreq4 and get_tcp4_sock in net/ipv4/tcp_ipv4.c; 0A is TCP_LISTEN.
fn tcp_line(slot: usize, socket: &Listener) -> String {
    let Listener { local, inode, .. } = socket;
    let line = format!(
        "{slot:4}: {} {} 0A 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 {:016x} 100 0 0 10 0",
        address(*local),
        any(*local),
        0xffff_8808_6f00_0000_u64 + inode * 0x400,
    );
    if local.is_ipv6() { format!("{line}\n") } else { format!("{line:<149}\n") }
}

/// Words of an address in the byte order of the (little-endian) host.
fn address(address: SocketAddr) -> String {
    let words = match address.ip() {
        IpAddr::V4(ip) => format!("{:08X}", u32::from_le_bytes(ip.octets())),
        IpAddr::V6(ip) => ip
            .octets()
            .chunks_exact(4)
            .map(|word| format!("{:02X}{:02X}{:02X}{:02X}", word[3], word[2], word[1], word[0]))
            .collect(),
    };
    format!("{words}:{:04X}", address.port())
}

fn any(like: SocketAddr) -> String {
    format!("{}:0000", "0".repeat(if like.is_ipv6() { 32 } else { 8 }))
}

fn pair(text: &mut String, name: &str, counters: &[(&str, u64)]) {
    let names: Vec<&str> = counters.iter().map(|(name, _)| *name).collect();
    let values: Vec<String> = counters.iter().map(|(_, value)| value.to_string()).collect();
    let _ = writeln!(text, "{name}: {}\n{name}: {}", names.join(" "), values.join(" "));
}

/// snmp_seq_show in net/ipv4/proc.c.
fn snmp(kernel: Kernel, counts: UdpCounts) -> String {
    let received = counts.in_datagrams + counts.no_ports + counts.in_errors;
    let mut text = String::new();
    pair(
        &mut text,
        "Ip",
        &[
            ("Forwarding", 2),
            ("DefaultTTL", 64),
            ("InReceives", received),
            ("InHdrErrors", 0),
            ("InAddrErrors", 0),
            ("ForwDatagrams", 0),
            ("InUnknownProtos", 0),
            ("InDiscards", 0),
            ("InDelivers", received),
            ("OutRequests", counts.out_datagrams),
            ("OutDiscards", 0),
            ("OutNoRoutes", 0),
        ],
    );
    pair(&mut text, "Icmp", &[("InMsgs", 0), ("InErrors", 0), ("InCsumErrors", 0)]);
    pair(
        &mut text,
        "Tcp",
        &[("RtoAlgorithm", 1), ("RtoMin", 200), ("ActiveOpens", 3), ("InSegs", 5151), ("OutSegs", 4242)],
    );
    let mut udp = vec![
        ("InDatagrams", counts.in_datagrams),
        ("NoPorts", counts.no_ports),
        ("InErrors", counts.in_errors),
        ("OutDatagrams", counts.out_datagrams),
        ("RcvbufErrors", counts.receive_buffer_errors),
        ("SndbufErrors", 0),
        ("InCsumErrors", 0),
        ("IgnoredMulti", 0),
    ];
    if kernel.at_least(5, 16) {
        udp.push(("MemErrors", 0));
    }
    pair(&mut text, "Udp", &udp);
    text
}

fn netstat(counts: UdpCounts) -> String {
    let mut text = String::new();
    pair(
        &mut text,
        "TcpExt",
        &[("SyncookiesSent", 0), ("ListenOverflows", 0), ("ListenDrops", 0), ("IPReversePathFilter", 0)],
    );
    let octets = counts.in_datagrams.saturating_mul(128);
    pair(
        &mut text,
        "IpExt",
        &[("InNoRoutes", 0), ("InTruncatedPkts", 0), ("InMcastPkts", 0), ("InOctets", octets)],
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_the_hosts_byte_order() {
        assert_eq!(address("127.0.0.1:53".parse().expect("an address")), "0100007F:0035");
        assert_eq!(address("[::1]:53".parse().expect("an address")), "00000000000000000000000001000000:0035");
    }
}
