//! Events as bpf/delay.bpf.c writes them.

use linerate_host::bpf::halves;

use super::stacks::StackSample;
use crate::sys::KernelName;

pub(super) const EVENT_WORDS: usize = 4;

/// Address, port and first two bytes of the payload of a client's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientTag(pub(super) u64);

impl ClientTag {
    pub(super) fn client(self) -> u64 {
        self.0 >> 16
    }

    pub(super) fn tag(self) -> u64 {
        self.0 & 0xffff
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    IrqBegin,
    IrqEnd,
    /// NET_RX only.
    SoftirqRaised,
    SoftirqBegin {
        vector: u16,
    },
    SoftirqEnd {
        vector: u16,
    },
    PollEnd {
        packets: u16,
    },
    /// A switch to thread `next`, with its name.
    Switch {
        sleeps: bool,
        next: u32,
        name: KernelName,
    },
    Waking {
        thread: u32,
    },
    RequestSent {
        buffer: u64,
        client: ClientTag,
    },
    /// `packets`: the number of packets that GRO merged, 0 if it merged none.
    Received {
        buffer: u64,
        client: ClientTag,
        packets: u16,
    },
    Queued {
        socket: u64,
        last: u64,
    },
    Read {
        socket: u64,
        thread: u32,
        waiting: u64,
    },
    ReplyQueued {
        buffer: u64,
        client: ClientTag,
        device: u32,
    },
    ReplySent {
        buffer: u64,
        device: u32,
    },
}

/// `at`: CLOCK_MONOTONIC, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceEvent {
    pub(super) at: u64,
    pub(super) cpu: u32,
    pub(super) kind: EventKind,
}

impl TraceEvent {
    /// `None` for a slot without an event.
    pub(super) fn decode(cpu: u32, words: [u64; EVENT_WORDS]) -> Option<Self> {
        let [at, head, first_word, second_word] = words;
        let (low, number) = halves(head);
        let short_value = u16::try_from(low >> 8 & 0xffff).unwrap_or(0);
        let client = ClientTag(second_word);
        let kind = match low & 0xff {
            1 => EventKind::IrqBegin,
            2 => EventKind::IrqEnd,
            3 => EventKind::SoftirqRaised,
            4 => EventKind::SoftirqBegin { vector: short_value },
            5 => EventKind::SoftirqEnd { vector: short_value },
            6 => EventKind::PollEnd { packets: short_value },
            7 => {
                let name = KernelName::from_words([first_word, second_word]);
                EventKind::Switch { sleeps: short_value != 0, next: number, name }
            }
            8 => EventKind::Waking { thread: number },
            9 => EventKind::RequestSent { buffer: first_word, client },
            10 => EventKind::Received { buffer: first_word, client, packets: short_value },
            11 => EventKind::Queued { socket: first_word, last: second_word },
            12 => EventKind::Read { socket: first_word, thread: number, waiting: second_word },
            13 => EventKind::ReplyQueued { buffer: first_word, client, device: number },
            14 => EventKind::ReplySent { buffer: first_word, device: number },
            _ => return None,
        };
        Some(Self { at, cpu, kind })
    }
}

/// The events of a window in order of time.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordedWindow {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) events: Vec<TraceEvent>,
    pub(super) stacks: Vec<StackSample>,
    /// Events without room, and the number of all events of the CPU that had most.
    pub(super) lost: u64,
    pub(super) most_on_a_cpu: u64,
}

impl RecordedWindow {
    pub(super) fn seconds(&self) -> f64 {
        self.end.saturating_sub(self.begin) as f64 / 1e9
    }
}
