//! The recipes of the paths.

use std::net::{Ipv4Addr, SocketAddr};

/// Port of the service on every path.
pub(super) const PORT: u16 = 7777;

/// A network path from the client (`sender0`) to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkPath {
    pub name: &'static str,
    /// The route of a request, in a few words.
    pub about: &'static str,
    /// The host of the service.
    pub service_host: &'static str,
    service: Ipv4Addr,
    target: Ipv4Addr,
    /// Lines `HOST: COMMAND`. A command that ends in `&` runs until the lab ends. Words in braces
    /// are placeholders.
    commands: &'static [&'static str],
}

pub(super) struct RecipeValues {
    /// A network namespace, as `ip link set ... netns` accepts it.
    pub(super) sender1: String,
    /// The object of bpf/forward.bpf.c.
    pub(super) object: String,
    pub(super) linerate: String,
}

/// A command and the lab's host that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathCommand {
    pub(super) host: &'static str,
    pub(super) line: String,
    /// Whether it runs until the lab ends.
    pub(super) stays: bool,
}

const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// An address of `sender1` in the client's network.
const IN_CLIENT_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const SENDER1: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 100);

const ROUTED: &str = "\
receiver: sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
sender0: ip route add default via 198.18.0.1
sender1: ip route add default via 198.18.1.1
";

const BRIDGED: &str = "\
receiver: ip link add br0 type bridge
receiver: ip link set eth0 master br0
receiver: ip link set br0 up
";

/// The network of a container behind a bridge of its own, as Docker makes it.
const CONTAINER: &str = "\
receiver: ip link add br0 type bridge
receiver: ip address flush dev eth1
receiver: ip link set eth1 master br0
receiver: ip address add 198.18.1.1/24 dev br0
receiver: ip link set br0 up
sender1: ip route add default via 198.18.1.1
";

/// A path to a container with an address in a network of its own.
const TO_CONTAINER: NetworkPath = NetworkPath {
    name: "",
    about: "",
    service_host: "sender1",
    service: SENDER1,
    target: SENDER1,
    commands: &[],
};

/// A path to a container with an address in the client's network.
const TO_CLIENT_NETWORK: NetworkPath =
    NetworkPath { service: IN_CLIENT_NETWORK, target: IN_CLIENT_NETWORK, ..TO_CONTAINER };

