//! Reception of replies on all flows of a thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use socket2::Socket;

use super::flow_track::FlowTrack;
use super::intervals::ThreadIntervals;
use super::requests::RequestSource;
use super::totals::ReceivedTotals;
use crate::error::GeneratorError;
use crate::generator::clock;
use crate::generator::plan::SlotSpan;
use crate::sys::{ReceiveBatch, ReplyDatagram};

/// Datagrams per system call.
const BATCH: usize = 64;

// Calls per flow before the next flow and the sender get their turns.
const CALLS_A_TURN: usize = 16;

// Room for replies that are longer than requests: the longest RADIUS packet (RFC 2865, section 3).
const LEAST_BUFFER_BYTES: usize = 4_096;

#[derive(Debug)]
pub(super) struct SocketFlow {
    pub(super) socket: Socket,
    pub(super) track: FlowTrack,
}

pub(super) struct FlowInbox {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    batch: ReceiveBatch,
    pub(super) totals: ReceivedTotals,
    pub(super) intervals: ThreadIntervals,
}

impl FlowInbox {
    /// Watches `flows`; their indices are kept.
    pub(super) fn new(
        flows: &[SocketFlow],
        payload_bytes: usize,
        intervals: ThreadIntervals,
    ) -> Result<Self, GeneratorError> {
        let epoll_error = |source: rustix::io::Errno| {
            GeneratorError::system("cannot watch the generator's sockets", source)
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(epoll_error)?;
        for (index, flow) in flows.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, flow.socket.as_fd(), data, epoll::EventFlags::IN).map_err(epoll_error)?;
        }
        Ok(FlowInbox {
            epoll,
            events: Vec::with_capacity(flows.len().clamp(1, 256)),
            batch: ReceiveBatch::new(BATCH, payload_bytes.max(LEAST_BUFFER_BYTES)),
            totals: ReceivedTotals::default(),
            intervals,
        })
    }

    /// Receives datagrams, waiting up to `wait` for the first. Returns their number, and leaves the indices
    /// of their flows in `touched`.
    pub(super) fn receive(
        &mut self,
        flows: &mut [SocketFlow],
        requests: &RequestSource,
        span: &SlotSpan,
        wait: Duration,
        touched: &mut Vec<usize>,
    ) -> usize {
        touched.clear();
        self.events.clear();
        let timeout = Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos() as _ };
        // An interrupted wait returns no datagram: callers loop on the clock.
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
                            let judgement = requests.judge(&reply, &mut flow.track);
                            let received_ns = || received_ns(&reply, offset_ns, now_ns);
                            if let Some((intended_ns, arrival_ns)) =
                                self.totals.record_datagram(judgement, received_ns, span)
                            {
                                self.intervals.record_answered(intended_ns, arrival_ns);
                            }
                        }
                        if received < self.batch.capacity() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // An ICMP message to an earlier request, reported once; replies may follow it.
                    Err(error) => self.totals.errors.count_icmp(&error),
                }
            }
        }
        count
    }
}

// When a datagram arrived, ns of the monotonic clock; read at `now_ns`.
fn received_ns(reply: &ReplyDatagram<'_>, offset_ns: i64, now_ns: u64) -> u64 {
    // The kernel's stamp excludes the wait for this thread. A stamp from the future means that the clock
    // was stepped: then the present time is used.
    reply
        .realtime_ns
        .and_then(|realtime_ns| u64::try_from(realtime_ns - offset_ns).ok())
        .map_or(now_ns, |stamp| stamp.min(now_ns))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::generator::socket::requests::ScriptedRequests;
    use crate::workload::{EchoedTag, PreparedExchange, ReplyVerifier, RequestOrder};

    #[derive(Debug)]
    struct AnyReply;

    impl ReplyVerifier for AnyReply {
        fn verify(&self, _request: &[u8], _reply: &[u8]) -> bool {
            true
        }
    }

    #[test]
    fn a_verified_reply_of_the_longest_radius_length_is_an_answer() {
        let exchange = Arc::new(PreparedExchange {
            protocol: "radius",
            requests: vec![vec![0; 71]],
            order: RequestOrder::ByTag,
            tag: Some(EchoedTag { bytes: 1, request_offset: 1, reply_offset: 1 }),
            marks: Vec::new(),
            shortest_reply_bytes: 20,
            code: None,
            verify: Some(Arc::new(AnyReply)),
            notes: Vec::new(),
        });
        let (client, server) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        let mut flow =
            SocketFlow { socket: client.into(), track: FlowTrack::for_exchange(&exchange, 1, 0, 1) };
        flow.track.begin(1);
        let mut requests = RequestSource::Exchange(ScriptedRequests::new(exchange, 0, 1));
        requests.record_sent(&mut flow.track, 1, |_| 1);
        flow.track.window.record_sent(1);
        server.send_to(&[0; 4_096], flow.socket.local_addr().unwrap().as_socket().unwrap()).unwrap();

        let intervals = ThreadIntervals::new(channel().0, channel().1);
        let mut flows = [flow];
        let mut inbox = FlowInbox::new(&flows, 71, intervals).unwrap();
        let wait = Duration::from_secs(10);
        let count = inbox.receive(&mut flows, &requests, &SlotSpan::default(), wait, &mut Vec::new());
        let counts = inbox.totals.counts;
        assert_eq!((count, counts.answered, counts.corrupt), (1, 1, 0));
    }
}
