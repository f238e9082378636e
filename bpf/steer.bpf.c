// Selects a socket of a reuseport group for each packet: one that the table assigns to the CPU that
// processes the packet. The program is attached by SO_ATTACH_REUSEPORT_EBPF to a group of another
// process. The program and its maps exist until it is detached or the group ends. It drops no
// packets: if it selects no socket, the kernel selects one by hash.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

// Most sockets of a CPU that are tried per packet. The next one is tried if a socket is closed.
#define TRIES 64

#define FIRST_MASK 0xffffffff

// An entry of a table. The entry at the index of a CPU refers to the entries of the CPU's sockets,
// which follow the entries of all CPUs.
struct entry {
    // Socket entry: the cookie, which only user space reads. CPU entry: 0.
    __u64 cookie;
    // CPU entry: index of its first socket entry, and their number in the upper 32 bits.
    // Socket entry: index in steer_sockets.
    __u64 place;
};

// host/src/setting/steering/program.rs finds the maps by name. At load it sets the number of
// entries of steer_sockets, steer_chosen, steer_ids and steer_flows.

// The kernel removes a socket that is closed (bpf_sk_reuseport_detach of
// kernel/bpf/reuseport_array.c). Values have 8 bytes, so that user space can read socket cookies.
struct {
    __uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u64));
} steer_sockets SEC(".maps");

// The active table. Tables are not changed but replaced, so a packet sees the old or the new one.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 1);
    __type(key, __u32);
    __array(
        values, struct {
            __uint(type, BPF_MAP_TYPE_ARRAY);
            __uint(max_entries, 1);
            __uint(map_flags, BPF_F_INNER_MAP);
            __uint(key_size, sizeof(__u32));
            __uint(value_size, sizeof(struct entry));
        });
} steer_tables SEC(".maps");

// Packets per socket, by the socket's index in steer_sockets.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} steer_chosen SEC(".maps");

// Packets without a selected socket, for which the kernel uses its hash.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} steer_hashed SEC(".maps");

// Maximum length of a QUIC connection ID (RFC 9000, 17.2).
#define ID_BYTES 20

struct connection_id {
    __u32 length;
    __u8 bytes[ID_BYTES];
};

// Set before loading: whether QUIC connection IDs select the socket. If 0, steer_ids and
// steer_flows have one entry each.
const volatile __u8 follow_ids = 0;

// From a connection ID to the index of its socket in steer_sockets. The server chose the ID, or the
// client did before it knew the server's ID.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1);
    __type(key, struct connection_id);
    __type(value, __u32);
} steer_ids SEC(".maps");

// The same from the kernel's hash of the packet's addresses and ports.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} steer_flows SEC(".maps");

// Bit n: servers chose IDs of n bytes. A short header does not contain the length of its ID.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} steer_lengths SEC(".maps");

static __always_inline void count(void *counters, __u32 place) {
    __u64 *counter = bpf_map_lookup_elem(counters, &place);

    if (counter)
        ++*counter;
}

// Selects one of the CPU's sockets by the packet's hash, so that a flow keeps its socket; the next
// one if that socket is closed. Returns whether one was selected, and its index.
static __always_inline int select(struct sk_reuseport_md *packet, void *table, __u32 cpu, __u32 *chosen) {
    struct entry *row = bpf_map_lookup_elem(table, &cpu), *socket;
    __u32 first, members, turn, at, place, i;

    if (!row)
        return 0;
    first = row->place & FIRST_MASK;
    members = row->place >> 32;
    turn = ((__u64)packet->hash * members) >> 32;
    for (i = 0; i < TRIES && i < members; i++) {
        at = first + turn;
        socket = bpf_map_lookup_elem(table, &at);
        if (!socket)
            return 0;
        place = socket->place;
        if (!bpf_sk_select_reuseport(packet, &steer_sockets, &place, 0)) {
            count(&steer_chosen, place);
            *chosen = place;
            return 1;
        }
        turn = turn + 1 < members ? turn + 1 : 0;
    }
    return 0;
}

