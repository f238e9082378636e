// Delivers the datagrams of one UDP address to one socket, even if other sockets are bound to the
// address. Can be limited to datagrams from one address and port. Attached to a network namespace
// for a short time: while a second socket binds the address to create a reuseport group, or to
// probe one socket of a group.
//
// Program type sk_lookup: Linux 5.9 (bpf_sk_lookup of include/linux/filter.h).

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// bits/socket.h
#define AF_INET 2

struct {
    __uint(type, BPF_MAP_TYPE_SOCKMAP);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} redirect_socket SEC(".maps");

// Set before the program is loaded. Ports are in host byte order, addresses in network byte order,
// an IPv4 address in the first word. A from_port of 0 and an address of zeros match any.
const volatile __u16 local_port = 0;
const volatile __u16 from_port = 0;
const volatile __u32 local_address[4] = {};
const volatile __u32 from_address[4] = {};

// Whether the local or remote end of a packet has this address.
#define HAS(packet, end, address)                                                                                      \
    (!((address)[0] | (address)[1] | (address)[2] | (address)[3]) ||                                                   \
     ((packet)->end##_ip4 == (address)[0] && (packet)->family == AF_INET) ||                                           \
     ((packet)->end##_ip6[0] == (address)[0] && (packet)->end##_ip6[1] == (address)[1] &&                              \
      (packet)->end##_ip6[2] == (address)[2] && (packet)->end##_ip6[3] == (address)[3] &&                              \
      (packet)->family != AF_INET))

static __always_inline int is_meant(const struct bpf_sk_lookup *packet) {
    if (packet->protocol != IPPROTO_UDP || packet->local_port != local_port)
        return 0;
    if (from_port && packet->remote_port != bpf_htons(from_port))
        return 0;
    return HAS(packet, local, local_address) && HAS(packet, remote, from_address);
}

SEC("sk_lookup")
int linerate_redirect(struct bpf_sk_lookup *packet) {
    __u32 zero = 0;
    struct bpf_sock *socket;

    if (!is_meant(packet))
        return SK_PASS;
    socket = bpf_map_lookup_elem(&redirect_socket, &zero);
    if (!socket)
        return SK_PASS;
    // Fails if the socket cannot receive this address family. Then the kernel selects the socket.
    bpf_sk_assign(packet, socket, BPF_SK_LOOKUP_F_NO_REUSEPORT);
    bpf_sk_release(socket);
    return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
