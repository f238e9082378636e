// Hands the datagrams of one UDP address to one socket, whichever other sockets are bound to it, or only those that come from
// one address and port. Attached to a network namespace for a moment: before a socket joins the group of another, or to ask one socket of
// a group.
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

// Set before the program is loaded. A port of 0 is any; an address of zeros, too.
const volatile __u16 local_port = 0;
const volatile __u16 from_port = 0;
const volatile __u32 local_address[4] = {};
const volatile __u32 from_address[4] = {};

static __always_inline int is_unspecified(const volatile __u32 *address) {
    return !(address[0] | address[1] | address[2] | address[3]);
}

static __always_inline int is_meant(const struct bpf_sk_lookup *packet) {
    if (packet->protocol != IPPROTO_UDP || packet->local_port != local_port)
        return 0;
    if (from_port && packet->remote_port != bpf_htons(from_port))
        return 0;
    if (packet->family == AF_INET)
        return (is_unspecified(local_address) || packet->local_ip4 == local_address[0]) &&
               (is_unspecified(from_address) || packet->remote_ip4 == from_address[0]);
    return (is_unspecified(local_address) ||
            (packet->local_ip6[0] == local_address[0] && packet->local_ip6[1] == local_address[1] &&
             packet->local_ip6[2] == local_address[2] && packet->local_ip6[3] == local_address[3])) &&
           (is_unspecified(from_address) ||
            (packet->remote_ip6[0] == from_address[0] && packet->remote_ip6[1] == from_address[1] &&
             packet->remote_ip6[2] == from_address[2] && packet->remote_ip6[3] == from_address[3]));
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
    // Of another family, it is left to the kernel.
    bpf_sk_assign(packet, socket, BPF_SK_LOOKUP_F_NO_REUSEPORT);
    bpf_sk_release(socket);
    return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
