// Memory that the load program and user space share. The Rust side is load/src/sys/xdp/layout.rs.
// Both sides assert the sizes.
#ifndef LINERATE_LOAD_H
#define LINERATE_LOAD_H

#include <linux/types.h>

// Latency buckets: 128 per octave, up to 2^36 ns.
#define SUB_BITS 7
#define BUCKETS 4096
#define LONGEST_NS ((1ull << 36) - 1)

// Live frames on a schedule leave at up to twice the scheduled rate after a delay. A delay of at
// most USUAL_HOLD_UP_NS is caught up in one tick.
#define CATCH_UP 2
#define USUAL_HOLD_UP_NS 500000

// A request that leaves more than this after its intended time counts as late.
#define LATE_NS 1000000

// Latency histograms by intended time: first half, third quarter and last quarter of the slot.
#define SEGMENTS 3

#define INTERVALS 8192

// Live frames per batch on a schedule.
#define BATCH 64

// Window mode: length of the rings of counters per part. A timeout has 8 parts (worker.rs).
#define PARTS 16

#define MARKS 32

// The longest prepared request, and the longest reply that is passed to user space.
#define REQUEST_BYTES 512

// Ethernet, 802.1Q, IPv6 and UDP headers (66 bytes) and padding. The last 8 bytes are the epoch and
// the flow number of an echo request.
#define HEAD_BYTES 80

// Entries of `tuples` that a lookup reads at most.
#define PROBES 16

#define FILL_BYTES 3072

struct mark {
    __u16 offset;
    __u8 mask;
    __u8 value;
};

// Constants of a generator, set before loading.
struct settings {
    __u64 run;
    __u64 view;        // latest requests per flow that replies can match; a power of two
    __u32 ipv6;
    __u32 vlan;        // whether frames have a VLAN tag
    __u32 echo;
    __u32 payload;     // bytes of an echo request
    __u32 body_state;  // checksum chain over length and body (load/src/header.rs)
    __u32 tuple_mask;
    __u32 tuple_factor;
    __u32 request_count;
    __u32 request_mask; // with by_tag: request_count - 1
    __u32 longest;      // bytes of the longest request
    __u32 one_length;   // whether all requests have that length
    __u32 by_tag;       // whether prepared requests contain their tags (RequestOrder::ByTag)
    __u32 tag_bytes;
    __u32 tag_request;
    __u32 tag_reply;
    __u32 shortest_reply;
    __u32 mark_count;
    __u32 code_offset;
    __u32 code_mask;    // 0 if replies are not counted by code
    __u32 verify;
    __u32 interface; // index of the interface that clones leave by
    __u16 truncated_offset; // bits that mark a truncated reply
    __u16 truncated_mask;
    struct mark marks[MARKS];
};
_Static_assert(sizeof(struct settings) == 104 + 4 * MARKS, "settings");

// A flow. Sending writes to the first 128 bytes, receiving to the rest.
struct flow {
    __u8 head[HEAD_BYTES]; // headers, final except for lengths and checksums that vary
    __u32 sum;             // UDP checksum of the fixed part, folded, not complemented
    __u32 ip_sum;          // IPv4 header checksum without the length, folded, not complemented
    __u32 state;           // echo: checksum chain over body, magic, run, epoch and flow number
    __u32 cpu;             // CPU whose row counts the flow's window
    __u64 next;            // sequence of the next request
    __u64 salt;            // tag minus sequence
    __u64 first;           // first sequence of this slot
    __u64 pad0;
    __u64 highest;         // highest answered sequence, plus one
    __u64 pad1[7];
};
_Static_assert(sizeof(struct flow) == 192, "flow");

struct request {
    __u32 length;
    __u32 sum; // one's complement sum of the bytes, folded; the tag is zero unless by_tag
    __u8 bytes[REQUEST_BYTES];
};

// A record of the ring buffer: a reply that user space verifies. `latency` and `intended` in ns.
struct verdict {
    __u32 flow;
    __u32 length;
    __u64 sequence;
    __u64 latency;
    __u64 intended;
    __u64 in_time;
    __u8 bytes[REQUEST_BYTES];
};

// State and counters of a CPU in a slot. Times are in ns of CLOCK_MONOTONIC.
struct row {
    // Sending: the position of the thread in its schedule.
    __u64 when;          // intended time of the next request
    __u64 fraction;      // its fraction of a ns, in 2^-32 ns
    __u64 step;          // time from one request to the next, ns
    __u64 step_fraction;
    __u64 sent;          // requests created in this slot, including those that did not leave
    __u64 turn;          // index of the next prepared request
    __u64 turn_step;
    __u32 flow;          // number of the next flow
    __u32 first_flow;
    __u32 flow_step;
    __u32 flow_count;    // of all threads
    __u32 clocked;       // no schedule: the intended time is the time of sending
    __u32 looks;         // requests until the clock is read again
    __u32 thread;        // thread ID of the sending thread, in the initial PID namespace
    __u32 made_in;       // window mode: index in `made` of the current part
    // Requests that did not leave.
    __u64 refused;       // dropped by a qdisc or by a full receive queue of the veth peer
    __u64 down;          // the link is down or takes no XDP frames
    __u64 too_long;
    __u64 failed;        // other errors, also of the program
    __u64 pad1;
    // Window mode: requests and answers per part of the slot, by intended time.
    __u64 part;          // length of a part, ns; 0 in other modes
    __u64 oldest_part;   // number of the oldest part that has not timed out
    __u64 returned[PARTS];
    __u64 made[PARTS];
    // Live frames on a schedule: each tick sends the requests that are due.
    __u64 tick;          // length of a tick, ns; 0 in other modes
    __u64 next_tick;     // start of the next tick
    __u64 share;         // requests to create in the slot
    __u64 worst_lag;     // longest time from intended time to start of the tick, ns
    __u64 late_sends;    // requests with a lag above LATE_NS
    __u32 run_over;      // program runs in this batch
    __u32 made_of;       // requests created by these runs
    __u64 bursts[BATCH + 1]; // batches by number of requests
    __u64 horizon;       // start of the tick: requests with an intended time up to here are due
    __u64 quota;         // requests that may still leave in the tick
    __u64 clones;        // clones per run of `send_clone`
    __u64 made_number;   // number of the interval of the latest request
    __u64 made_until;    // end of that interval
    __u64 pad2[18];
    // Receiving: times of the slot.
    __u64 start;
    __u64 half;
    __u64 last_quarter;
    __u64 end;
    __u64 interval;      // length of an interval, ns; 0 without intervals
    __u64 epoch;
    // Received datagrams.
    __u64 arrivals;      // all datagrams that match a flow
    __u64 answered;
    __u64 in_time;
    __u64 duplicate;
    __u64 reordered;
    __u64 corrupt;
    __u64 unsolicited;
    __u64 late;
    __u64 nobody;        // ICMP port unreachable messages
    __u64 rejected;      // other ICMP messages about requests
    __u64 fragments;     // first fragments of replies
    __u64 unverified;    // replies that could not be passed to user space
    __u64 verdicts;      // replies passed to user space
    __u64 longest;       // longest latency, ns
    __u64 pad3[12];
    __u64 codes[256];
    __u64 sent_in[INTERVALS];     // requests created by interval of their intended time
    __u64 answered_in[INTERVALS]; // answered requests by interval of their intended time
    __u64 received_in[INTERVALS]; // first replies by interval of their arrival
    __u64 latency[SEGMENTS][BUCKETS];
};
_Static_assert(sizeof(struct row) == 1152 + 256 + 2048 + 3 * 65536 + 98304, "row");

#endif