/// All paths. The other paths are compared with the first path.
pub const PATHS: [NetworkPath; 13] = [
    NetworkPath {
        name: "host",
        about: "the service on the host itself",
        service_host: "receiver",
        service: RECEIVER,
        target: RECEIVER,
        commands: &[],
    },
    NetworkPath {
        name: "routed",
        about: "routed by the host to a container",
        commands: &[ROUTED],
        ..TO_CONTAINER
    },
    NetworkPath {
        name: "bridge",
        about: "bridged by the host to a container",
        commands: &[
            BRIDGED,
            "\
receiver: ip link set eth1 master br0
sender1: ip address add 198.18.0.2/24 dev eth0
",
        ],
        ..TO_CLIENT_NETWORK
    },
    NetworkPath {
        name: "bridge-nat",
        about: "DNAT to a container on a bridge, as a published port of Docker",
        target: RECEIVER,
        commands: &[
            CONTAINER,
            "\
receiver: sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
receiver: nft add table ip nat
receiver: nft add chain ip nat prerouting '{ type nat hook prerouting priority dstnat; }'
receiver: nft add chain ip nat postrouting '{ type nat hook postrouting priority srcnat; }'
receiver: nft add rule ip nat prerouting fib daddr type local udp dport 7777 dnat to 198.18.1.100
receiver: nft add rule ip nat postrouting ip saddr 198.18.1.0/24 oifname != br0 masquerade
",
        ],
        ..TO_CONTAINER
    },
    NetworkPath {
        name: "userland-proxy",
        about: "a process on the host copies datagrams to a container, as docker-proxy",
        target: RECEIVER,
        commands: &[CONTAINER, "receiver: {linerate} lab relay udp 198.18.0.1:7777 198.18.1.100:7777 &\n"],
        ..TO_CONTAINER
    },
    NetworkPath {
        name: "macvlan",
        about: "a macvlan interface of a container on the host's interface",
        commands: &["\
receiver: ip link add link eth0 name mac0 type macvlan mode bridge
receiver: ip link set mac0 netns {sender1}
sender1: ip address add 198.18.0.2/24 dev mac0
sender1: ip link set mac0 up
"],
        ..TO_CLIENT_NETWORK
    },
    NetworkPath {
        name: "ipvlan",
        about: "an ipvlan interface (L2) of a container on the host's interface",
        commands: &["\
receiver: ip link add link eth0 name ipv0 type ipvlan mode l2
receiver: ip link set ipv0 netns {sender1}
sender1: ip address add 198.18.0.2/24 dev ipv0
sender1: ip link set ipv0 up
"],
        ..TO_CLIENT_NETWORK
    },
    NetworkPath {
        name: "netkit",
        about: "routed by the host to a container with a netkit pair",
        service: Ipv4Addr::new(198, 18, 2, 100),
        target: Ipv4Addr::new(198, 18, 2, 100),
        commands: &["\
receiver: ip link add name netkit0 type netkit
receiver: ip link set nk0 netns {sender1}
receiver: ip link set netkit0 up
receiver: ip route add 198.18.2.0/24 dev netkit0
receiver: sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
sender0: ip route add default via 198.18.0.1
sender1: ip address add 198.18.2.100/24 dev nk0
sender1: ip link set nk0 up
sender1: ip route add default dev nk0
"],
        ..TO_CONTAINER
    },
    NetworkPath {
        name: "ovs",
        about: "switched by Open vSwitch's module to a container, as OVN",
        // The flows that ovs-vswitchd would add with the first packets. Port 0 is ovs0 itself.
        commands: &["\
receiver: ovs-dpctl add-dp ovs0 eth0 eth1
receiver: ovs-dpctl add-flow ovs0 'in_port(1),eth(),eth_type(0x0806),arp()' 2
receiver: ovs-dpctl add-flow ovs0 'in_port(2),eth(),eth_type(0x0806),arp()' 1
receiver: ovs-dpctl add-flow ovs0 'in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)' 2
receiver: ovs-dpctl add-flow ovs0 'in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)' 1
sender1: ip address add 198.18.0.2/24 dev eth0
"],
        ..TO_CLIENT_NETWORK
    },
    NetworkPath {
        name: "vxlan",
        about: "bridged into a VXLAN tunnel to another host, as an overlay network of Kubernetes",
        commands: &[
            BRIDGED,
            "\
receiver: ip link add vx0 type vxlan id 7 dstport 4789 local 198.18.1.1 remote 198.18.1.100
receiver: ip link set vx0 master br0 up
sender1: ip link add vx0 type vxlan id 7 dstport 4789 local 198.18.1.100 remote 198.18.1.1
sender1: ip address add 198.18.0.2/24 dev vx0
sender1: ip link set vx0 up
",
        ],
        ..TO_CLIENT_NETWORK
    },
    NetworkPath {
        name: "tc-redirect",
        about: "BPF programs at tc redirect to a container and back, as Cilium",
        // A host of a lab has its own /sys, where tc and ip expect the BPF file system.
        commands: &[
            ROUTED,
            "\
receiver: tc qdisc add dev eth0 clsact
receiver: tc qdisc add dev eth1 clsact
receiver: sh -c 'mount -t bpf bpf /sys/fs/bpf && exec tc filter add dev eth0 ingress bpf direct-action object-file {object} section tc/container'
receiver: sh -c 'mount -t bpf bpf /sys/fs/bpf && exec tc filter add dev eth1 ingress bpf direct-action object-file {object} section tc/wire'
",
        ],
        ..TO_CONTAINER
    },
    NetworkPath {
        name: "xdp-redirect",
        about: "BPF programs at XDP redirect to a container and back",
        // Frames that XDP redirects enter a veth interface only through NAPI, and nothing completes
        // their checksums.
        commands: &[
            ROUTED,
            "\
sender0: ethtool -K eth0 gro on tx off
sender1: ethtool -K eth0 gro on tx off
receiver: sh -c 'mount -t bpf bpf /sys/fs/bpf && exec ip link set dev eth0 xdpdrv object {object} section xdp'
receiver: sh -c 'mount -t bpf bpf /sys/fs/bpf && exec ip link set dev eth1 xdpdrv object {object} section xdp'
",
        ],
        ..TO_CONTAINER
    },
    NetworkPath {
        name: "tap",
        about: "a process copies frames between two tap devices, as QEMU without vhost to a guest",
        commands: &[
            BRIDGED,
            "\
receiver: ip tuntap add tap0 mode tap
receiver: ip tuntap add tap1 mode tap
receiver: {linerate} lab relay tap tap0 tap1 &
receiver: ip link set tap0 master br0 up
receiver: ip link set tap1 netns {sender1}
sender1: ip address add 198.18.0.2/24 dev tap1
sender1: ip link set tap1 up
",
        ],
        ..TO_CLIENT_NETWORK
    },
];

impl NetworkPath {
    /// The path that the other paths are compared with.
    pub(super) const HOST: &'static Self = &PATHS[0];

    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PATHS.iter().find(|path| path.name == name)
    }

    pub(super) fn service_address(&self) -> SocketAddr {
        (self.service, PORT).into()
    }

    /// Address to which the client sends requests.
    pub(super) fn target(&self) -> SocketAddr {
        (self.target, PORT).into()
    }

    pub(super) fn commands(&self, values: &RecipeValues) -> Vec<PathCommand> {
        let lines = self.commands.iter().flat_map(|block| block.lines());
        let command = |(host, line): (&'static str, &str)| {
            let line = line
                .replace("{sender1}", &values.sender1)
                .replace("{object}", &values.object)
                .replace("{linerate}", &values.linerate);
            let stays = line.ends_with(" &");
            PathCommand { host, line: line.trim_end_matches(" &").to_owned(), stays }
        };
        lines.filter_map(|line| line.split_once(": ")).map(command).collect()
    }

    /// The commands to type, from the lab to the load.
    #[must_use]
    pub fn recipe(&self) -> Vec<String> {
        let values = RecipeValues {
            sender1: "$SENDER1".to_owned(),
            object: "bpf/forward.bpf.o".to_owned(),
            linerate: "linerate".to_owned(),
        };
        let mut lines = vec!["linerate lab up --senders 2".to_owned()];
        let commands = self.commands(&values);
        if commands.iter().any(|command| command.line.contains("$SENDER1")) {
            lines.push("linerate lab exec sender1 -- sleep 3600 & SENDER1=$!".to_owned());
        }
        let background_suffix = |stays| if stays { " &" } else { "" };
        lines.extend(commands.iter().map(|command| {
            format!(
                "linerate lab exec {} -- {}{}",
                command.host,
                command.line,
                background_suffix(command.stays)
            )
        }));
        lines.push(format!(
            "linerate lab exec {} -- linerate serve echo --bind {} &",
            self.service_host,
            self.service_address()
        ));
        lines.push(format!("linerate lab exec sender0 -- linerate load {} --search", self.target()));
        lines.push("linerate lab down".to_owned());
        lines
    }
}
