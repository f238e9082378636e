// The load program's maps, and what sending and receiving have in common: words, checksums, where headers are.
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

// net/ethernet's own, but not for user space.
#define VLAN_BYTES 4
#define MAGIC 0x4c4e5201u
// What `serve echo` makes of it in a reply (networks/src/echo.rs).
#define REPLY_MAGIC 0x6c6e7201u
#define HEADER_BYTES 40
#define LOOK_EVERY 8
#define TRUNCATED 0x80

// linux/icmp.h and linux/icmpv6.h, which include what only hosts have.
#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3
#define ICMPV6_DEST_UNREACH 1
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

// Flow numbers plus one by a hash of their addresses and ports; 0 is free.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, 1);
} tuples SEC(".maps");

// Echo: a bit a request in view, set when it is answered. Else: twice the time it was meant to leave, plus that bit.
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

// Loads and stores of packet bytes at any alignment; the verifier allows them where the CPU does.
INLINE __u64 get64(const void *at) { return *(const __u64 *)at; }
INLINE __u32 get32(const void *at) { return *(const __u32 *)at; }
INLINE void put64(void *at, __u64 value) { *(volatile __u64 *)at = value; }
INLINE void put32(void *at, __u32 value) { *(volatile __u32 *)at = value; }
INLINE void put16(void *at, __u16 value) { *(volatile __u16 *)at = value; }

// Volatile, or the compiler takes it for the zeroes it is before user space has filled it.
INLINE __u64 fill64(__u32 at) { return *(const volatile __u64 *)(fill + at); }

INLINE __u64 add64(__u64 sum, __u64 words) { return sum + (__u32)words + (words >> 32); }

// RFC 1071, up to the complement.
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

// A step of the chain in header.rs.
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

// How many tags there are, less one.
INLINE __u64 tag_mask(void) { return settings.tag_bytes >= 8 ? ~0ull : (1ull << 8 * settings.tag_bytes) - 1; }

#endif
