//! What a thread sends, and how it knows replies: our own header, or an exchange.

use std::sync::Arc;

use super::matching::Answer;
use super::tally::Judgement;
use super::trail::{Meaning, Track};
use crate::header::{Codec, Header};
use crate::sys::{Received, SendBatch};
use crate::workload::{Exchange, Order};

/// How many times round the tags a reply that does not verify is looked for.
const ROUNDS: u64 = 4;

/// What the requests of a thread are.
#[derive(Debug)]
pub(super) enum Carried {
    Echo(Echo),
    Exchange(Script),
}

/// Requests with our header.
#[derive(Debug)]
pub(super) struct Echo {
    codec: Codec,
    run: u64,
    epoch: u32,
}

/// Prepared requests.
#[derive(Debug)]
pub(super) struct Script {
    exchange: Arc<Exchange>,
    /// [`Order::InTurn`]: which request goes next, and how far it is to the one after it.
    turn: usize,
    stride: usize,
}

impl Carried {
    /// Starts a slot.
    pub(super) fn begin(&mut self, epoch: u32) {
        match self {
            Carried::Echo(echo) => echo.epoch = epoch,
            Carried::Exchange(_) => {}
        }
    }

    /// Writes the next `count` requests of a flow.
    pub(super) fn write(
        &self,
        flow: &Track,
        count: u64,
        batch: &mut SendBatch,
        intended: impl Fn(u64) -> u64,
    ) {
        for (index, (payload, length)) in (0..count).zip(batch.places()) {
            match self {
                Carried::Echo(echo) => echo.write(flow, index, payload, intended(index)),
                Carried::Exchange(script) => *length = script.write(flow, index, payload),
            }
        }
    }

    /// Notes that so many of what was written left.
    pub(super) fn sent(&mut self, flow: &mut Track, count: u64, intended: impl Fn(u64) -> u64) {
        if let Carried::Exchange(script) = self {
            script.sent(flow, count, intended);
        }
    }

    /// Finds out what a datagram is to its flow.
    #[inline]
    pub(super) fn judge(&self, reply: &Received<'_>, flow: &mut Track) -> Judgement {
        match self {
            Carried::Echo(echo) => echo.judge(reply, flow),
            Carried::Exchange(script) => script.judge(reply, flow),
        }
    }
}

impl Echo {
    pub(super) fn new(codec: Codec, run: u64) -> Self {
        Echo { codec, run, epoch: 0 }
    }

    fn write(&self, flow: &Track, index: u64, payload: &mut [u8], intended_ns: u64) {
        let header = Header {
            run: self.run,
            epoch: self.epoch,
            flow: flow.id,
            sequence: flow.ledger.next() + index,
            intended_ns,
        };
        self.codec.write(&header, payload);
    }

    fn judge(&self, reply: &Received<'_>, flow: &mut Track) -> Judgement {
        let header = match self.codec.read(reply.bytes) {
            Ok(header) if !reply.truncated => header,
            _ => return Judgement::Corrupt,
        };
        if header.run != self.run || header.flow != flow.id || header.epoch > self.epoch {
            return Judgement::Foreign;
        }
        if reply.bytes.len() != self.codec.payload_bytes() {
            return Judgement::Corrupt;
        }
        if header.epoch < self.epoch {
            return Judgement::Late;
        }
        of(flow.ledger.answer(header.sequence), header.intended_ns, None)
    }
}

impl Script {
    /// For thread `thread` of `threads`.
    pub(super) fn new(exchange: Arc<Exchange>, thread: usize, threads: usize) -> Self {
        let count = exchange.requests.len().max(1);
        Script { exchange, turn: thread % count, stride: threads % count }
    }

    /// Writes a flow's request number `index` from the next; returns its length.
    pub(super) fn write(&self, flow: &Track, index: u64, payload: &mut [u8]) -> usize {
        let exchange = &*self.exchange;
        let count = exchange.requests.len();
        let sequence = flow.ledger.next() + index;
        let number = match exchange.order {
            Order::InTurn => (self.turn + self.stride * index as usize) % count,
            Order::ByTag => self.number(flow, sequence),
        };
        let request = &exchange.requests[number];
        payload[..request.len()].copy_from_slice(request);
        if let (Order::InTurn, Some(tag)) = (exchange.order, exchange.tag) {
            tag.write(flow.trail.tag_of(sequence), payload);
        }
        request.len()
    }

    pub(super) fn sent(&mut self, flow: &mut Track, count: u64, intended: impl Fn(u64) -> u64) {
        let first = flow.ledger.next();
        for index in 0..count {
            flow.trail.sent(first + index, intended(index));
        }
        self.turn = (self.turn + self.stride * count as usize) % self.exchange.requests.len();
    }

    pub(super) fn judge(&self, reply: &Received<'_>, flow: &mut Track) -> Judgement {
        let exchange = &*self.exchange;
        if !exchange.looks_right(reply.bytes) {
            return Judgement::Corrupt;
        }
        let meaning = flow.trail.meaning(reply.bytes, &flow.ledger);
        if let (Meaning::Request(request), Some(verify)) = (meaning, &exchange.verify)
            && flow.ledger.is_open(request)
        {
            let is_answer =
                |request| verify.verify(&exchange.requests[self.number(flow, request)], reply.bytes);
            if reply.truncated || !is_answer(request) {
                // The service may have been slower than the tags came round: then the reply is right, but too late.
                let earlier = self.with_the_same_tag(flow, request).any(is_answer);
                return if earlier && !reply.truncated { Judgement::Late } else { Judgement::Corrupt };
            }
        }
        let intended_ns = match meaning {
            Meaning::Request(request) => flow.trail.intended_ns(request),
            Meaning::Past | Meaning::Unknown => 0,
        };
        of(meaning.answer(&mut flow.ledger), intended_ns, exchange.code_of(reply.bytes))
    }

    /// The last requests before one that had its tag, over the slots.
    fn with_the_same_tag(&self, flow: &Track, request: u64) -> impl Iterator<Item = u64> + use<> {
        let range = self.range();
        let sequence = flow.trail.sequence(request);
        let before = sequence.checked_div(range).unwrap_or(0).min(ROUNDS);
        (1..=before).map(move |rounds| request.wrapping_sub(rounds * range))
    }

    /// How many tags there are; 0 for 2^64.
    fn range(&self) -> u64 {
        self.exchange.tag.map_or(1, |tag| tag.mask().wrapping_add(1))
    }

    /// [`Order::ByTag`]: which of the prepared requests a request of a flow is.
    fn number(&self, flow: &Track, request: u64) -> usize {
        let range = self.range();
        let number = flow.trail.sequence(request).wrapping_add(range.wrapping_mul(u64::from(flow.id)));
        (number % self.exchange.requests.len() as u64) as usize
    }
}

fn of(answer: Answer, intended_ns: u64, code: Option<u8>) -> Judgement {
    match answer {
        Answer::First { reordered } => Judgement::First { intended_ns, reordered, code },
        Answer::Duplicate => Judgement::Duplicate,
        Answer::Late => Judgement::Late,
        Answer::NeverSent => Judgement::Foreign,
    }
}
