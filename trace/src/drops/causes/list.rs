//! The causes: names, descriptions and remedies.

use super::LossCause;

const fn cause(name: &'static str, what: &'static str, remedy: &'static str) -> LossCause {
    LossCause { name, what, remedy, finding: None }
}

const fn cause_with_finding(
    name: &'static str,
    what: &'static str,
    remedy: &'static str,
    finding: &'static str,
) -> LossCause {
    LossCause { name, what, remedy, finding: Some(finding) }
}

/// In packet order.
pub(super) const CAUSES: &[LossCause] = &[
    // Generator and wire.
    cause(
        "reply-lost",
        "the reply left this host and did not reach the generator in time",
        "Count on the generator's host as well: its rings and receive buffers lose packets as ours do",
    ),
    cause(
        "reply-late",
        "the reply came when the generator had given its request up",
        "See what delays it: linerate load shows latencies",
    ),
    // Device.
    cause_with_finding(
        "device-lost",
        "the device or its driver had no room for it",
        "Give the rings more descriptors (ethtool -G), use more queues, and keep their CPUs free",
        "link.hardware-drops",
    ),
    cause_with_finding(
        "allowance",
        "the instance's allowance was used up",
        "Take a larger instance, or spread the load over several",
        "link.allowance-exceeded",
    ),
    cause("damaged-frame", "the frame came damaged", "Look at cable, transceiver and the switch's port"),
    cause(
        "driver-dropped",
        "the driver dropped it before the network stack saw it",
        "See the driver's own statistics (ethtool -S)",
    ),
    cause(
        "device-down",
        "the device was not up",
        "Set the device up and keep it up while packets are to arrive",
    ),
    cause(
        "xdp-drop",
        "an XDP program dropped it",
        "See which program is on the device (ip link, bpftool net), and what it drops",
    ),
    cause(
        "xdp-failed",
        "an XDP program failed, or what it sent or redirected could not leave",
        "See the tracepoint xdp:xdp_exception and the program's map of targets",
    ),
    // Softirq.
    cause_with_finding(
        "backlog-full",
        "the backlog of its CPU was full",
        "Spread the load over more CPUs; a longer net.core.netdev_max_backlog helps with bursts only",
        "softirq.backlog-drops",
    ),
    cause_with_finding(
        "flow-limit",
        "its flow had filled half of the backlog of a CPU that is short of room",
        "Spread the flow's packets over several CPUs, or remove those CPUs from net.core.flow_limit_cpu_bitmap",
        "softirq.backlog-drops",
    ),
    // Before the protocols.
    cause(
        "tc-ingress",
        "a tc filter or program dropped it on its way in",
        "See tc filter show dev DEVICE ingress",
    ),
    cause(
        "tc-egress",
        "a tc filter or program dropped it on its way out",
        "See tc filter show dev DEVICE egress",
    ),
    cause("no-protocol", "no protocol of this kernel receives such frames", ""),
    cause(
        "bridge",
        "a bridge or tunnel refused it, such as a bridge whose port for its destination is down",
        "See the state of the bridge's ports, and the port of its destination (bridge link, bridge fdb)",
    ),
    // Netfilter.
    cause(
        "netfilter-rule",
        "a rule of netfilter dropped it",
        "See the counters of the rules (nft list ruleset, iptables -vnL), or nft monitor trace for the very rule",
    ),
    cause_with_finding(
        "conntrack-full",
        "connection tracking had no room for its flow, or could not enter it",
        "Exempt the service from tracking (notrack in a raw chain), or enlarge nf_conntrack_max",
        "filter.conntrack-for-udp",
    ),
    cause("policy", "a policy of IPsec refused it", "See ip xfrm policy"),
    cause("security-module", "a security module (SELinux, Smack) refused it", "See the audit log"),
    cause(
        "cgroup-program",
        "a BPF program of its cgroup refused it",
        "See bpftool cgroup tree; systemd's IPAddressDeny= is such a program",
    ),
    // IP.
    cause_with_finding(
        "rp-filter",
        "the reverse-path filter: an answer to its source would leave by another interface",
        "Set rp_filter of the interface to 2 (loose) or 0, or fix the route back to the source",
        "route.reverse-path-drops",
    ),
    cause(
        "martian",
        "its source or destination cannot be on this interface (a martian)",
        "See who sends from such an address; net.ipv4.conf.*.log_martians names them",
    ),
    cause(
        "hops-used-up",
        "it had passed as many routers as it may (TTL or hop limit)",
        "See traceroute ADDRESS: a loop of routes, or a sender that sets a low TTL",
    ),
    cause(
        "blackhole-route",
        "its route is a blackhole",
        "See ip route show type blackhole, and who sets it (a routing daemon, protection against floods)",
    ),
    cause("prohibit-route", "its route prohibits it", "See ip route show type prohibit, and ip rule"),
    cause(
        "unreachable-route",
        "its route is unreachable, or this host does not forward",
        "See ip route get ADDRESS, ip route show type unreachable and net.ipv4.ip_forward",
    ),
    cause("no-route", "there is no route to its destination", "See ip route get ADDRESS"),
    cause(
        "not-for-us",
        "its hardware address is another host's",
        "See who floods frames: a switch that has not learned the address, or promiscuous mode",
    ),
    cause("bad-header", "its IP header is wrong or too short", "See who sends such packets"),
    cause("bad-ip-checksum", "the checksum of its IP header is wrong", "See who damages packets on the way"),
    cause(
        "too-big",
        "it is larger than the path allows",
        "Keep datagrams below the MTU, or see why ICMP does not reach the sender",
    ),
    cause(
        "fragment",
        "a fragment: its others did not come in time, or came twice",
        "Keep datagrams below the MTU",
    ),
    cause("no-ipv6", "IPv6 is off on the device", "Set net.ipv6.conf.DEVICE.disable_ipv6 to 0"),
    cause("no-transport", "no handler for its transport protocol", ""),
    // Socket.
    cause(
        "no-socket",
        "no socket is bound to its port and address",
        "See whether the server runs and what it is bound to (ss -ulpn)",
    ),
    cause(
        "bad-checksum",
        "its UDP checksum is wrong",
        "See who damages packets on the way, and checksum offloads that do not work (ethtool -K)",
    ),
    cause("bad-length", "it is shorter than its headers require", "See who sends such packets"),
    cause_with_finding(
        "receive-buffer",
        "the receive buffer of its socket was full",
        "Have the server read faster: more threads, each with its own socket; a larger buffer helps with bursts only",
        "socket.receive-drops",
    ),
    cause_with_finding(
        "udp-memory",
        "UDP as a whole had used up its memory",
        "Raise net.ipv4.udp_mem, or find who leaves its sockets unread",
        "socket.receive-drops",
    ),
    cause(
        "socket-filter",
        "the socket's own filter refused it",
        "See the program that the server attached (SO_ATTACH_FILTER, SO_ATTACH_BPF; ss -b)",
    ),
    cause("memory", "the kernel had no memory for it", "See free memory and vm.min_free_kbytes"),
    cause(
        "segmentation",
        "it could not be cut into the packets that it stood for",
        "Try without the device's offloads of segmentation (ethtool -K)",
    ),
    // Application.
    cause("unread", "its socket was closed before it was read", ""),
    cause(
        "bad-checksum-read",
        "its UDP checksum was found wrong when it was read",
        "See who damages packets on the way",
    ),
    cause("copy-failed", "it could not be copied to the program's memory", "See the program's buffers"),
    cause(
        "truncated",
        "the program's buffer was shorter than the datagram",
        "Have the server read with a larger buffer; it sees MSG_TRUNC in such cases",
    ),
    cause(
        "not-answered",
        "the program read it and sent nothing for it",
        "See the server's own log and limits (rate limiting, access lists, malformed requests)",
    ),
    cause(
        "send-failed",
        "the send call failed",
        "See the error that the server gets (strace -f -e trace=sendmsg,sendto,sendmmsg)",
    ),
    // Transmit.
    cause(
        "no-neighbour",
        "the next hop's hardware address could not be found",
        "See ip neigh; the next hop does not answer ARP or neighbour discovery",
    ),
    cause_with_finding(
        "qdisc-limit",
        "the queueing discipline was full",
        "Find what the link waits for; a longer queue helps with bursts only (tc qdisc replace dev DEVICE root KIND limit N)",
        "transmit.qdisc-drops",
    ),
    cause_with_finding(
        "qdisc-drop",
        "the queueing discipline dropped it",
        "See tc -s qdisc show dev DEVICE for which one and why",
        "transmit.qdisc-drops",
    ),
    cause_with_finding(
        super::TAP_FULL,
        "the queue of the tap was full, because its virtual machine or program does not empty it",
        "Give the virtual machine's interface several queues, or free the CPU of its vhost thread; for bursts, lengthen \
         the queue (ip link set TAP txqueuelen N)",
        "link.tap-drops",
    ),
    cause(
        super::TRANSMIT_RING,
        "the device or its driver did not accept it",
        "See the driver's own statistics (ethtool -S), and whether the other end is up and keeps up",
    ),
    cause("loop", "it went through too many devices", "See how the devices are stacked"),
];
