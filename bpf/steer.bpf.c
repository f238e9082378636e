// Gives each packet of a reuseport group to a socket that is meant for the CPU it is processed on. Attached by
// SO_ATTACH_REUSEPORT_EBPF to a group of sockets that another process has; it and its maps live as long as the group, or
// until it is detached. It drops nothing: where no socket of its choice is there, the kernel goes by the hash.

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

// So many sockets of a CPU are tried, where those before have gone.
#define TRIES 64

#define FIRST_MASK 0xffffffff

// An entry of a table. Those of the numbers of CPUs say where a CPU's sockets stand, the others which they are.
struct entry {
    // The socket's cookie, for who reads the table; 0 in a CPU's own entry.
    __u64 cookie;
    // Of a CPU: the first of its sockets' entries, and above 32 bits how many. Of a socket: its place in steer_sockets.
    __u64 place;
};

// The names of maps, as host/src/setting/steering/program.rs knows them by. How many entries, it says when it loads this.

// A socket that is closed leaves by itself (bpf_sk_reuseport_detach of kernel/bpf/reuseport_array.c). Values of 8 bytes, so
// that user space can ask for cookies.
struct {
    __uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u64));
} steer_sockets SEC(".maps");

// The one table in force. A table is never changed, but replaced by another: a packet sees the one or the other.
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

// Packets by the place of the socket that got them.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} steer_chosen SEC(".maps");

// Packets that were left to the kernel's hash.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} steer_hashed SEC(".maps");

// Connection IDs of QUIC have up to 20 bytes (RFC 9000, 17.2).
#define ID_BYTES 20

struct connection_id {
    __u32 length;
    __u8 bytes[ID_BYTES];
};

// Set before the program is loaded: whether clients are followed by QUIC connection IDs. The next three maps have one entry
// otherwise.
const volatile __u8 follow_ids = 0;

// The place of the socket whose server chose an ID, or whose client did before it knew that.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1);
    __type(key, struct connection_id);
    __type(value, __u32);
} steer_ids SEC(".maps");

// The same by the hash of a client's address and port.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} steer_flows SEC(".maps");

// A bit for each length of IDs that servers chose: a short header does not tell it.
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

// Whether a socket of the CPU's was selected, and its place. Those of a flow go to one of them, as long as it is there.
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

// Reads an ID that begins at this byte of the payload, which follows the UDP header.
static __always_inline int read_id(struct sk_reuseport_md *packet, __u32 at, __u32 length, struct connection_id *id) {
    __builtin_memset(id, 0, sizeof(*id));
    id->length = length;
    if (!length || length > ID_BYTES)
        return 0;
    return !bpf_skb_load_bytes(packet, 8 + at, id->bytes, length);
}

// A long header carries the ID's length. Its first ID is the client's choice, and goes where the flow goes. A later one that is
// not known on a known flow is the choice of the server there.
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
    // With no socket selected, the kernel goes by the hash (reuseport_select_sock of net/core/sock_reuseport.c).
    return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
