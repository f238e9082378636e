//! Memory that user space and bpf/load.bpf.c share: bpf/load.h in Rust. The sizes are asserted on
//! both sides.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Latency buckets, and the bits of a value that a bucket keeps: 128 buckets per octave.
pub(crate) const BUCKETS: usize = 4096;
pub(crate) const SUB_BITS: u32 = 7;
/// Requests of the first half, of the third quarter and of the last quarter of the slot.
pub(crate) const SEGMENTS: usize = 3;
pub(crate) const INTERVALS: usize = crate::generator::MAX_INTERVALS;
// Frames that leave together. A veth interface's queue holds 256 (drivers/net/veth.c,
// VETH_RING_SIZE), and a batch is passed on before the next one is created.
pub(crate) const BATCH: usize = 64;
/// Window mode: parts of the timeout kept in view.
pub(crate) const PARTS: usize = 16;
pub(crate) const MARKS: usize = 32;
// The longest prepared request and the longest reply that is verified.
pub(crate) const REQUEST_BYTES: usize = 512;
/// Room for a frame's headers.
pub(crate) const HEAD_BYTES: usize = 80;
/// Most places of the table of tuples that a search checks.
pub(crate) const PROBES: usize = 16;
// The longest echo request.
pub(crate) const FILL_BYTES: usize = 3072;
/// A record of the ring buffer: `struct verdict`.
pub(crate) const VERDICT_BYTES: usize = 40 + REQUEST_BYTES;

/// `struct mark`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct XdpMark {
    pub(crate) offset: u16,
    pub(crate) mask: u8,
    pub(crate) value: u8,
}

/// `struct settings`: constants of the program.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct XdpSettings {
    pub(crate) run: u64,
    pub(crate) view: u64,
    pub(crate) ipv6: u32,
    pub(crate) vlan: u32,
    pub(crate) echo: u32,
    pub(crate) payload: u32,
    pub(crate) body_state: u32,
    pub(crate) tuple_mask: u32,
    pub(crate) tuple_factor: u32,
    pub(crate) request_count: u32,
    pub(crate) request_mask: u32,
    pub(crate) longest: u32,
    pub(crate) one_length: u32,
    pub(crate) by_tag: u32,
    pub(crate) tag_bytes: u32,
    pub(crate) tag_request: u32,
    pub(crate) tag_reply: u32,
    pub(crate) shortest_reply: u32,
    pub(crate) mark_count: u32,
    pub(crate) code_offset: u32,
    pub(crate) code_mask: u32,
    pub(crate) verify: u32,
    pub(crate) interface: u32,
    pub(crate) truncated_offset: u16,
    pub(crate) truncated_mask: u16,
    pub(crate) marks: [XdpMark; MARKS],
}

// SAFETY: `repr(C)`, only integers, and no padding: its size is the sum of its fields' (asserted below).
unsafe impl aya::Pod for XdpSettings {}

const _: () = assert!(size_of::<XdpSettings>() == 104 + 4 * MARKS);

/// `struct flow`.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct XdpFlow {
    pub(crate) head: [AtomicU64; HEAD_BYTES / 8],
    pub(crate) sum: AtomicU32,
    pub(crate) ip_sum: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) cpu: AtomicU32,
    pub(crate) next: AtomicU64,
    pub(crate) salt: AtomicU64,
    pub(crate) first: AtomicU64,
    _pad0: AtomicU64,
    pub(crate) highest: AtomicU64,
    _pad1: [AtomicU64; 7],
}

const _: () = assert!(size_of::<XdpFlow>() == 192);

// An entry of the map of tuples; entries are 8 bytes apart in the kernel.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct TupleEntry {
    pub(crate) flow: AtomicU32,
}

/// `struct request`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct XdpRequest {
    pub(crate) length: AtomicU32,
    pub(crate) sum: AtomicU32,
    pub(crate) bytes: [AtomicU64; REQUEST_BYTES / 8],
}

const _: () = assert!(size_of::<XdpRequest>() == 520);

/// `struct row`: a CPU's part of a slot.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct XdpRow {
    pub(crate) when: AtomicU64,
    pub(crate) fraction: AtomicU64,
    pub(crate) step: AtomicU64,
    pub(crate) step_fraction: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) turn: AtomicU64,
    pub(crate) turn_step: AtomicU64,
    pub(crate) flow: AtomicU32,
    pub(crate) first_flow: AtomicU32,
    pub(crate) flow_step: AtomicU32,
    pub(crate) flow_count: AtomicU32,
    pub(crate) clocked: AtomicU32,
    pub(crate) looks: AtomicU32,
    _thread: AtomicU32,
    _made_in: AtomicU32,
    pub(crate) refused: AtomicU64,
    pub(crate) down: AtomicU64,
    pub(crate) too_long: AtomicU64,
    pub(crate) failed: AtomicU64,
    _pad1: AtomicU64,
    pub(crate) part: AtomicU64,
    pub(crate) oldest_part: AtomicU64,
    pub(crate) returned: [AtomicU64; PARTS],
    pub(crate) made: [AtomicU64; PARTS],
    pub(crate) tick: AtomicU64,
    pub(crate) next_tick: AtomicU64,
    pub(crate) share: AtomicU64,
    pub(crate) worst_lag: AtomicU64,
    pub(crate) late_sends: AtomicU64,
    pub(crate) run_over: AtomicU32,
    pub(crate) made_of: AtomicU32,
    pub(crate) bursts: [AtomicU64; BATCH + 1],
    pub(crate) horizon: AtomicU64,
    pub(crate) quota: AtomicU64,
    pub(crate) clones: AtomicU64,
    _made_number: AtomicU64,
    pub(crate) made_until: AtomicU64,
    _pad2: [AtomicU64; 18],
    pub(crate) start: AtomicU64,
    pub(crate) half: AtomicU64,
    pub(crate) last_quarter: AtomicU64,
    pub(crate) end: AtomicU64,
    pub(crate) interval: AtomicU64,
    pub(crate) epoch: AtomicU64,
    pub(crate) arrivals: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) in_time: AtomicU64,
    pub(crate) duplicate: AtomicU64,
    pub(crate) reordered: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) unsolicited: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) nobody: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) fragments: AtomicU64,
    pub(crate) unverified: AtomicU64,
    pub(crate) verdicts: AtomicU64,
    pub(crate) longest: AtomicU64,
    _pad3: [AtomicU64; 12],
    pub(crate) codes: [AtomicU64; 256],
    pub(crate) sent_in: [AtomicU64; INTERVALS],
    pub(crate) answered_in: [AtomicU64; INTERVALS],
    pub(crate) received_in: [AtomicU64; INTERVALS],
    pub(crate) latency: [[AtomicU64; BUCKETS]; SEGMENTS],
}

const _: () = assert!(size_of::<XdpRow>() == 1152 + 256 + 2048 + 3 * 65536 + 98304);
