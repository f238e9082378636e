//! Replies: which flows have some, and what each is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use socket2::Socket;

use super::matching::{Answer, Ledger};
use crate::error::Error;
use crate::generator::clock;
use crate::header::Codec;
use crate::latency::Latency;
use crate::outcome::SendErrors;
use crate::sys::ReceiveBatch;

/// Datagrams taken by one system call.
const BATCH: usize = 64;

/// Calls on one flow before the others get their turn, and sending its own.
const CALLS_A_TURN: usize = 16;

/// Room for replies of another size than asked for, so that a stranger is told from damage.
const LEAST_BUFFER_BYTES: usize = 2_048;

/// A source port with its account.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: u32,
    pub(super) socket: Socket,
    pub(super) ledger: Ledger,
}

/// What came in during a slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) answered: u64,
    pub(super) answered_in_time: u64,
    pub(super) duplicate: u64,
    pub(super) reordered: u64,
    pub(super) corrupt: u64,
    pub(super) foreign: u64,
    pub(super) late: u64,
    pub(super) errors: SendErrors,
    pub(super) latency: Latency,
    pub(super) first_half: Latency,
    pub(super) last_quarter: Latency,
}

/// What replies of the current slot are judged by; times in ns of the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Expectation {
    pub(super) run: u64,
    pub(super) epoch: u32,
    pub(super) half_ns: u64,
    pub(super) last_quarter_ns: u64,
    pub(super) end_ns: u64,
}

/// Receives for all flows of one thread.
pub(super) struct Inbox {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    batch: ReceiveBatch,
    pub(super) tally: Tally,
}

impl Inbox {
    /// Watches `flows`; their indices are kept.
    pub(super) fn new(flows: &[Flow], payload_bytes: usize) -> Result<Self, Error> {
        let failed =
            |source: rustix::io::Errno| Error::system("cannot watch the generator's sockets", source);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        for (index, flow) in flows.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, flow.socket.as_fd(), data, epoll::EventFlags::IN).map_err(failed)?;
        }
        Ok(Inbox {
            epoll,
            events: Vec::with_capacity(flows.len().clamp(1, 256)),
            batch: ReceiveBatch::new(BATCH, payload_bytes.max(LEAST_BUFFER_BYTES)),
            tally: Tally::default(),
        })
    }

    /// Forgets the last slot's tally and keeps its memory.
    pub(super) fn clear(&mut self) {
        let tally = &mut self.tally;
        tally.latency.clear();
        tally.first_half.clear();
        tally.last_quarter.clear();
        let keep = std::mem::take(tally);
        *tally = Tally {
            latency: keep.latency,
            first_half: keep.first_half,
            last_quarter: keep.last_quarter,
            ..Tally::default()
        };
    }

    /// Takes what has arrived, waiting up to `wait` for the first; returns how many datagrams, and leaves the
    /// indices of the flows they came on in `touched`.
    pub(super) fn receive(
        &mut self,
        flows: &mut [Flow],
        codec: &Codec,
        expected: &Expectation,
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
                        self.tally.judge(&self.batch, flow, codec, expected, offset_ns);
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

impl Tally {
    fn judge(
        &mut self,
        batch: &ReceiveBatch,
        flow: &mut Flow,
        codec: &Codec,
        expected: &Expectation,
        offset_ns: i64,
    ) {
        let now_ns = clock::now_ns();
        for reply in batch.iter() {
            let header = match codec.read(reply.bytes) {
                Ok(header) if !reply.truncated => header,
                _ => {
                    self.corrupt += 1;
                    continue;
                }
            };
            if header.run != expected.run || header.flow != flow.id || header.epoch > expected.epoch {
                self.foreign += 1;
                continue;
            }
            if reply.bytes.len() != codec.payload_bytes() {
                self.corrupt += 1;
                continue;
            }
            if header.epoch < expected.epoch {
                self.late += 1;
                continue;
            }
            match flow.ledger.answer(header.sequence) {
                Answer::Duplicate => self.duplicate += 1,
                Answer::Late => self.late += 1,
                Answer::NeverSent => self.foreign += 1,
                Answer::First { reordered } => {
                    self.answered += 1;
                    self.reordered += u64::from(reordered);
                    // The kernel's stamp leaves out how long the reply waited for this thread. A stamp from the
                    // future is a clock that was stepped: then now is the best there is.
                    let received_ns = reply
                        .realtime_ns
                        .and_then(|realtime_ns| u64::try_from(realtime_ns - offset_ns).ok())
                        .map_or(now_ns, |stamp| stamp.min(now_ns));
                    self.record(header.intended_ns, received_ns, expected);
                }
            }
        }
    }

    fn record(&mut self, intended_ns: u64, received_ns: u64, expected: &Expectation) {
        let latency_ns = received_ns.saturating_sub(intended_ns);
        self.latency.record(latency_ns);
        if intended_ns < expected.half_ns {
            self.first_half.record(latency_ns);
        } else if intended_ns >= expected.last_quarter_ns {
            self.last_quarter.record(latency_ns);
        }
        self.answered_in_time += u64::from(received_ns <= expected.end_ns);
    }
}
