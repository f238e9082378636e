// What the load program and user space share. The Rust side is load/src/generator/xdp/layout.rs; sizes are asserted on
// both sides.
#ifndef LINERATE_LOAD_H
#define LINERATE_LOAD_H

#include <linux/types.h>

// Latency buckets: 128 an octave, up to 2^36 ns.
#define SUB_BITS 7
#define BUCKETS 4096
#define LONGEST_NS ((1ull << 36) - 1)

// Frames that wait: after a hold-up they leave twice as fast as their schedule, unless it was this short, ns.
#define CATCH_UP 2
#define USUAL_HOLD_UP_NS 500000

// A request that leaves later than this after its time is late.
#define LATE_NS 1000000

// Latency is kept apart by when the request was meant to leave.
#define SEGMENTS 3

#define INTERVALS 1024

// Frames that leave together.
#define BATCH 64

// Window mode: parts of the timeout that are kept in view.
#define PARTS 16

#define MARKS 32

// The longest prepared request, and the longest reply that is handed to user space.
#define REQUEST_BYTES 512

// Ethernet, 802.1Q, IPv6 and UDP headers, and the beginning of the payload.
#define HEAD_BYTES 80

// Slots of the table of tuples that are looked at.
#define PROBES 16

#define FILL_BYTES 3072

struct mark {
    __u16 offset;
    __u8 mask;
    __u8 value;
};

// What holds for a generator's life.
struct settings {
    __u64 run;
    __u64 view;        // requests in view a flow, a power of two
    __u32 ipv6;
    __u32 vlan;        // whether frames carry a tag
    __u32 echo;
    __u32 payload;     // bytes of an echo request
    __u32 body_state;  // chain over length and body (header.rs)
    __u32 tuple_mask;
    __u32 tuple_factor;
    __u32 request_count;
    __u32 request_mask; // for requests ordered by their tag
    __u32 longest;      // bytes of the longest request
    __u32 one_length;   // whether all have that
    __u32 by_tag;
    __u32 tag_bytes;
    __u32 tag_request;
    __u32 tag_reply;
    __u32 shortest_reply;
    __u32 mark_count;
    __u32 code_offset;
    __u32 code_mask;    // 0 if nothing is counted by value
    __u32 verify;
    __u32 interface; // by which clones leave
    __u16 truncated_offset; // bits that say a reply was cut short
    __u16 truncated_mask;
    struct mark marks[MARKS];
};
_Static_assert(sizeof(struct settings) == 104 + 4 * MARKS, "settings");

// A flow. The first 128 bytes are the sender's, the rest the receiver's.
struct flow {
    __u8 head[HEAD_BYTES]; // final but for lengths and checksums that vary
    __u32 sum;             // UDP checksum so far, not folded
    __u32 ip_sum;          // IPv4 header checksum without the length, not folded
    __u32 state;           // echo: chain over body, magic, run, epoch and flow
    __u32 cpu;             // whose row keeps its window
    __u64 next;            // sequence of the next request
    __u64 salt;            // tag less sequence
    __u64 first;           // first sequence of this slot
    __u64 pad0;
    __u64 highest;         // highest sequence answered, plus one
    __u64 pad1[7];
};
_Static_assert(sizeof(struct flow) == 192, "flow");

struct request {
    __u32 length;
    __u32 sum; // checksum of the bytes, the tag's place being zero; not folded
    __u8 bytes[REQUEST_BYTES];
};

// A reply for user space to judge.
struct verdict {
    __u32 flow;
    __u32 length;
    __u64 sequence;
    __u64 latency;
    __u64 intended;
    __u64 in_time;
    __u8 bytes[REQUEST_BYTES];
};

// A CPU's part of a slot.
struct row {
    // Sending: the thread's place in its schedule.
    __u64 when;          // when the next request is meant to leave, ns of CLOCK_MONOTONIC
    __u64 fraction;      // of a ns, in 2^-32
    __u64 step;          // to the one after
    __u64 step_fraction;
    __u64 sent;          // frames made in this slot
    __u64 turn;          // which prepared request goes next
    __u64 turn_step;
    __u32 flow;          // which flow goes next
    __u32 first_flow;
    __u32 flow_step;
    __u32 flow_count;    // of all threads
    __u32 clocked;       // whether requests are meant to leave when they do
    __u32 looks;         // frames until the clock is read again
    __u32 thread;        // kernel's id of the sending thread
    __u32 made_in;       // window mode: the place of the part that requests leave in
    // What became of the frames after the program.
    __u64 refused;       // the far end's queue was full
    __u64 down;          // the link was
    __u64 too_long;
    __u64 failed;
    __u64 pad1;
    // Window mode: requests and their answers by the part of the slot in which they were meant to leave.
    __u64 part;          // its length, ns; 0 in other modes
    __u64 oldest_part;
    __u64 returned[PARTS];
    __u64 made[PARTS];
    // Frames that wait for their time: each tick those leave that are due.
    __u64 tick;          // ns; 0 if they do not wait
    __u64 next_tick;     // when it begins
    __u64 share;         // frames to make in all
    __u64 worst_lag;     // ns behind the time it was meant to leave
    __u64 late_sends;    // more than LATE_NS behind
    __u32 run_over;      // frames of the batch that the program has run over, and made
    __u32 made_of;
    __u64 bursts[BATCH + 1]; // batches by frames made in them
    __u64 horizon;       // when the tick began: what was meant to leave by then is due
    __u64 quota;         // frames that may still leave in it
    __u64 clones;        // to be made by a run
    __u64 pad2[20];
    // Receiving: the slot...
    __u64 start;
    __u64 half;
    __u64 last_quarter;
    __u64 end;
    __u64 interval;      // ns; 0 if intervals are not wanted
    __u64 epoch;
    // ... and what came in.
    __u64 arrivals;      // datagrams to our flows
    __u64 answered;
    __u64 in_time;
    __u64 duplicate;
    __u64 reordered;
    __u64 corrupt;
    __u64 foreign;
    __u64 late;
    __u64 nobody;        // ICMP: nobody listens there
    __u64 unverified;
    __u64 verdicts;      // handed to user space
    __u64 longest;       // latency, ns
    __u64 pad3[14];
    __u64 codes[256];
    __u64 intervals[INTERVALS]; // answered, by when the request was meant to leave
    __u64 latency[SEGMENTS][BUCKETS];
};
_Static_assert(sizeof(struct row) == 1152 + 256 + 2048 + 8192 + 98304, "row");

#endif
