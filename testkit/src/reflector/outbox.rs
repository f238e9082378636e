//! The queue of replies to send.

use std::collections::VecDeque;
use std::net::UdpSocket;

use socket2::{SockAddr, SockRef};

use crate::reflector::account::ReflectorAccount;
use crate::reflector::clock;

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
#[derive(Default)]
pub(crate) struct ReplyQueue {
    replies: VecDeque<PendingReply>,
    spare: Vec<Vec<u8>>,
}

impl ReplyQueue {
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

    pub(crate) fn flush(&mut self, socket: &UdpSocket, account: &mut ReflectorAccount) {
        let mut now_ns = clock::now_ns();
        while let Some(mut reply) = self.replies.pop_front_if(|reply| reply.due_ns <= now_ns) {
            let sent = SockRef::from(socket).send_to(&reply.bytes, &reply.to).is_ok();
            account.count(&reply, sent, now_ns);
            if self.spare.len() < SPARE {
                reply.bytes.clear();
                self.spare.push(reply.bytes);
            }
            now_ns = clock::now_ns();
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
