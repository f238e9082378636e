// Tells of each UDP socket that is in a reuseport group its place there, and what chooses the socket: the kernel
// tells nobody else. Reads kernel memory and changes nothing.

#include <linux/bpf.h>
#include <linux/filter.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

// Of the program that chooses, so many instructions are looked at for one that loads the CPU.
#define INSTRUCTIONS 32

// In larger groups a socket's place is not told.
#define MEMBERS 512

#define NO_PLACE 0xffffffff

enum chooser {
    CHOOSER_HASH = 0,
    CHOOSER_CLASSIC = 1,
    CHOOSER_CLASSIC_BY_CPU = 2,
    CHOOSER_EXTENDED = 3,
};

// As host/src/stage/socket/chooser.rs reads it.
struct member {
    __u64 cookie;
    __u32 place;
    __u32 members;
    __u32 chooser;
    __u32 zero;
};

// Of the kernel's own structures, what is read; where it lies in them is settled when the program is loaded.
struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__udp {
    struct bpf_iter_meta *meta;
    struct udp_sock *udp_sk;
} __attribute__((preserve_access_index));

typedef struct {
    long long counter;
} atomic64_t;

struct sock_common {
    atomic64_t skc_cookie;
} __attribute__((preserve_access_index));

struct sock_fprog_kern {
    __u16 len;
    struct sock_filter *filter;
} __attribute__((preserve_access_index));

struct bpf_prog {
    enum bpf_prog_type type;
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
    classic = BPF_CORE_READ(program, orig_prog);
    if (!classic)
        return CHOOSER_CLASSIC;
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

SEC("iter/udp")
int reuseport(struct bpf_iter__udp *context) {
    struct sock *socket = (struct sock *)context->udp_sk;
    struct sock_reuseport *group;
    struct member member = {};

    if (!socket)
        return 0;
    group = BPF_CORE_READ(socket, sk_reuseport_cb);
    if (!group)
        return 0;
    member.cookie = BPF_CORE_READ(socket, __sk_common.skc_cookie.counter);
    member.members = BPF_CORE_READ(group, num_socks);
    member.place = place(group, member.members, socket);
    member.chooser = chooser(BPF_CORE_READ(group, prog));
    bpf_seq_write(context->meta->seq, &member, sizeof(member));
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
