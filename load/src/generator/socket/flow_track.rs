//! From the tag of a reply to the request it answers: one trail a flow.

use super::matching::{ReplyKind, SequenceWindow};
use crate::workload::{EchoedTag, PreparedExchange, RequestOrder};

/// How many requests all flows of a thread keep in view together where their tags could tell more apart: 32 MiB of
/// intended times.
const MOST_IN_VIEW: u64 = 1 << 22;

/// The widest tag, bytes, that is so short that one never sent is as likely one of long ago.
const NARROW_BYTES: usize = 2;

/// A flow's requests: what was sent, what was answered, and when it was meant to leave.
#[derive(Debug)]
pub(super) struct FlowTrack {
    pub(super) id: u32,
    pub(super) ledger: SequenceWindow,
    /// Unused by our own header, which tells its sequence itself.
    pub(super) trail: FlowTrail,
}

/// What a flow remembers of the requests in view besides its [`SequenceWindow`]. Its sequence counts on over the slots, so that
/// a straggler of the last slot is not taken for an answer in this one.
#[derive(Debug, Default)]
pub(super) struct FlowTrail {
    tag: Option<EchoedTag>,
    /// Added to a sequence to make its tag: nobody can answer what has not been asked.
    salt: u64,
    /// The sequence of the slot's first request.
    base: u64,
    /// Whether replies do not tell when their request was meant to leave.
    timed: bool,
    /// Intended times by sequence, as many as the ledger keeps in view.
    times: Box<[u64]>,
    /// Without tags: all requests before this one of the slot are answered or given up.
    oldest: u64,
}

/// What a tag says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagMeaning {
    /// It is of this request of the slot.
    Request(u64),
    /// It is of an earlier slot, or of a request that cannot be told from others.
    Past,
    /// It was never sent.
    Unknown,
}

impl FlowTrack {
    /// For our own header.
    pub(super) fn of_echo(id: u32) -> Self {
        FlowTrack { id, ledger: SequenceWindow::new(), trail: FlowTrail::default() }
    }

    /// For an exchange, on a thread with so many flows.
    pub(super) fn of_exchange(exchange: &PreparedExchange, run: u64, id: u32, flows: usize) -> Self {
        let ledger = SequenceWindow::with_at_most(FlowTrail::most_in_view(exchange, flows));
        FlowTrack { id, ledger, trail: FlowTrail::new(exchange, run, id) }
    }

    /// Starts a slot in which at least the last `view` requests are to be kept in view, if possible.
    pub(super) fn begin(&mut self, view: u64) {
        self.trail.begin(self.ledger.next());
        self.ledger.begin(view);
        self.trail.make_room(self.ledger.in_view());
    }
}

impl FlowTrail {
    fn new(exchange: &PreparedExchange, run: u64, flow: u32) -> Self {
        let salt = match exchange.order {
            RequestOrder::InTurn => mix(run ^ mix(u64::from(flow).wrapping_add(1))),
            RequestOrder::ByTag => 0,
        };
        FlowTrail { tag: exchange.tag, salt, timed: true, ..FlowTrail::default() }
    }

    /// The most requests that a flow can keep in view, if its thread has `flows`: a power of two.
    fn most_in_view(exchange: &PreparedExchange, flows: usize) -> u64 {
        let affordable = (MOST_IN_VIEW / flows.max(1) as u64).max(2);
        let affordable = 1 << affordable.ilog2();
        match exchange.tag {
            Some(tag) if tag.bytes < 8 => affordable.min(tag.mask() + 1),
            _ => affordable,
        }
    }

    /// Starts a slot after one with so many requests.
    fn begin(&mut self, sent: u64) {
        self.base = self.base.wrapping_add(sent);
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

    /// Notes when a request of this slot was meant to leave.
    pub(super) fn sent(&mut self, request: u64, intended_ns: u64) {
        let at = self.place(request);
        if let Some(time) = self.times.get_mut(at) {
            *time = intended_ns;
        }
    }

    /// When a request in view was meant to leave.
    pub(super) fn intended_ns(&self, request: u64) -> u64 {
        self.times.get(self.place(request)).copied().unwrap_or(0)
    }

    /// Which request a reply is to.
    pub(super) fn meaning(&mut self, reply: &[u8], ledger: &SequenceWindow) -> TagMeaning {
        let Some(tag) = self.tag else { return self.oldest_outstanding(ledger) };
        let Some(value) = tag.read(reply) else { return TagMeaning::Unknown };
        let next = self.sequence(ledger.next());
        let narrow = tag.bytes <= NARROW_BYTES;
        // How far before the newest: of all with this tag the newest is meant.
        let back = next.wrapping_sub(1).wrapping_sub(value.wrapping_sub(self.salt)) & tag.mask();
        if back >= next {
            return if narrow { TagMeaning::Past } else { TagMeaning::Unknown };
        }
        match (next - 1 - back).checked_sub(self.base) {
            Some(request) => TagMeaning::Request(request),
            None => TagMeaning::Past,
        }
    }

    fn oldest_outstanding(&mut self, ledger: &SequenceWindow) -> TagMeaning {
        if ledger.next() == 0 {
            return TagMeaning::Past;
        }
        self.oldest = ledger.first_held(self.oldest);
        let newest = ledger.next() - 1;
        match self.oldest {
            // Nothing is outstanding: it is a reply too many, or to a request given up.
            oldest if oldest <= newest => TagMeaning::Request(oldest),
            _ if ledger.is_open(newest) => TagMeaning::Past,
            _ => TagMeaning::Request(newest),
        }
    }

    fn place(&self, request: u64) -> usize {
        // The length is a power of two, or 0 before the first slot.
        (request & (self.times.len() as u64).wrapping_sub(1)) as usize
    }
}

impl TagMeaning {
    /// What that makes of the request in the ledger.
    pub(super) fn answer(self, ledger: &mut SequenceWindow) -> ReplyKind {
        match self {
            TagMeaning::Request(request) => ledger.answer(request),
            TagMeaning::Past => ReplyKind::Late,
            TagMeaning::Unknown => ReplyKind::NeverSent,
        }
    }
}

/// Mixes all bits (the finalizer of splitmix64).
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