static __always_inline int select_place(struct sk_reuseport_md *packet, const __u32 *known, __u32 *chosen) {
    __u32 place;

    if (!known)
        return 0;
    place = *known;
    if (bpf_sk_select_reuseport(packet, &steer_sockets, &place, 0))
        return 0;
    count(&steer_chosen, place);
    *chosen = place;
    return 1;
}

// Reads an ID at offset `at` of the UDP payload. The packet data begins at the 8-byte UDP header.
static __always_inline int read_id(struct sk_reuseport_md *packet, __u32 at, __u32 length, struct connection_id *id) {
    __builtin_memset(id, 0, sizeof(*id));
    id->length = length;
    if (!length || length > ID_BYTES)
        return 0;
    return !bpf_skb_load_bytes(packet, 8 + at, id->bytes, length);
}

// A long header contains the length of the ID (payload byte 5). The first ID of a flow is the
// client's choice, and is assigned to the flow's socket. A later, unknown ID on a known flow is the
// choice of that socket's server.
static __always_inline int follow_long(struct sk_reuseport_md *packet, void *table, __u32 cpu) {
    struct connection_id id = {};
    __u32 zero = 0, hash = packet->hash, place = 0, *flow, *lengths;
    __u8 length = 0;
    int has_id;

    if (bpf_skb_load_bytes(packet, 8 + 5, &length, 1))
        return select(packet, table, cpu, &place);
    has_id = read_id(packet, 6, length, &id);
    if (has_id && select_place(packet, bpf_map_lookup_elem(&steer_ids, &id), &place)) {
        bpf_map_update_elem(&steer_flows, &hash, &place, BPF_ANY);
        return 1;
    }
    flow = bpf_map_lookup_elem(&steer_flows, &hash);
    if (select_place(packet, flow, &place)) {
        lengths = bpf_map_lookup_elem(&steer_lengths, &zero);
        if (has_id && lengths)
            __sync_fetch_and_or(lengths, 1 << id.length);
    } else if (!select(packet, table, cpu, &place)) {
        return 0;
    }
    bpf_map_update_elem(&steer_flows, &hash, &place, BPF_ANY);
    if (has_id)
        bpf_map_update_elem(&steer_ids, &id, &place, BPF_ANY);
    return 1;
}

static __always_inline int follow_short(struct sk_reuseport_md *packet, void *table, __u32 cpu) {
    struct connection_id id = {};
    __u32 zero = 0, hash = packet->hash, place = 0, length, *lengths = bpf_map_lookup_elem(&steer_lengths, &zero);
    __u32 seen = lengths ? *lengths : 0;

    for (length = 1; length <= ID_BYTES; length++) {
        if (!(seen & 1 << length) || !read_id(packet, 1, length, &id))
            continue;
        if (select_place(packet, bpf_map_lookup_elem(&steer_ids, &id), &place))
            return 1;
    }
    return select_place(packet, bpf_map_lookup_elem(&steer_flows, &hash), &place) || select(packet, table, cpu, &place);
}

SEC("sk_reuseport")
int linerate_steer(struct sk_reuseport_md *packet) {
    __u32 zero = 0, place = 0, cpu = bpf_get_smp_processor_id();
    void *table = bpf_map_lookup_elem(&steer_tables, &zero);
    __u8 first = 0;
    int selected = 0;

    if (table && !follow_ids)
        selected = select(packet, table, cpu, &place);
    else if (table && !bpf_skb_load_bytes(packet, 8, &first, 1) && first & 0x80)
        selected = follow_long(packet, table, cpu);
    else if (table)
        selected = follow_short(packet, table, cpu);
    if (!selected)
        count(&steer_hashed, zero);
    // If no socket is selected, the kernel uses the hash (reuseport_select_sock of
    // net/core/sock_reuseport.c).
    return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
