//! Replies: which flows have some, and what each is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use socket2::Socket;

use super::carried::RequestSource;
use super::intervals::ThreadIntervals;
use super::tally::{CountedParts, ReceivedTotals};
use super::trail::FlowTrack;
use crate::error::GeneratorError;
use crate::generator::clock;
use crate::sys::{ReceiveBatch, Received};

/// Datagrams taken by one system call.
const BATCH: usize = 64;

/// Calls on one flow before the others get their turn, and sending its own.
const CALLS_A_TURN: usize = 16;

/// Room for replies of another size than asked for, so that a stranger is told from damage.
const LEAST_BUFFER_BYTES: usize = 2_048;

/// A source port with its account.
#[derive(Debug)]
pub(super) struct SocketFlow {
    pub(super) socket: Socket,
    pub(super) track: FlowTrack,
}

/// Receives for all flows of one thread.
pub(super) struct FlowInbox {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    batch: ReceiveBatch,
    pub(super) tally: ReceivedTotals,
    pub(super) book: ThreadIntervals,
}

impl FlowInbox {
    /// Watches `flows`; their indices are kept.
    pub(super) fn new(
        flows: &[SocketFlow],
        payload_bytes: usize,
        book: ThreadIntervals,
    ) -> Result<Self, GeneratorError> {
        let failed = |source: rustix::io::Errno| {
            GeneratorError::system("cannot watch the generator's sockets", source)
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        for (index, flow) in flows.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, flow.socket.as_fd(), data, epoll::EventFlags::IN).map_err(failed)?;
        }
        Ok(FlowInbox {
            epoll,
            events: Vec::with_capacity(flows.len().clamp(1, 256)),
            batch: ReceiveBatch::new(BATCH, payload_bytes.max(LEAST_BUFFER_BYTES)),
            tally: ReceivedTotals::default(),
            book,
        })
    }

    /// Takes what has arrived, waiting up to `wait` for the first; returns how many datagrams, and leaves the
    /// indices of the flows they came on in `touched`.
    pub(super) fn receive(
        &mut self,
        flows: &mut [SocketFlow],
        carried: &RequestSource,
        expected: &CountedParts,
        wait: Duration,
        touched: &mut Vec<usize>,
    ) -> usize {
        touched.clear();
        self.events.clear();
        let timeout = Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        // An interrupted wait is an empty one: callers loop on the clock.
        if epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)).is_err() {
            return 0;
        }
        if self.events.is_empty() {
            return 0;
        }
        let offset_ns = clock::realtime_offset_ns();
        let mut count = 0;
        for event in &self.events {
            let index = event.data.u64() as usize;
            let Some(flow) = flows.get_mut(index) else { continue };
            touched.push(index);
            for _ in 0..CALLS_A_TURN {
                match self.batch.receive(flow.socket.as_fd()) {
                    Ok(received) => {
                        count += received;
                        let now_ns = clock::now_ns();
                        for reply in self.batch.iter() {
                            let judgement = carried.judge(&reply, &mut flow.track);
                            let received_ns = || received_ns(&reply, offset_ns, now_ns);
                            self.tally.note(judgement, received_ns, expected, &mut self.book);
                        }
                        if received < self.batch.capacity() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // An ICMP message to an earlier request, reported once; there may be replies behind it.
                    Err(error) => self.tally.errors.count(&error),
                }
            }
        }
        count
    }
}

/// When a datagram arrived, ns of the monotonic clock; read at `now_ns`.
fn received_ns(reply: &Received<'_>, offset_ns: i64, now_ns: u64) -> u64 {
    // The kernel's stamp leaves out how long the reply waited for this thread. A stamp from the future is a clock that
    // was stepped: then now is the best there is.
    reply
        .realtime_ns
        .and_then(|realtime_ns| u64::try_from(realtime_ns - offset_ns).ok())
        .map_or(now_ns, |stamp| stamp.min(now_ns))
}
