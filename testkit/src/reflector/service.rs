//! The loop that receives and answers requests.

use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::reflector::account::{FrozenSpan, ReflectorAccount};
use crate::reflector::bucket::ReflectorBucket;
use crate::reflector::builder::{ReflectorBuilder, whole_ns};
use crate::reflector::clock;
use crate::reflector::faults::{FaultRates, RequestFate, damage};
use crate::reflector::freeze::FreezeSchedule;
use crate::reflector::outbox::{PendingKind, PendingReply, ReplyQueue};
use crate::reflector::pairs::PairSwapper;
use crate::reflector::sys::{self, ReflectorReceiveBatch};

/// Requests taken by one system call.
const BATCH: usize = 64;

/// Waits shorter than this are busy waits. It is longer than the time that a thread takes to wake
/// up.
const BUSY_NS: u64 = 150_000;

// Longest wait, so that a stop is noticed.
const PATIENCE_NS: u64 = 10_000_000;

pub(crate) struct ReflectorService {
    socket: UdpSocket,
    batch: ReflectorReceiveBatch,
    outbox: ReplyQueue,
    account: Arc<Mutex<ReflectorAccount>>,
    stop: Arc<AtomicBool>,
    bucket: Option<ReflectorBucket>,
    freeze: Option<FreezeSchedule>,
    faults: FaultRates,
    pairs: Option<PairSwapper>,
    delay_ns: u64,
    busy: bool,
    /// Arrival of the first request.
    first_ns: Option<u64>,
    number: u64,
    overflowed: u32,
}

impl ReflectorService {
    pub(crate) fn new(
        builder: &ReflectorBuilder,
        socket: UdpSocket,
        account: Arc<Mutex<ReflectorAccount>>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        ReflectorService {
            socket,
            batch: ReflectorReceiveBatch::new(BATCH),
            outbox: ReplyQueue::default(),
            account,
            stop,
            bucket: builder
                .bucket
                .map(|(per_second, depth)| ReflectorBucket::new(per_second, f64::from(depth))),
            freeze: builder.freeze.map(|(every, lasting)| FreezeSchedule {
                every_ns: whole_ns(every),
                lasting_ns: whole_ns(lasting),
            }),
            faults: builder.faults.clone(),
            pairs: builder.swap.is_set().then(|| PairSwapper::new(builder.swap.clone())),
            delay_ns: whole_ns(builder.delay),
            busy: builder.busy,
            first_ns: None,
            number: 0,
            overflowed: 0,
        }
    }

    /// Serves until it is stopped and all work is done.
    pub(crate) fn run(&mut self) {
        loop {
            let stopping = self.stop.load(Ordering::Relaxed);
            if !stopping {
                self.sleep_while_frozen();
            }
            self.release(stopping);
            self.outbox.flush(&self.socket, &mut lock(&self.account));
            if self.is_reply_near() {
                // A reply is due so soon that receiving requests could delay it.
                std::hint::spin_loop();
                continue;
            }
            match self.batch.receive(self.socket.as_fd()) {
                Ok(_) => self.answer_requests(),
                // The socket is empty. (Other errors are ICMP messages, which do not matter to a
                // reflector.)
                Err(_) if stopping && self.is_idle() => return self.count_overflow(),
                Err(_) => self.wait(),
            }
        }
    }

