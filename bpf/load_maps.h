// Maps of the load program, and functions for both sending and receiving: loads and stores,
// checksums, header offsets.
#ifndef LINERATE_LOAD_MAPS_H
#define LINERATE_LOAD_MAPS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load.h"

#define INLINE static __always_inline

// VLAN_HLEN of include/linux/if_vlan.h, which the UAPI headers lack.
#define VLAN_BYTES 4
// Bytes of an IPv6 fragment header (RFC 8200, section 4.5).
#define FRAGMENT_BYTES 8
#define MAGIC 0x4c4e5201u
// Replaces MAGIC in a reply of `serve echo` (networks/src/echo.rs).
#define REPLY_MAGIC 0x6c6e7201u
#define HEADER_BYTES 40
#define LOOK_EVERY 8
#define TRUNCATED 0x80

// From linux/icmp.h and linux/icmpv6.h, which include headers that the BPF target lacks.
#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_PORT_UNREACH 4

const volatile struct settings settings;
const volatile __u8 fill[FILL_BYTES];

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct row);
    __uint(max_entries, 1);
} rows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct flow);
    __uint(max_entries, 1);
} flows SEC(".maps");

// Hash table with linear probing, by addresses and ports. Value: flow number plus one; 0 if free.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, 1);
} tuples SEC(".maps");

// Echo: one bit per request in view, set when the request is answered. Otherwise one word per
// request: its intended time in ns, shifted left by 1, with that bit as bit 0.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 1);
} views SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct request);
    __uint(max_entries, 1);
} requests SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} verdicts SEC(".maps");

// Loads and stores of packet bytes at any alignment. The verifier accepts them if the CPU does.
INLINE __u64 get64(const void *at) { return *(const __u64 *)at; }
INLINE __u32 get32(const void *at) { return *(const __u32 *)at; }
INLINE void put64(void *at, __u64 value) { *(volatile __u64 *)at = value; }
INLINE void put32(void *at, __u32 value) { *(volatile __u32 *)at = value; }
INLINE void put16(void *at, __u16 value) { *(volatile __u16 *)at = value; }

// Volatile, because user space fills `fill` before loading and the compiler would assume zeros.
INLINE __u64 fill64(__u32 at) { return *(const volatile __u64 *)(fill + at); }

INLINE __u64 add64(__u64 sum, __u64 words) { return sum + (__u32)words + (words >> 32); }

// RFC 1071 checksum without the final complement.
INLINE __u16 fold(__u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

// RFC 768: a checksum of zero is sent as all ones.
INLINE __u16 udp_checksum(__u64 sum) {
    __u16 checksum = ~fold(sum);
    return checksum ? checksum : 0xffff;
}

// One step of the checksum chain of load/src/header.rs.
INLINE __u32 step(__u32 state, __u32 word) {
    state = (state ^ word) * 0x85ebca6b;
    return state << 15 | state >> 17;
}

INLINE __u32 step64(__u32 state, __u64 words) { return step(step(state, words >> 32), words); }

INLINE __u32 ip_offset(void) { return ETH_HLEN + (settings.vlan ? VLAN_BYTES : 0); }
INLINE __u32 udp_offset(void) {
    return ip_offset() + (settings.ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}
INLINE __u32 payload_offset(void) { return udp_offset() + sizeof(struct udphdr); }

// Number of different tags, minus one.
INLINE __u64 tag_mask(void) { return settings.tag_bytes >= 8 ? ~0ull : (1ull << 8 * settings.tag_bytes) - 1; }

#endif
