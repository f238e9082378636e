//! Finds the request of a reply by its tag.

use super::sequence_window::{ReplyKind, SequenceWindow};
use crate::generator::tag_salt;
use crate::workload::{EchoedTag, PreparedExchange, RequestOrder};

// The most requests in view of all flows of a thread, even if tags distinguish more: 32 MiB of intended
// times.
const MOST_IN_VIEW: u64 = 1 << 22;

// Tags up to this width, in bytes, repeat soon, so that an unknown tag may be an old tag.
const NARROW_BYTES: usize = 2;

/// The requests of a flow: sent, answered, and their intended times.
#[derive(Debug)]
pub(super) struct FlowTrack {
    pub(super) id: u32,
    pub(super) window: SequenceWindow,
    /// Not used by echo requests, whose header has the sequence.
    pub(super) tags: FlowTags,
}

// Tags and intended times of the requests in view. Sequences continue over slots, so that a
// straggler of the last slot does not count as an answer in the next slot.
#[derive(Debug, Default)]
pub(super) struct FlowTags {
    tag: Option<EchoedTag>,
    // Added to a sequence to get its tag, so that tags are not predictable.
    salt: u64,
    /// The sequence of the slot's first request.
    base: u64,
    /// Whether replies lack the intended time of their request.
    timed: bool,
    /// Intended times by sequence, of all requests in view.
    times: Box<[u64]>,
    /// Without tags: all requests before this one of the slot are answered or given up.
    oldest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagMeaning {
    /// A request of this slot.
    Request(u64),
    /// A request of an earlier slot, or a request out of view.
    Past,
    // Never sent.
    Unknown,
}

impl FlowTrack {
    /// For our own header.
    pub(super) fn for_echo(id: u32) -> Self {
        FlowTrack { id, window: SequenceWindow::new(), tags: FlowTags::default() }
    }

    /// `flows`: the number of flows of this thread.
    pub(super) fn for_exchange(exchange: &PreparedExchange, run: u64, id: u32, flows: usize) -> Self {
        let window = SequenceWindow::with_max_view(FlowTags::most_in_view(exchange, flows));
        FlowTrack { id, window, tags: FlowTags::new(exchange, run, id) }
    }

    // Starts a slot in which at least the last `view` requests are to be kept in view, if possible.
    pub(super) fn begin(&mut self, view: u64) {
        self.tags.begin(self.window.next());
        self.window.begin(view);
        self.tags.make_room(self.window.in_view());
    }
}

impl FlowTags {
    fn new(exchange: &PreparedExchange, run: u64, flow: u32) -> Self {
        let salt = match exchange.order {
            RequestOrder::InTurn => tag_salt(run, flow),
            RequestOrder::ByTag => 0,
        };
        FlowTags { tag: exchange.tag, salt, timed: true, ..FlowTags::default() }
    }

    // The most requests that a flow can keep in view, if its thread has `flows`: a power of two.
    fn most_in_view(exchange: &PreparedExchange, flows: usize) -> u64 {
        let affordable = (MOST_IN_VIEW / flows.max(1) as u64).max(2);
        let affordable = 1 << affordable.ilog2();
        match exchange.tag {
            Some(tag) if tag.bytes < 8 => affordable.min(tag.mask() + 1),
            _ => affordable,
        }
    }

    // Starts a slot after one with `sent_count` requests.
    fn begin(&mut self, sent_count: u64) {
        self.base = self.base.wrapping_add(sent_count);
        self.oldest = 0;
    }

    fn make_room(&mut self, in_view: u64) {
        if self.timed && (self.times.len() as u64) < in_view {
            self.times = vec![0; in_view as usize].into_boxed_slice();
        }
    }

    /// The sequence, over all slots, of a request of this slot.
    pub(super) fn sequence(&self, request: u64) -> u64 {
        self.base.wrapping_add(request)
    }

    /// The tag of a request of this slot; its low bytes count.
    pub(super) fn tag_of(&self, request: u64) -> u64 {
        self.sequence(request).wrapping_add(self.salt)
    }

    pub(super) fn record_sent(&mut self, request: u64, intended_ns: u64) {
        let index = self.time_index(request);
        if let Some(time) = self.times.get_mut(index) {
            *time = intended_ns;
        }
    }

    pub(super) fn intended_ns(&self, request: u64) -> u64 {
        self.times.get(self.time_index(request)).copied().unwrap_or(0)
    }

    pub(super) fn find_request(&mut self, reply: &[u8], window: &SequenceWindow) -> TagMeaning {
        let Some(tag) = self.tag else { return self.oldest_outstanding(window) };
        let Some(value) = tag.read(reply) else { return TagMeaning::Unknown };
        let next = self.sequence(window.next());
        let is_narrow = tag.bytes <= NARROW_BYTES;
        // The distance from the newest request: if several requests have this tag, the newest
        // counts.
        let distance = next.wrapping_sub(1).wrapping_sub(value.wrapping_sub(self.salt)) & tag.mask();
        if distance >= next {
            return if is_narrow { TagMeaning::Past } else { TagMeaning::Unknown };
        }
        match (next - 1 - distance).checked_sub(self.base) {
            Some(request) => TagMeaning::Request(request),
            None => TagMeaning::Past,
        }
    }

    fn oldest_outstanding(&mut self, window: &SequenceWindow) -> TagMeaning {
        if window.next() == 0 {
            return TagMeaning::Past;
        }
        self.oldest = window.first_outstanding(self.oldest);
        let newest = window.next() - 1;
        match self.oldest {
            // Nothing is outstanding: a duplicate, or a reply to a request that timed out.
            oldest if oldest <= newest => TagMeaning::Request(oldest),
            _ if window.is_open(newest) => TagMeaning::Past,
            _ => TagMeaning::Request(newest),
        }
    }

    fn time_index(&self, request: u64) -> usize {
        // The length is a power of two, or 0 before the first slot.
        (request & (self.times.len() as u64).wrapping_sub(1)) as usize
    }
}

impl TagMeaning {
    pub(super) fn classify_reply(self, window: &mut SequenceWindow) -> ReplyKind {
        match self {
            TagMeaning::Request(request) => window.classify_reply(request),
            TagMeaning::Past => ReplyKind::Late,
            TagMeaning::Unknown => ReplyKind::NeverSent,
        }
    }
}