    fn answer_requests(&mut self) {
        let now_ns = clock::now_ns();
        let mut account = lock(&self.account);
        for request in self.batch.iter() {
            let arrived_ns = request.realtime_ns.unwrap_or(now_ns);
            self.first_ns.get_or_insert(arrived_ns);
            self.number += 1;
            account.received += 1;
            if self.bucket.as_mut().is_some_and(|bucket| !bucket.take(arrived_ns)) {
                account.over_capacity += 1;
                continue;
            }
            let fate = self.faults.next();
            if fate == RequestFate::Drop {
                account.dropped += 1;
                continue;
            }
            let mut reply = PendingReply {
                to: request.from,
                bytes: self.outbox.buffer(request.bytes),
                kind: PendingKind::Intact,
                arrived_ns,
                due_ns: arrived_ns + self.delay_ns,
            };
            if fate == RequestFate::Corrupt {
                damage(&mut reply.bytes, self.number);
                reply.kind = PendingKind::Corrupt;
                self.outbox.push(reply);
                continue;
            }
            let second = (fate == RequestFate::Answer { twice: true }).then(|| PendingReply {
                to: reply.to.clone(),
                bytes: self.outbox.buffer(request.bytes),
                kind: PendingKind::Second,
                ..reply
            });
            match &mut self.pairs {
                Some(pairs) => {
                    account.swapped += u64::from(pairs.push(reply, |reply| self.outbox.push(reply)));
                }
                None => self.outbox.push(reply),
            }
            second.into_iter().for_each(|second| self.outbox.push(second));
        }
    }

    /// Releases replies whose partners did not arrive in time.
    fn release(&mut self, all: bool) {
        if let Some(pairs) = &mut self.pairs {
            let until_ns = if all { u64::MAX } else { clock::now_ns() };
            pairs.release(until_ns, |reply| self.outbox.push(reply));
        }
    }

    /// Sleeps until the end of the current freeze, if there is one.
    fn sleep_while_frozen(&mut self) {
        let (Some(freeze), Some(first_ns)) = (self.freeze, self.first_ns) else { return };
        let began_realtime_ns = clock::now_ns();
        let Some(thaw_ns) = freeze.thaw_ns(first_ns, began_realtime_ns) else { return };
        let mut now_ns = began_realtime_ns;
        while now_ns < thaw_ns && !self.stop.load(Ordering::Relaxed) {
            // This sleep is the fault itself.
            thread::sleep(Duration::from_nanos((thaw_ns - now_ns).min(PATIENCE_NS)));
            now_ns = clock::now_ns();
        }
        lock(&self.account).frozen.push(FrozenSpan { began_realtime_ns, ended_realtime_ns: now_ns });
    }

    fn next_ns(&self) -> Option<u64> {
        let pair_ns = self.pairs.as_ref().and_then(PairSwapper::next_ns);
        self.outbox.next_ns().into_iter().chain(pair_ns).min()
    }

    fn is_reply_near(&self) -> bool {
        self.delay_ns > 0
            && self.outbox.next_ns().is_some_and(|due_ns| due_ns < clock::now_ns().saturating_add(BUSY_NS))
    }

    fn is_idle(&self) -> bool {
        self.next_ns().is_none()
    }

    // Waits for a request or other work.
    fn wait(&mut self) {
        if self.busy {
            return std::hint::spin_loop();
        }
        self.count_overflow();
        let now_ns = clock::now_ns();
        let freeze_ns = self.freeze.zip(self.first_ns).map(|(freeze, first)| freeze.next_ns(first, now_ns));
        let until_ns = self.next_ns().map(|due_ns| due_ns.saturating_sub(BUSY_NS));
        let until_ns = until_ns.into_iter().chain(freeze_ns).min().unwrap_or(u64::MAX);
        await_readable(self.socket.as_fd(), until_ns.saturating_sub(now_ns).min(PATIENCE_NS));
    }

    fn count_overflow(&mut self) {
        if let Ok(drops) = sys::receive_drops(self.socket.as_fd()) {
            lock(&self.account).overflowed += u64::from(drops.wrapping_sub(self.overflowed));
            self.overflowed = drops;
        }
    }
}

// Waits at most `ns` for a datagram; a signal may end the wait early.
fn await_readable(socket: BorrowedFd<'_>, ns: u64) {
    let timeout = Timespec::try_from(Duration::from_nanos(ns)).ok();
    // An interrupted wait is like a timeout: the caller checks the clock in its loop.
    let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], timeout.as_ref());
}

pub(crate) fn lock(account: &Mutex<ReflectorAccount>) -> std::sync::MutexGuard<'_, ReflectorAccount> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}
