// BPF iterators that report each UDP socket and TCP listener in a reuseport group: its index in the
// group, and how the group selects a socket. The kernel has no other interface that reports this.
// They read kernel memory and change nothing.

#include <linux/bpf.h>
#include <linux/filter.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

// A classic program is searched for a load of the CPU number in this number of instructions.
#define INSTRUCTIONS 32

// A socket with this index in its group or a higher one is reported with NO_PLACE.
#define MEMBERS 512

#define NO_PLACE 0xffffffff

// TCP_LISTEN of include/net/tcp_states.h.
#define LISTENING 10

#define NAME_BYTES 16

enum chooser {
    CHOOSER_HASH = 0,
    CHOOSER_CLASSIC = 1,
    CHOOSER_CLASSIC_BY_CPU = 2,
    CHOOSER_EXTENDED = 3,
};

// As host/src/reuseport.rs reads it.
struct member {
    __u64 cookie;
    __u32 place;
    __u32 members;
    __u32 chooser;
    // Only with CHOOSER_EXTENDED: ID of the program, and its name, padded with zeros.
    __u32 program;
    char name[NAME_BYTES];
};

// Fields of kernel structures. The loader resolves their offsets (CO-RE).
struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__udp {
    struct bpf_iter_meta *meta;
    struct udp_sock *udp_sk;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
    struct bpf_iter_meta *meta;
    struct sock_common *sk_common;
} __attribute__((preserve_access_index));

typedef struct {
    long long counter;
} atomic64_t;

struct sock_common {
    volatile unsigned char skc_state;
    atomic64_t skc_cookie;
} __attribute__((preserve_access_index));

struct sock_fprog_kern {
    __u16 len;
    struct sock_filter *filter;
} __attribute__((preserve_access_index));

struct bpf_prog_aux {
    __u32 id;
    char name[NAME_BYTES];
} __attribute__((preserve_access_index));

struct bpf_prog {
    enum bpf_prog_type type;
    struct bpf_prog_aux *aux;
    struct sock_fprog_kern *orig_prog;
} __attribute__((preserve_access_index));

struct sock;

struct sock_reuseport {
    __u16 num_socks;
    struct bpf_prog *prog;
    struct sock *socks[];
} __attribute__((preserve_access_index));

struct sock {
    struct sock_common __sk_common;
    struct sock_reuseport *sk_reuseport_cb;
} __attribute__((preserve_access_index));

static __always_inline __u32 chooser(struct bpf_prog *program) {
    struct sock_fprog_kern *classic;
    struct sock_filter *instructions, instruction;
    __u32 count, i;

    if (!program)
        return CHOOSER_HASH;
    if (BPF_CORE_READ(program, type) == BPF_PROG_TYPE_SK_REUSEPORT)
        return CHOOSER_EXTENDED;
    // The kernel keeps the original instructions of a classic program (bpf_prog_store_orig_filter
    // of net/core/filter.c). A program without them is an eBPF socket filter.
    classic = BPF_CORE_READ(program, orig_prog);
    if (!classic)
        return CHOOSER_EXTENDED;
    instructions = BPF_CORE_READ(classic, filter);
    count = BPF_CORE_READ(classic, len);
    for (i = 0; i < INSTRUCTIONS && i < count; i++) {
        if (bpf_probe_read_kernel(&instruction, sizeof(instruction), &instructions[i]))
            break;
        if (instruction.code == (BPF_LD | BPF_W | BPF_ABS) && instruction.k == (__u32)(SKF_AD_OFF + SKF_AD_CPU))
            return CHOOSER_CLASSIC_BY_CPU;
    }
    return CHOOSER_CLASSIC;
}

static __always_inline __u32 place(struct sock_reuseport *group, __u32 members, struct sock *socket) {
    struct sock *member;
    __u32 i;

    for (i = 0; i < MEMBERS && i < members; i++) {
        if (bpf_probe_read_kernel(&member, sizeof(member), &group->socks[i]))
            break;
        if (member == socket)
            return i;
    }
    return NO_PLACE;
}

static __always_inline void tell(struct bpf_iter_meta *meta, struct sock *socket) {
    struct sock_reuseport *group = BPF_CORE_READ(socket, sk_reuseport_cb);
    struct member member = {};
    struct bpf_prog *program;

    if (!group)
        return;
    member.cookie = BPF_CORE_READ(socket, __sk_common.skc_cookie.counter);
    member.members = BPF_CORE_READ(group, num_socks);
    member.place = place(group, member.members, socket);
    program = BPF_CORE_READ(group, prog);
    member.chooser = chooser(program);
    if (member.chooser == CHOOSER_EXTENDED) {
        member.program = BPF_CORE_READ(program, aux, id);
        BPF_CORE_READ_INTO(&member.name, program, aux, name);
    }
    bpf_seq_write(meta->seq, &member, sizeof(member));
}

SEC("iter/udp")
int reuseport(struct bpf_iter__udp *context) {
    struct sock *socket = (struct sock *)context->udp_sk;

    if (socket)
        tell(context->meta, socket);
    return 0;
}

SEC("iter/tcp")
int reuseport_tcp(struct bpf_iter__tcp *context) {
    struct sock_common *socket = context->sk_common;

    // TCP sockets in other states are in no reuseport group, and may not be full sockets (request
    // or time-wait sockets).
    if (socket && BPF_CORE_READ(socket, skc_state) == LISTENING)
        tell(context->meta, (struct sock *)socket);
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
