//! The requests of a thread, and the judgement of replies: echo with our header, or an exchange.

use std::sync::Arc;

use super::flow_track::{FlowTrack, TagMeaning};
use super::sequence_window::ReplyKind;
use super::totals::DatagramKind;
use crate::header::{RequestCodec, RequestHeader};
use crate::sys::{ReplyDatagram, SendBatch};
use crate::workload::{PreparedExchange, RequestOrder};

#[derive(Debug)]
pub(super) enum RequestSource {
    Echo(EchoRequests),
    Exchange(ScriptedRequests),
}

#[derive(Debug)]
pub(super) struct EchoRequests {
    codec: RequestCodec,
    run: u64,
    epoch: u32,
}

#[derive(Debug)]
pub(super) struct ScriptedRequests {
    exchange: Arc<PreparedExchange>,
    /// [`RequestOrder::InTurn`]: the next request, and the distance to the one after it.
    turn: usize,
    stride: usize,
}

impl RequestSource {
    pub(super) fn begin(&mut self, epoch: u32) {
        match self {
            RequestSource::Echo(echo) => echo.epoch = epoch,
            RequestSource::Exchange(_) => {}
        }
    }

    /// Writes the next `count` requests of a flow.
    pub(super) fn write(
        &self,
        flow: &FlowTrack,
        count: u64,
        batch: &mut SendBatch,
        intended: impl Fn(u64) -> u64,
    ) {
        for (index, (payload, length)) in (0..count).zip(batch.payload_slots()) {
            match self {
                RequestSource::Echo(echo) => echo.write(flow, index, payload, intended(index)),
                RequestSource::Exchange(script) => *length = script.write(flow, index, payload),
            }
        }
    }

    /// Records that `count` of the written requests left.
    pub(super) fn record_sent(&mut self, flow: &mut FlowTrack, count: u64, intended: impl Fn(u64) -> u64) {
        if let RequestSource::Exchange(script) = self {
            script.record_sent(flow, count, intended);
        }
    }

    #[inline]
    pub(super) fn judge(&self, reply: &ReplyDatagram<'_>, flow: &mut FlowTrack) -> DatagramKind {
        match self {
            RequestSource::Echo(echo) => echo.judge(reply, flow),
            RequestSource::Exchange(script) => script.judge(reply, flow),
        }
    }
}

impl EchoRequests {
    pub(super) fn new(codec: RequestCodec, run: u64) -> Self {
        EchoRequests { codec, run, epoch: 0 }
    }

    fn write(&self, flow: &FlowTrack, index: u64, payload: &mut [u8], intended_ns: u64) {
        let header = RequestHeader {
            run: self.run,
            epoch: self.epoch,
            flow: flow.id,
            sequence: flow.window.next() + index,
            intended_ns,
        };
        self.codec.write(&header, payload);
    }

    fn judge(&self, reply: &ReplyDatagram<'_>, flow: &mut FlowTrack) -> DatagramKind {
        let header = match self.codec.read(reply.bytes) {
            Some(header) if !reply.truncated => header,
            _ => return DatagramKind::Corrupt,
        };
        if header.run != self.run || header.flow != flow.id || header.epoch > self.epoch {
            return DatagramKind::Unsolicited;
        }
        if reply.bytes.len() != self.codec.payload_bytes() {
            return DatagramKind::Corrupt;
        }
        if header.epoch < self.epoch {
            return DatagramKind::Late;
        }
        datagram_kind(flow.window.classify_reply(header.sequence), header.intended_ns, None)
    }
}

impl ScriptedRequests {
    /// For thread `thread` of `threads`.
    pub(super) fn new(exchange: Arc<PreparedExchange>, thread: usize, threads: usize) -> Self {
        let count = exchange.requests.len().max(1);
        ScriptedRequests { exchange, turn: thread % count, stride: threads % count }
    }

    /// Writes a flow's request number `index` from the next; returns its length.
    pub(super) fn write(&self, flow: &FlowTrack, index: u64, payload: &mut [u8]) -> usize {
        let exchange = &*self.exchange;
        let count = exchange.requests.len();
        let sequence = flow.window.next() + index;
        let number = match exchange.order {
            RequestOrder::InTurn => (self.turn + self.stride * index as usize) % count,
            RequestOrder::ByTag => exchange.request_index(flow.id, flow.tags.sequence(sequence)),
        };
        let request = &exchange.requests[number];
        payload[..request.len()].copy_from_slice(request);
        if let (RequestOrder::InTurn, Some(tag)) = (exchange.order, exchange.tag) {
            tag.write(flow.tags.tag_of(sequence), payload);
        }
        request.len()
    }

    pub(super) fn record_sent(&mut self, flow: &mut FlowTrack, count: u64, intended: impl Fn(u64) -> u64) {
        let first_sequence = flow.window.next();
        for index in 0..count {
            flow.tags.record_sent(first_sequence + index, intended(index));
        }
        self.turn = (self.turn + self.stride * count as usize) % self.exchange.requests.len();
    }

    pub(super) fn judge(&self, reply: &ReplyDatagram<'_>, flow: &mut FlowTrack) -> DatagramKind {
        let exchange = &*self.exchange;
        if !exchange.is_well_formed(reply.bytes) {
            return DatagramKind::Corrupt;
        }
        let meaning = flow.tags.find_request(reply.bytes, &flow.window);
        if let (TagMeaning::Request(request), Some(verify)) = (meaning, &exchange.verify)
            && flow.window.is_open(request)
        {
            let tagged_request = (flow.id, flow.tags.sequence(request));
            match exchange.find_answered(&**verify, tagged_request, reply.bytes) {
                Some(0) if !reply.truncated => {}
                // The service may have been so slow that the tag was used again: then the reply is
                // valid, but late.
                Some(1..) if !reply.truncated => return DatagramKind::Late,
                _ => return DatagramKind::Corrupt,
            }
        }
        let intended_ns = match meaning {
            TagMeaning::Request(request) => flow.tags.intended_ns(request),
            TagMeaning::Past | TagMeaning::Unknown => 0,
        };
        datagram_kind(meaning.classify_reply(&mut flow.window), intended_ns, exchange.code_of(reply.bytes))
    }
}

fn datagram_kind(reply_kind: ReplyKind, intended_ns: u64, code: Option<u8>) -> DatagramKind {
    match reply_kind {
        ReplyKind::First { reordered } => DatagramKind::First { intended_ns, reordered, code },
        ReplyKind::Duplicate => DatagramKind::Duplicate,
        ReplyKind::Late => DatagramKind::Late,
        ReplyKind::NeverSent => DatagramKind::Unsolicited,
    }
}
