//! The loop of a worker with queues: it answers frames, then the socket, and sleeps if there is nothing in either.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::{FrameLayout, RequestChecksum};
use super::queue::{FramePool, WorkerQueues, XskQueue};
use crate::backend::job::{LocalCounters, WorkerJob};
use crate::backend::mmsg;
use crate::overload::{AdmissionPolicy, Unlimited};
use crate::reply::ReplyOptions;
use crate::service::{Request, Service};
use crate::shutdown::WorkerPhase;
use crate::sys::batch::{DynamicControl, MessageBatch, OutgoingMessage};
use crate::sys::name::SocketName;
use crate::sys::stamp;
use crate::sys::xsk::XdpDescriptor;

/// Rounds with frames between two checks of the socket.
const ROUNDS: u32 = 16;

// Busy polls without a packet before the worker sleeps.
const IDLE_POLLS: u32 = 64;

// Longest sleep while frames wait to be sent because the device had no room or is down, and while the device holds the
// frames that the fill ring lacks.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

pub(super) fn run<S: Service>(mut job: WorkerJob<'_, S>, queues: &mut WorkerQueues) -> io::Result<()> {
    match job.admission.take() {
        None => run_with(Unlimited, job, queues),
        Some(admission) => run_with(admission, job, queues),
    }
}

fn run_with<S: Service, P: AdmissionPolicy>(
    mut policy: P,
    mut job: WorkerJob<'_, S>,
    worker_queues: &mut WorkerQueues,
) -> io::Result<()> {
    // The socket gets few requests, so its batch has no loop per kind of control data.
    let mut batch = MessageBatch::<DynamicControl>::new(job.shape);
    let mut counters = LocalCounters::new(job.counters);
    let mut reply = vec![0; job.shape.reply].into_boxed_slice();
    worker_queues.recover();
    let (mut round, mut idle_polls) = (0u32, 0u32);
    loop {
        let phase = job.shutdown.phase();
        if phase == WorkerPhase::End {
            worker_queues.end(&mut counters);
            return Ok(());
        }
        round = round.wrapping_add(1);
        let mut request_count = 0;
        for queue in worker_queues.queues.iter_mut().filter(|queue| !queue.gone) {
            let mut handler = FrameHandler {
                job: &mut job,
                policy: &mut policy,
                counters: &mut counters,
                reply: &mut reply,
                verify: worker_queues.verify_checksums,
                taken_ns: None,
            };
            request_count +=
                queue.process_batch(&mut worker_queues.frames, worker_queues.batch, &mut handler);
        }
        if request_count > 0 {
            counters.rest = true;
            counters.publish();
            idle_polls = 0;
            if !round.is_multiple_of(ROUNDS) {
                continue;
            }
        }
        if serve_socket(&mut batch, &mut policy, &mut job, &mut counters)? || request_count > 0 {
            idle_polls = 0;
            continue;
        }
        if phase == WorkerPhase::Drain {
            job.shutdown.on_empty();
        } else if worker_queues.busy_poll && idle_polls < IDLE_POLLS {
            idle_polls += 1;
            for queue in worker_queues.queues.iter_mut().filter(|queue| !queue.gone) {
                counters.counts.syscalls += queue.poll_device();
            }
        } else {
            counters.counts.syscalls += 1;
            worker_queues.sleep(job.socket.as_fd())?;
        }
    }
}

