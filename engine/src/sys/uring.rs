//! io_uring for one worker: a receive that stays armed, into buffers that the kernel picks from a ring of them, and
//! replies that are submitted together with the next wait.
//!
//! A reply is sent while it is submitted (`MSG_DONTWAIT` leaves nothing to be done later), and posts a completion only
//! when it fails (`IOSQE_CQE_SKIP_SUCCESS`, Linux 5.17). So after each `io_uring_enter` the buffers of all replies that
//! went with it are free again, but for those of zero-copy sends, which the kernel lets go one by one.

mod memory;
mod pool;
mod probe;
mod sends;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::{CancelBuilder, Fixed, Napi, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use socket2::Socket;

use self::pool::Pool;
pub(crate) use self::probe::{Lacking, probe};
use self::sends::{Release, Sends};
use super::batch::{Incoming, Outgoing, Shape};

/// Requests that a receive takes before others have their turn (`MULTISHOT_MAX_RETRY` in io_uring/net.c): so many at once may
/// have left some.
pub(crate) const TURN: usize = 32;

/// The one registered file.
const SOCKET: Fixed = Fixed(0);
/// The one group of provided buffers.
const GROUP: u16 = 0;

/// What a completion is about: in the upper half of its user data; the lower has the slot of a send.
const RECEIVE: u64 = 0;
const WATCH: u64 = 1;
const COPY: u64 = 2;
const ZERO_COPY: u64 = 3;

const fn tag(kind: u64, slot: u16) -> u64 {
    kind << 32 | slot as u64
}

/// How a ring is to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Buffers for requests, a power of two.
    pub(crate) buffers: u16,
    /// Replies of at least so many bytes are sent without a copy.
    pub(crate) zero_copy: Option<usize>,
    /// Microseconds for which a wait polls the device itself.
    pub(crate) busy_poll: Option<u32>,
    /// Whether interrupts are to be held back in favour of it.
    pub(crate) prefer_busy_poll: bool,
}

/// What a call is to take from the socket besides sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Nothing: receives are made only by calls that ask for events.
    Nothing,
    /// What waits there.
    Waiting,
    /// At least one request, or the socket's end: the call waits for it.
    Something,
}

/// What the receiving side brought.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A request, in the buffer of this number.
    Message(u16),
    /// All buffers were taken; nothing is lost, the requests wait in the socket.
    Starved,
    /// A failed receive.
    Failed(io::Error),
    /// The socket was shut down.
    Woken,
}

/// A ring, its buffers, and what is under way in it. For the thread that makes it alone (`IORING_SETUP_SINGLE_ISSUER`).
pub(crate) struct Ring<'a> {
    /// Dropped first, so that no buffer is gone before the kernel is done with it.
    ring: IoUring,
    socket: &'a Socket,
    pool: Pool,
    sends: Sends,
    zero_copy: Option<usize>,
    arrivals: VecDeque<Arrival>,
    /// Whether the receive is armed.
    receiving: bool,
    /// Whether the socket's end is waited for.
    watching: bool,
    /// Calls of `io_uring_enter`, and sends made outside the ring.
    calls: u64,
}

/// A ring as a worker uses it. Completions are posted, and receives made, only when its thread asks for them
/// (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1), so that no interrupt of the thread is needed.
fn build(submissions: u32, completions: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_submit_all()
        .setup_cqsize(completions)
        .build(submissions)
}

impl<'a> Ring<'a> {
    pub(crate) fn new(socket: &'a Socket, shape: Shape, plan: Plan) -> io::Result<Self> {
        let pool = Pool::new(plan.buffers, shape)?;
        let sends = Sends::new(shape, plan.zero_copy.is_some(), plan.buffers)?;
        // Each buffer can be in one completion, each slot in two; a receive and the watch end with one more.
        let completions = u32::from(plan.buffers) + 2 * sends.slots() as u32 + 8;
        let submissions = (shape.messages as u32 + 4).next_power_of_two();
        let ring = build(submissions, completions.next_power_of_two().max(2 * submissions))?;
        ring.submitter().register_files(&[socket.as_raw_fd()])?;
        pool.register(&ring)?;
        if let Some(microseconds) = plan.busy_poll {
            let mut napi =
                Napi::new().set_busy_poll_timeout(microseconds).set_prefer_busy_poll(plan.prefer_busy_poll);
            ring.submitter().register_napi(&mut napi)?;
        }
        Ok(Self {
            ring,
            socket,
            pool,
            sends,
            zero_copy: plan.zero_copy,
            arrivals: VecDeque::with_capacity(usize::from(plan.buffers) + 8),
            receiving: false,
            watching: false,
            calls: 0,
        })
    }

