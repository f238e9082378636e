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

static __always_inline void count(void *counters, __u32 place) {
    __u64 *counter = bpf_map_lookup_elem(counters, &place);

    if (counter)
        ++*counter;
}

// Whether a socket of the CPU's was selected. Those of a flow go to one of them, as long as it is there.
static __always_inline int select(struct sk_reuseport_md *packet, void *table, __u32 cpu) {
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
            return 1;
        }
        turn = turn + 1 < members ? turn + 1 : 0;
    }
    return 0;
}

SEC("sk_reuseport")
int linerate_steer(struct sk_reuseport_md *packet) {
    __u32 zero = 0;
    void *table = bpf_map_lookup_elem(&steer_tables, &zero);

    if (!table || !select(packet, table, bpf_get_smp_processor_id()))
        count(&steer_hashed, zero);
    // With no socket selected, the kernel goes by the hash (reuseport_select_sock of net/core/sock_reuseport.c).
    return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
