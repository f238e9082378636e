// Selects a socket of a reuseport group by the CPU that processes the packet
// (engine/src/steer/ebpf.rs).

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

// The socket of each CPU. User space sets the number of entries of both maps at load.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} members SEC(".maps");

// If no socket was selected, SK_PASS leaves the choice to the kernel's hash (net/core/filter.c,
// bpf_run_sk_reuseport).
SEC("sk_reuseport")
int select_by_cpu(struct sk_reuseport_md *context) {
    __u32 cpu = bpf_get_smp_processor_id();
    __u32 *slot = bpf_map_lookup_elem(&slots, &cpu);

    if (slot) {
        // The helper requires the key on the stack or in a map; a copy on the stack satisfies
        // every verifier.
        __u32 key = *slot;

        bpf_sk_select_reuseport(context, &members, &key, 0);
    }
    return SK_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
