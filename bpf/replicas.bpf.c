// Lets several copies of a server bind one port: sets SO_REUSEPORT on their sockets before the
// kernel assigns the port, and reports each bind(2). Attached to the control group of the copies.
//
// bpf_setsockopt of SO_REUSEPORT in bind4 and bind6 programs: Linux 6.1 (sol_socket_sockopt of
// net/core/filter.c). Sockets that bind port 0 (any port) do not get the option, so that client
// sockets of the same server do not share a port.

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// asm-generic/socket.h and bits/socket.h
#define SOL_SOCKET 1
#define SO_REUSEPORT 15
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define AF_INET 2
#define AF_INET6 10

// Values of `kind`, as in host/src/bind_hooks.rs: bind(2) was called; the socket has its port.
#define ASKED 0
#define BOUND 1

struct bind_event {
    // Socket cookie.
    __u64 cookie;
    // Control group of the process, as the inode of its directory.
    __u64 cgroup;
    __u32 pid;
    __u32 uid;
    __u8 kind;
    __u8 protocol;
    __u8 family;
    // 1: this program set SO_REUSEPORT. Only in ASKED.
    __u8 shared;
    __u32 port;
    // Return value of bpf_setsockopt: 0 or a negative errno. Only in ASKED.
    __s32 error;
    // Only in BOUND.
    __u32 address[4];
    __u32 padding;
};

// Set before the programs are loaded: the only port to share; 0: every port.
const volatile __u16 shared_port = 0;

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 17);
} bind_events SEC(".maps");

static __always_inline struct bind_event *event(__u8 kind) {
    struct bind_event *event = bpf_ringbuf_reserve(&bind_events, sizeof(*event), 0);

    if (!event)
        return 0;
    __builtin_memset(event, 0, sizeof(*event));
    event->kind = kind;
    event->cgroup = bpf_get_current_cgroup_id();
    event->pid = bpf_get_current_pid_tgid() >> 32;
    event->uid = bpf_get_current_uid_gid();
    return event;
}

static __always_inline int share(struct bpf_sock_addr *context) {
    __u16 port = bpf_ntohs(context->user_port);
    struct bind_event *asked;
    int shared = 0, error = 0, one = 1;

    if (!port || (context->type != SOCK_DGRAM && context->type != SOCK_STREAM))
        return 1;
    if (!shared_port || shared_port == port) {
        error = bpf_setsockopt(context, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
        shared = !error;
    }
    asked = event(ASKED);
    if (asked) {
        asked->cookie = bpf_get_socket_cookie(context);
        asked->protocol = context->protocol;
        asked->family = context->family;
        asked->shared = shared;
        asked->port = port;
        asked->error = error;
        bpf_ringbuf_submit(asked, 0);
    }
    return 1;
}

SEC("cgroup/bind4")
int linerate_bind4(struct bpf_sock_addr *context) {
    return share(context);
}

SEC("cgroup/bind6")
int linerate_bind6(struct bpf_sock_addr *context) {
    return share(context);
}

// The socket has its port now. Sockets that bound port 0 are reported, too, but user space ignores
// them because they have no ASKED event.
SEC("cgroup/post_bind4")
int linerate_post_bind4(struct bpf_sock *socket) {
    struct bind_event *bound = event(BOUND);

    if (bound) {
        bound->cookie = bpf_get_socket_cookie(socket);
        bound->protocol = socket->protocol;
        bound->family = AF_INET;
        bound->port = socket->src_port;
        bound->address[0] = socket->src_ip4;
        bpf_ringbuf_submit(bound, 0);
    }
    return 1;
}

SEC("cgroup/post_bind6")
int linerate_post_bind6(struct bpf_sock *socket) {
    struct bind_event *bound = event(BOUND);

    if (bound) {
        bound->cookie = bpf_get_socket_cookie(socket);
        bound->protocol = socket->protocol;
        bound->family = AF_INET6;
        bound->port = socket->src_port;
        bound->address[0] = socket->src_ip6[0];
        bound->address[1] = socket->src_ip6[1];
        bound->address[2] = socket->src_ip6[2];
        bound->address[3] = socket->src_ip6[3];
        bpf_ringbuf_submit(bound, 0);
    }
    return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