/// Answers requests that are queued in the socket; returns whether there were any.
fn serve_socket<S: Service, P: AdmissionPolicy>(
    batch: &mut MessageBatch<DynamicControl>,
    policy: &mut P,
    job: &mut WorkerJob<'_, S>,
    counters: &mut LocalCounters<'_>,
) -> io::Result<bool> {
    counters.counts.syscalls += 1;
    match batch.receive(job.socket, libc::MSG_DONTWAIT) {
        Ok(0) => job.shutdown.on_wake(),
        Ok(received) => mmsg::answer(batch, received, policy, job, counters),
        Err(error) => {
            if counters.on_receive_error(error, job.socket)? {
                policy.on_idle();
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl WorkerQueues {
    // Whether a queue waits for room in its device or for sent frames, which do not end `poll`.
    fn awaits_frames(&mut self) -> bool {
        let mut queues = self.queues.iter_mut().filter(|queue| !queue.gone);
        queues.any(|queue| queue.rings.transmit.pending() > 0 || queue.waiting < queue.wanted)
    }

    /// Waits for a packet, a datagram, or the shutdown.
    fn sleep(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let awaits_frames = self.awaits_frames();
        let mut poll_fds: Vec<PollFd<'_>> = Vec::with_capacity(1 + self.queues.len());
        poll_fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        for queue in self.queues.iter().filter(|queue| !queue.gone) {
            poll_fds.push(PollFd::from_borrowed_fd(queue.socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut poll_fds, awaits_frames.then_some(&RETRY)) {
            // After a signal the loop looks at all queues again in any case.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Cleans up after a panic. The requests of its batch get no answer, and are counted as panicked.
    fn recover(&mut self) {
        for queue in &mut self.queues {
            while let Some(reply) = queue.rings.transmit.withdraw() {
                self.frames.recycle(reply.address);
            }
            if let Some(address) = queue.in_hand.take() {
                self.frames.recycle(address);
            }
            queue.rings.receive.release();
            queue.restock(&mut self.frames);
        }
    }

    /// Counts replies that no call could send as failed.
    fn end(&mut self, counters: &mut LocalCounters<'_>) {
        for queue in &mut self.queues {
            counters.counts.syscalls += queue.send();
            let unsent = u64::from(queue.rings.transmit.pending());
            counters.counts.answered -= unsent;
            counters.counts.send_failed.would_block += unsent;
        }
        counters.rest = true;
        counters.publish();
    }
}

/// The state that answers requests in frames.
struct FrameHandler<'d, 'j, S, P> {
    job: &'d mut WorkerJob<'j, S>,
    policy: &'d mut P,
    counters: &'d mut LocalCounters<'j>,
    reply: &'d mut [u8],
    /// Whether checksums are checked.
    verify: bool,
    // When the batch was taken, if the service uses receive times, in nanoseconds of the real-time clock.
    taken_ns: Option<i64>,
}

impl XskQueue {
    /// Answers up to a batch of packets; returns their number.
    #[inline]
    fn process_batch<S: Service, P: AdmissionPolicy>(
        &mut self,
        frames: &mut FramePool,
        batch: u32,
        handler: &mut FrameHandler<'_, '_, S, P>,
    ) -> u32 {
        let available = self.rings.receive.available();
        let packet_count = available.min(batch).min(self.rings.transmit.room(batch));
        let mut answered = 0;
        if packet_count > 0 {
            handler.policy.record_frames(available > packet_count);
        }
        if packet_count > 0 && handler.job.shape.asked.times {
            handler.taken_ns = Some(stamp::now_ns());
        }
        for _ in 0..packet_count {
            let Some(packet) = self.take(frames) else { break };
            let Some((frame, length)) = frames.umem.packet(packet.address, packet.length) else { continue };
            self.in_hand = Some(packet.address);
            match self.answer(frame, length, handler) {
                Some(length) => {
                    // `packet_count` is at most the room in the ring.
                    let length = length as u32;
                    self.rings.transmit.push(XdpDescriptor { address: packet.address, length, options: 0 });
                    answered += 1;
                }
                None => frames.recycle(packet.address),
            }
            self.in_hand = None;
        }
        if packet_count > 0 {
            handler.counters.counts.batches += 1;
            self.rings.receive.release();
            self.rings.transmit.submit();
            handler.counters.counts.answered += answered;
        }
        handler.counters.counts.syscalls += self.send();
        self.restock(frames);
        handler.counters.counts.syscalls += self.wake_receive();
        packet_count
    }

    /// Turns the frame of a request into that of the reply; returns the bytes to send, or `None` to send no frame.
    #[inline(always)]
    fn answer<S: Service, P: AdmissionPolicy>(
        &self,
        frame: &mut [u8],
        length: usize,
        handler: &mut FrameHandler<'_, '_, S, P>,
    ) -> Option<usize> {
        let FrameHandler { job, policy, counters, reply, verify, taken_ns } = handler;
        // The BPF program redirects requests only.
        let layout = FrameLayout::parse(&frame[..length])?;
        if *verify && !self.is_checksum_valid(layout, &frame[..length]) {
            counters.counts.checksum_errors += 1;
            return None;
        }
        counters.counts.received += 1;
        counters.counts.frames += 1;
        let addresses = layout.addresses(frame, self.interface);
        let family = job.shape.family;
        if !policy.admits_from(|| SocketName::encode(addresses.source(), family).unwrap_or(SocketName::ZERO))
        {
            counters.count_shed();
            return None;
        }
        let (start, mut end) = (layout.payload_offset(), layout.end());
        let truncated = end - start > job.shape.request;
        if truncated {
            if !counters.count_truncated(job.deliver_truncated) {
                return None;
            }
            end = start + job.shape.request;
        }
        let traffic_class = layout.traffic_class(frame);
        let request = Request::from_frame(
            &frame[start..end],
            &addresses,
            traffic_class,
            *taken_ns,
            truncated,
            &job.path,
        );
        let action = job.service.answer(&request, reply);
        let fits = |length: usize| length <= layout.max_payload(self.mtu) && start + length <= frame.len();
        let (payload, options) = match counters.record_action(action, reply.len()) {
            OutgoingMessage::Nothing => return None,
            OutgoingMessage::Same if fits(end - start) => return Some(layout.make_reply(frame, end - start)),
            OutgoingMessage::Same => (&frame[start..end], ReplyOptions::default()),
            OutgoingMessage::Reply(length) if fits(length) => {
                frame[start..start + length].copy_from_slice(&reply[..length]);
                return Some(layout.make_reply(frame, length));
            }
            OutgoingMessage::Reply(length) => (&reply[..length], ReplyOptions::default()),
            OutgoingMessage::With(length, options) => (&reply[..length], options),
        };
        // It does not fit a frame, or may need another route.
        counters.send_single(|| request.defer().send_by(job.socket, payload, options));
        None
    }

    #[cold]
    fn is_checksum_valid(&self, layout: FrameLayout, frame: &[u8]) -> bool {
        match layout.verify(frame) {
            RequestChecksum::Fine => true,
            RequestChecksum::Unfinished => self.unfinished_checksums,
            RequestChecksum::Wrong => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sys::xsk::{Umem, XskSocket};

    #[test]
    fn recovery_from_a_panic_takes_all_frames_back() -> io::Result<()> {
        const FRAMES: u32 = 128;
        let umem = Umem::new(FRAMES as usize, 2048)?;
        let socket = XskSocket::new().and_then(|socket| socket.register(&umem).map(|()| socket));
        let skip = |why| linerate_testkit::skip("recovery_from_a_panic_takes_all_frames_back", why);
        let Ok(socket) = socket.map_err(skip) else { return Ok(()) };
        let mut queue = XskQueue {
            rings: socket.rings(FRAMES)?,
            socket: Arc::new(socket),
            interface: 1,
            mtu: 1500,
            unfinished_checksums: false,
            need_wakeup: false,
            waiting: 0,
            wanted: FRAMES / 2,
            in_hand: None,
            gone: false,
        };
        let mut frames = FramePool::new(umem);
        queue.restock(&mut frames);
        // The third request of a batch panics, after two replies that the kernel has not seen.
        let mut packets = frames.free.split_off(frames.free.len() - 3).into_iter().map(|frame| frame + 256);
        queue.in_hand = packets.next();
        for address in packets {
            queue.rings.transmit.push(XdpDescriptor { address, length: 60, options: 0 });
        }
        let mut worker_queues = WorkerQueues {
            queues: vec![queue],
            frames,
            batch: 64,
            verify_checksums: false,
            busy_poll: false,
            _programs: Arc::default(),
        };
        worker_queues.recover();
        assert!(!worker_queues.awaits_frames(), "an idle server sleeps without an end");
        let mut free = std::mem::take(&mut worker_queues.frames.free);
        free.sort_unstable();
        assert_eq!(
            free,
            (u64::from(FRAMES / 2)..FRAMES.into()).map(|frame| frame * 2048).collect::<Vec<_>>()
        );
        // While the device sends the other frames, none is left for the fill ring.
        worker_queues.queues[0].waiting -= 1;
        worker_queues.queues[0].restock(&mut worker_queues.frames);
        assert!(worker_queues.awaits_frames());
        Ok(())
    }
}
