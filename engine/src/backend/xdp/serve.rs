//! The loop of a worker that has queues: frames first, then the socket, and sleep where there is neither.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::{FrameLayout, RequestChecksum};
use super::queue::{FramePool, WorkerQueues, XskQueue};
use crate::backend::mmsg;
use crate::backend::{LocalCounters, ReceiveFailure, WorkerJob, classify_receive_error, too_long};
use crate::overload::{AdmissionPolicy, Unlimited};
use crate::service::{Action, ReplyOptions, Request, Service};
use crate::sys::batch::{ControlKind, ExtendedControl, MessageBatch, NoControl, PktinfoV4, PktinfoV6};
use crate::sys::control::{ControlBuffer, PktinfoMode};
use crate::sys::name::SocketName;
use crate::sys::single::send_message;
use crate::sys::stamp;
use crate::sys::xsk::XdpDescriptor;
use crate::worker::WorkerPhase;

/// How often the socket is looked at while frames keep coming: once so many rounds.
const ROUNDS: u32 = 16;

/// How many times nothing comes by busy polling before the worker sleeps.
const IDLE_POLLS: u32 = 64;

/// How long a worker sleeps while frames wait to be sent: the device had no room, or is down.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

pub(super) fn run<S: Service>(mut job: WorkerJob<'_, S>, share: &mut WorkerQueues) -> io::Result<()> {
    match job.gate.take() {
        None => run_by(Unlimited, job, share),
        Some(gate) => run_by(gate, job, share),
    }
}

fn run_by<S: Service, P: AdmissionPolicy>(
    policy: P,
    job: WorkerJob<'_, S>,
    share: &mut WorkerQueues,
) -> io::Result<()> {
    match job.shape.asked.pktinfo {
        _ if job.shape.asked.has_extra_fields() => {
            run_with(MessageBatch::<ExtendedControl>::new(job.shape), policy, job, share)
        }
        PktinfoMode::Off => run_with(MessageBatch::<NoControl>::new(job.shape), policy, job, share),
        PktinfoMode::V4 => run_with(MessageBatch::<PktinfoV4>::new(job.shape), policy, job, share),
        PktinfoMode::V6 => run_with(MessageBatch::<PktinfoV6>::new(job.shape), policy, job, share),
    }
}

fn run_with<S: Service, K: ControlKind, P: AdmissionPolicy>(
    mut batch: MessageBatch<K>,
    mut policy: P,
    mut job: WorkerJob<'_, S>,
    share: &mut WorkerQueues,
) -> io::Result<()> {
    let mut tally = LocalCounters::new(job.counters);
    let mut reply = vec![0; job.shape.reply].into_boxed_slice();
    share.recover();
    let (mut round, mut idle) = (0u32, 0u32);
    loop {
        let phase = job.ending.phase();
        if phase == WorkerPhase::End {
            share.end(&mut tally);
            return Ok(());
        }
        round = round.wrapping_add(1);
        let mut came = 0;
        for queue in share.queues.iter_mut().filter(|queue| !queue.gone) {
            let mut desk = FrameHandler {
                job: &mut job,
                policy: &mut policy,
                tally: &mut tally,
                reply: &mut reply,
                verify: share.verify_checksums,
                taken_ns: None,
            };
            came += queue.process_batch(&mut share.frames, share.batch, &mut desk);
        }
        if came > 0 {
            tally.rest = true;
            tally.publish();
            idle = 0;
            if !round.is_multiple_of(ROUNDS) {
                continue;
            }
        }
        if serve_socket(&mut batch, &mut policy, &mut job, &mut tally)? || came > 0 {
            idle = 0;
            continue;
        }
        if phase == WorkerPhase::Drain {
            job.ending.on_empty();
        } else if share.busy_poll && idle < IDLE_POLLS {
            idle += 1;
            for queue in share.queues.iter_mut().filter(|queue| !queue.gone) {
                tally.counts.syscalls += queue.poll_device();
            }
        } else {
            tally.counts.syscalls += 1;
            share.sleep(job.socket.as_fd())?;
        }
    }
}