    /// Arms the receive and the watch for the socket's end, where they are not; the next [`enter`](Self::enter)
    /// submits them.
    #[inline]
    pub(crate) fn arm(&mut self) {
        if !self.receiving {
            self.arm_receive();
        }
        if !self.watching {
            self.arm_watch();
        }
    }

    #[cold]
    fn arm_receive(&mut self) {
        let receive = opcode::RecvMsgMulti::new(SOCKET, self.pool.header(), GROUP);
        self.receiving = self.push(&receive.build().user_data(tag(RECEIVE, 0)));
    }

    /// A receive that would have to wait is told by a poll, which nothing ends when the socket is shut down: the receive
    /// tries again and waits on (`__skb_recv_udp` in net/ipv4/udp.c looks at the shutdown only where it may block). So the
    /// shutdown is polled for apart. Errors of the socket end it too.
    #[cold]
    fn arm_watch(&mut self) {
        let watch = opcode::PollAdd::new(SOCKET, libc::POLLRDHUP as u32);
        self.watching = self.push(&watch.build().user_data(tag(WATCH, 0)));
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: what entries point to lives in `pool` and `sends`, which outlive the ring (field order, and `drop`
        // leaks them where something may still be under way), and is not written to until it has completed.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Submits all that is queued, and takes from the socket as said. Afterwards [`collect`](Self::collect) must be called.
    pub(crate) fn enter(&mut self, take: Take) -> io::Result<()> {
        self.enter_once(take)?;
        while !self.ring.submission().is_empty() {
            self.enter_once(Take::Nothing)?;
        }
        Ok(())
    }

    fn enter_once(&mut self, take: Take) -> io::Result<()> {
        self.calls += 1;
        let (want, events) = match take {
            Take::Nothing => (0, EnterFlags::empty()),
            Take::Waiting => (0, EnterFlags::GETEVENTS),
            // Each zero-copy send posts its result at once; what is waited for is one more.
            Take::Something => (1 + self.sends.queued_zero_copy(), EnterFlags::GETEVENTS),
        };
        let queued = self.ring.submission().len();
        // SAFETY: no argument is passed, and what the entries point to is there, see `push`.
        let entered = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(queued as u32, want as u32, events.bits(), None)
        };
        match entered {
            Ok(_) => Ok(()),
            // A signal; no memory for now; completions to be collected first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes in what completed: requests go to [`next`](Self::next), replies that could not be sent to `failed`, and the
    /// buffers of the others back to the kernel. Returns how many requests came.
    pub(crate) fn collect(&mut self, mut failed: impl FnMut(&io::Error)) -> usize {
        let mut messages = 0;
        let mut waited = false;
        loop {
            // One at a time, since handling one takes the whole of `self`.
            let Some(entry) = self.ring.completion().next() else { break };
            let slot = entry.user_data() as u16;
            match entry.user_data() >> 32 {
                RECEIVE => messages += usize::from(self.received(&entry)),
                WATCH => {
                    self.watching = false;
                    if entry.result() & i32::from(libc::POLLRDHUP) != 0 && entry.result() > 0 {
                        self.arrivals.push_back(Arrival::Woken);
                    }
                }
                COPY => self.retry(slot, entry.result(), &mut waited, &mut failed),
                _ => {
                    if !cqueue::notif(entry.flags()) {
                        self.retry(slot, entry.result(), &mut waited, &mut failed);
                    }
                    if !cqueue::more(entry.flags()) {
                        let buffer = self.sends.release(slot);
                        self.pool.give(buffer);
                    }
                }
            }
        }
        self.sends.sent(|buffer| self.pool.give(buffer));
        self.pool.publish();
        messages
    }

    /// Whether a request came.
    #[inline]
    fn received(&mut self, entry: &cqueue::Entry) -> bool {
        if !cqueue::more(entry.flags()) {
            self.receiving = false;
        }
        if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
            if entry.result() >= 0 && self.pool.message(buffer).named() {
                self.arrivals.push_back(Arrival::Message(buffer));
                return true;
            }
            self.pool.give(buffer);
            if entry.result() >= 0 {
                // A datagram has a sender: this one came back from shutdown.
                self.arrivals.push_back(Arrival::Woken);
                return false;
            }
        }
        match -entry.result() {
            0 | libc::ECANCELED => {}
            libc::ENOBUFS => self.arrivals.push_back(Arrival::Starved),
            errno => self.arrivals.push_back(Arrival::Failed(io::Error::from_raw_os_error(errno))),
        }
        false
    }

    /// A reply that had no room, or could not be sent without a copy, is sent again by a call that may wait. If that waits
    /// in vain, the others of this submission would too.
    #[cold]
    fn retry(&mut self, slot: u16, result: i32, waited: &mut bool, failed: &mut impl FnMut(&io::Error)) {
        if result >= 0 {
            return;
        }
        let mut error = io::Error::from_raw_os_error(-result);
        let again = match -result {
            libc::EAGAIN => !*waited,
            libc::ENOBUFS | libc::ENOMEM | libc::EOPNOTSUPP => self.sends.is_zero_copy(slot),
            _ => false,
        };
        if again {
            self.calls += 1;
            match self.sends.send(slot, self.socket) {
                Ok(()) => return,
                Err(second) => error = second,
            }
            *waited = error.raw_os_error() == Some(libc::EAGAIN);
        }
        failed(&error);
    }

    /// The next thing that came, in order.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        self.arrivals.pop_front()
    }

    /// Whether replies have to be submitted before the next request is looked at.
    #[inline]
    pub(crate) fn full(&self) -> bool {
        self.sends.full()
    }

    /// Whether replies wait to be submitted.
    pub(crate) fn queued(&self) -> bool {
        self.sends.queued() > 0
    }

    /// Has `decide` look at the request in `buffer`, and queues what it wants sent; returns whether it wants anything sent.
    /// Not to be called when [`full`](Self::full).
    #[inline(always)]
    pub(crate) fn process(&mut self, buffer: u16, decide: impl FnOnce(Incoming<'_>) -> Outgoing) -> bool {
        let mut message = self.pool.message(buffer);
        let outgoing = decide(message.incoming(self.sends.reply_buffer()));
        let length = match outgoing {
            Outgoing::Nothing => {
                self.pool.give(buffer);
                return false;
            }
            Outgoing::Same => message.payload_length(),
            Outgoing::Reply(length) | Outgoing::With(length, _) => length,
        };
        let release = match self.zero_copy {
            Some(from) if length >= from && self.sends.may_hold() => Release::Notified,
            _ => Release::Sent,
        };
        let (slot, header) = self.sends.fill(&mut message, buffer, &outgoing, release);
        let entry = match release {
            Release::Sent => opcode::SendMsg::new(SOCKET, header)
                .flags(libc::MSG_DONTWAIT as u32)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(tag(COPY, slot)),
            Release::Notified => opcode::SendMsgZc::new(SOCKET, header)
                .flags(libc::MSG_DONTWAIT as u32)
                .build()
                .user_data(tag(ZERO_COPY, slot)),
        };
        // There is a submission entry for each slot of a submission.
        let pushed = self.push(&entry);
        debug_assert!(pushed);
        true
    }

    /// System calls made since this was last asked.
    #[inline]
    pub(crate) fn calls(&mut self) -> u64 {
        std::mem::take(&mut self.calls)
    }

    /// Ends the receive and the watch. What came before is left to [`next`](Self::next); returns how many requests that are.
    pub(crate) fn cancel(&mut self, mut failed: impl FnMut(&io::Error)) -> io::Result<usize> {
        self.enter(Take::Nothing)?;
        let mut messages = self.collect(&mut failed);
        while self.receiving || self.watching {
            self.calls += 1;
            match self.ring.submitter().register_sync_cancel(None, CancelBuilder::any()) {
                // It ended by itself; its completion is there or on its way.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EALREADY)) => {}
                other => other?,
            }
            self.enter(Take::Something)?;
            messages += self.collect(&mut failed);
        }
        Ok(messages)
    }

    /// Waits until the kernel has let go of all buffers, for at most a second.
    fn settle(&mut self) -> io::Result<bool> {
        self.cancel(|_| {})?;
        let second = Timespec::new().sec(1);
        let limit = SubmitArgs::new().timespec(&second);
        while self.sends.held() > 0 {
            match self.ring.submitter().submit_with_args(1, &limit) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {
                    self.collect(|_| {});
                }
            }
        }
        Ok(true)
    }
}

impl Drop for Ring<'_> {
    /// Also after a panic: a receive that is still armed would go on writing to the buffers and keep the socket open.
    fn drop(&mut self) {
        if !self.settle().unwrap_or(false) {
            self.pool.leak();
            self.sends.leak();
        }
        // The kernel tears a ring down after `close` has returned; the socket is to be closed before that.
        let _ = self.ring.submitter().unregister_files();
    }
}
