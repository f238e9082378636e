//! The queue of replies to send.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use socket2::SockAddr;

use crate::reflector::account::ReflectorAccount;
use crate::reflector::clock;
use crate::reflector::sys::ReflectorSendBatch;

/// Replies sent by one system call.
const BATCH: usize = 64;

/// Buffers kept for the next replies.
const SPARE: usize = 4_096;

#[derive(Debug)]
pub(crate) struct PendingReply {
    pub(crate) to: SockAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: PendingKind,
    // Arrival of its request, ns.
    pub(crate) arrived_ns: u64,
    // Time to send it, ns.
    pub(crate) due_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingKind {
    Intact,
    Corrupt,
    Second,
}

/// Replies in sending order. Each is sent when it is due.
pub(crate) struct ReplyQueue {
    replies: VecDeque<PendingReply>,
    spare: Vec<Vec<u8>>,
    batch: ReflectorSendBatch,
}

impl ReplyQueue {
    pub(crate) fn new() -> Self {
        ReplyQueue { replies: VecDeque::new(), spare: Vec::new(), batch: ReflectorSendBatch::new(BATCH) }
    }

    pub(crate) fn push(&mut self, reply: PendingReply) {
        self.replies.push_back(reply);
    }

    /// A buffer that holds `bytes`.
    pub(crate) fn buffer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Time at which the next reply is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.replies.front().map(|reply| reply.due_ns)
    }

    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>, account: &mut ReflectorAccount) {
        loop {
            let now_ns = clock::now_ns();
            let due_replies = self.replies.iter().take_while(|reply| reply.due_ns <= now_ns);
            let mut due_replies = due_replies.map(|reply| (reply.bytes.as_slice(), &reply.to)).peekable();
            if due_replies.peek().is_none() {
                return;
            }
            let sent = self.batch.send(socket, due_replies);
            for _ in 0..*sent.as_ref().unwrap_or(&1) {
                let Some(mut reply) = self.replies.pop_front() else { return };
                account.count(&reply, sent.is_ok(), now_ns);
                if self.spare.len() < SPARE {
                    reply.bytes.clear();
                    self.spare.push(reply.bytes);
                }
            }
        }
    }
}

impl ReflectorAccount {
    fn count(&mut self, reply: &PendingReply, sent: bool, now_ns: u64) {
        match reply.kind {
            PendingKind::Second => self.duplicated += u64::from(sent),
            _ if !sent => self.unsent += 1,
            PendingKind::Corrupt => self.corrupted += 1,
            PendingKind::Intact => {
                self.answered += 1;
                self.record_delay(now_ns.saturating_sub(reply.arrived_ns));
            }
        }
    }
}