/// Answers what is queued in the socket; returns whether anything was.
fn serve_socket<S: Service, K: ControlKind, P: AdmissionPolicy>(
    batch: &mut MessageBatch<K>,
    policy: &mut P,
    job: &mut WorkerJob<'_, S>,
    tally: &mut LocalCounters<'_>,
) -> io::Result<bool> {
    tally.counts.syscalls += 1;
    match batch.receive(job.socket, libc::MSG_DONTWAIT) {
        Ok(0) => {
            job.ending.on_wake();
            Ok(true)
        }
        Ok(received) => {
            policy.received(job.socket, received, received == job.shape.messages);
            mmsg::answer(batch, received, policy, job, tally);
            tally.publish();
            Ok(true)
        }
        Err(error) => match classify_receive_error(error) {
            ReceiveFailure::Again => Ok(true),
            ReceiveFailure::Empty => {
                policy.nothing();
                Ok(false)
            }
            ReceiveFailure::Failed => {
                tally.counts.receive_errors += 1;
                tally.rest = true;
                tally.publish();
                Ok(true)
            }
            ReceiveFailure::Broken(error) => Err(error),
        },
    }
}

impl WorkerQueues {
    /// Waits for a packet, a datagram, or the end.
    fn sleep(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let unsent = self.queues.iter_mut().any(|queue| !queue.gone && queue.rings.transmit.pending() > 0);
        let mut waited: Vec<PollFd<'_>> = Vec::with_capacity(1 + self.queues.len());
        waited.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        for queue in self.queues.iter().filter(|queue| !queue.gone) {
            waited.push(PollFd::from_borrowed_fd(queue.socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut waited, unsent.then_some(&RETRY)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts right what a panic left half done: requests of its batch get no answer, as its account has it.
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

    /// Replies that no call could send are no answers.
    fn end(&mut self, tally: &mut LocalCounters<'_>) {
        for queue in &mut self.queues {
            tally.counts.syscalls += queue.send();
            let unsent = u64::from(queue.rings.transmit.pending());
            tally.counts.answered -= unsent;
            tally.counts.send_failed.would_block += unsent;
        }
        tally.rest = true;
        tally.publish();
    }
}

/// Where requests in frames are decided about.
struct FrameHandler<'d, 'j, S, P> {
    job: &'d mut WorkerJob<'j, S>,
    policy: &'d mut P,
    tally: &'d mut LocalCounters<'j>,
    reply: &'d mut [u8],
    /// Whether checksums are checked.
    verify: bool,
    /// When the batch was taken, where the service wants to know, in nanoseconds of the real-time clock.
    taken_ns: Option<i64>,
}

impl XskQueue {
    /// Answers up to a batch of packets; returns how many there were.
    #[inline]
    fn process_batch<S: Service, P: AdmissionPolicy>(
        &mut self,
        frames: &mut FramePool,
        batch: u32,
        desk: &mut FrameHandler<'_, '_, S, P>,
    ) -> u32 {
        let came = self.rings.receive.available().min(batch).min(self.rings.transmit.room(batch));
        let mut answered = 0;
        if came > 0 && desk.job.shape.asked.times {
            desk.taken_ns = Some(stamp::now_ns());
        }
        for _ in 0..came {
            let Some(packet) = self.take(frames) else { break };
            let Some((frame, length)) = frames.umem.packet(packet.address, packet.length) else { continue };
            self.in_hand = Some(packet.address);
            match self.answer(frame, length, desk) {
                Some(length) => {
                    // There is room: `came` is no more than that.
                    let length = length as u32;
                    self.rings.transmit.push(XdpDescriptor { address: packet.address, length, options: 0 });
                    answered += 1;
                }
                None => frames.recycle(packet.address),
            }
            self.in_hand = None;
        }
        if came > 0 {
            desk.tally.counts.batches += 1;
            self.rings.receive.release();
            self.rings.transmit.submit();
            desk.tally.counts.answered += answered;
        }
        desk.tally.counts.syscalls += self.send();
        self.restock(frames);
        desk.tally.counts.syscalls += self.wake_receive();
        came
    }

    /// Makes a request's frame the reply's; returns the bytes to send, none if the frame is not to be sent.
    #[inline(always)]
    fn answer<S: Service, P: AdmissionPolicy>(
        &self,
        frame: &mut [u8],
        length: usize,
        desk: &mut FrameHandler<'_, '_, S, P>,
    ) -> Option<usize> {
        let FrameHandler { job, policy, tally, reply, verify, taken_ns } = desk;
        // What the program lets through is a request; anything else means a mistake there, and goes unanswered.
        let layout = FrameLayout::parse(&frame[..length])?;
        if *verify && !self.is_checksum_valid(layout, &frame[..length]) {
            tally.counts.checksum_errors += 1;
            return None;
        }
        tally.counts.received += 1;
        tally.counts.frames += 1;
        let addresses = layout.addresses(frame, self.interface);
        let family = job.shape.family;
        if !policy.admits_from(|| SocketName::encode(addresses.source(), family).unwrap_or(SocketName::ZERO))
        {
            tally.count_shed();
            return None;
        }
        let (begin, mut end) = (layout.payload_offset(), layout.end());
        let truncated = end - begin > job.shape.request;
        if truncated {
            if !tally.count_truncated(job.deliver_truncated) {
                return None;
            }
            end = begin + job.shape.request;
        }
        let class = layout.traffic_class(frame);
        let request =
            Request::from_frame(&frame[begin..end], &addresses, class, *taken_ns, truncated, &job.path);
        let action = job.service.answer(&request, reply);
        let fits = |length: usize| length <= layout.max_payload(self.mtu) && begin + length <= frame.len();
        let (payload, options) = match action {
            Action::Echo if fits(end - begin) => return Some(layout.make_reply(frame, end - begin)),
            Action::Echo => (&frame[begin..end], ReplyOptions::default()),
            Action::Reply(length) if length <= reply.len() && fits(length) => {
                frame[begin..begin + length].copy_from_slice(&reply[..length]);
                return Some(layout.make_reply(frame, length));
            }
            Action::Reply(length) if length <= reply.len() => (&reply[..length], ReplyOptions::default()),
            Action::ReplyTo { length, to } if length <= reply.len() => {
                (&reply[..length], ReplyOptions { to: Some(to), ..ReplyOptions::default() })
            }
            Action::ReplyWith { length, options } if length <= reply.len() => (&reply[..length], options),
            Action::Reply(_) | Action::ReplyTo { .. } | Action::ReplyWith { .. } => {
                tally.count_send_failure(&too_long());
                return None;
            }
            Action::Drop => {
                tally.counts.dropped += 1;
                return None;
            }
            Action::Defer => {
                tally.count_deferred();
                return None;
            }
        };
        tally.counts.redirected += u64::from(options.to.is_some());
        send_by_socket(payload, &addresses, options, job, tally);
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

/// Sends what no frame can carry, or where this queue may not lead, by the worker's socket.
#[cold]
fn send_by_socket<S: Service>(
    payload: &[u8],
    addresses: &super::FrameAddresses,
    options: ReplyOptions,
    job: &WorkerJob<'_, S>,
    tally: &mut LocalCounters<'_>,
) {
    let family = job.shape.family;
    let to = options.to.unwrap_or_else(|| addresses.source());
    let name = SocketName::encode(to, family).unwrap_or(SocketName::ZERO);
    // The address a request came to is a source for its own family only.
    let same_family = to.ip().to_canonical().is_ipv4() == addresses.destination().is_ipv4();
    let (mut control, length) = match same_family {
        true => ControlBuffer::from_source(
            job.shape.asked.pktinfo,
            addresses.destination(),
            addresses.interface(),
        ),
        false => (ControlBuffer::EMPTY, 0),
    };
    let length = control.append(length, to.ip().to_canonical().is_ipv4(), options.extras());
    loop {
        tally.counts.syscalls += 1;
        match send_message(job.socket, payload, &name, family, &mut control, length) {
            Ok(()) => tally.counts.answered += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => tally.count_send_failure(&error),
        }
        return;
    }
}
