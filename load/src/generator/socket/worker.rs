//! One thread of the socket generator: its flows, and the life of a slot.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::carried::RequestSource;
use super::inbox::{FlowInbox, SocketFlow};
use super::intervals::{IntervalCounts, SlotSplit, ThreadIntervals};
use super::tally::{CountedParts, ReceivedTotals};
use crate::error::GeneratorError;
use crate::generator::drain::DrainWait;
use crate::generator::schedule::SendSchedule;
use crate::generator::{MAX_BURST, clock};
use crate::outcome::LATE_NS;
use crate::sys::{self, SendBatch};

/// Open loop: how long requests are kept in view besides the drain. The longest latency told apart is a minute, but
/// a service that answers after ten seconds is not one to tell apart from one that does not.
const SPAN: Duration = Duration::from_secs(10);

/// Window mode: how many requests all flows of a thread keep in view together, if their windows need no more.
const WINDOW_VIEW: u64 = 1 << 20;

/// Flood: how many requests all flows of a thread keep in view together: ten seconds at 0.4 M a second.
const FLOOD_VIEW: u64 = 1 << 22;

/// The longest sleep before a slot begins, so that a cancellation is seen.
const LONGEST_WAIT_NS: u64 = 20_000_000;

/// What one thread does in a slot; times in ns of the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct SocketPlan {
    pub(super) epoch: u32,
    pub(super) start_ns: u64,
    pub(super) duration_ns: u64,
    pub(super) drain: Duration,
    pub(super) timing: SendTiming,
    pub(super) cut: Option<SlotSplit>,
}

/// When the requests of a thread leave.
#[derive(Debug, Clone, Copy)]
pub(super) enum SendTiming {
    Paced(SendSchedule),
    /// A window a flow.
    Window {
        outstanding: u64,
        timeout_ns: u64,
    },
    /// As fast as it goes.
    Flood,
}

/// What a thread tells of a slot.
#[derive(Debug)]
pub(super) struct SocketWorkerReport {
    pub(super) sent: u64,
    pub(super) tally: ReceivedTotals,
    /// How many bursts of each length left.
    pub(super) bursts: [u64; MAX_BURST + 1],
    pub(super) intervals: Vec<IntervalCounts>,
    pub(super) late_sends: u64,
    pub(super) worst_lag_ns: u64,
    pub(super) timed_out: u64,
    pub(super) receive_drops: u64,
    pub(super) cpu_ratio: f64,
    /// When the last request left; 0 if none did.
    pub(super) last_sent_ns: u64,
}

/// What became of an attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendResult {
    /// So many requests left.
    Sent(u64),
    /// The socket has no room now; the request stays due.
    Full,
    /// One request could not be sent and is given up.
    GivenUp,
}

/// A thread's flows and everything it needs to drive them without allocating.
pub(super) struct SocketWorker {
    pub(super) flows: Vec<SocketFlow>,
    pub(super) burst: usize,
    pub(super) timed_out: u64,
    pub(super) touched: Vec<usize>,
    inbox: FlowInbox,
    carried: RequestSource,
    bursts: [u64; MAX_BURST + 1],
    batch: SendBatch,
    expected: CountedParts,
    cancel: Arc<AtomicBool>,
    sent: u64,
    last_sent_ns: u64,
    late_sends: u64,
    worst_lag_ns: u64,
}

impl SocketWorker {
    /// For requests of up to `blank.len()` bytes.
    pub(super) fn new(
        flows: Vec<SocketFlow>,
        carried: RequestSource,
        blank: &[u8],
        burst: usize,
        cancel: Arc<AtomicBool>,
        book: ThreadIntervals,
    ) -> Result<Self, GeneratorError> {
        Ok(SocketWorker {
            inbox: FlowInbox::new(&flows, blank.len(), book)?,
            touched: Vec::with_capacity(flows.len()),
            batch: SendBatch::new(burst, blank),
            bursts: [0; MAX_BURST + 1],
            expected: CountedParts::default(),
            flows,
            carried,
            burst,
            cancel,
            sent: 0,
            last_sent_ns: 0,
            late_sends: 0,
            worst_lag_ns: 0,
            timed_out: 0,
        })
    }

    /// Runs one slot.
    pub(super) fn run(&mut self, plan: &SocketPlan) -> SocketWorkerReport {
        self.begin(plan);
        let drops_before = self.receive_drops();
        self.wait_until(plan.start_ns);
        let (wall_before, cpu_before) = (clock::now_ns(), clock::thread_cpu_ns());
        match plan.timing {
            _ if self.cancelled() => {}
            SendTiming::Paced(schedule) => self.pace(plan, &schedule),
            SendTiming::Window { outstanding, timeout_ns } => {
                self.keep_windows_full(plan, outstanding, timeout_ns);
            }
            SendTiming::Flood => self.flood(plan),
        }
        let wall = clock::now_ns().saturating_sub(wall_before).max(1);
        let cpu = clock::thread_cpu_ns().saturating_sub(cpu_before);
        self.drain(plan.drain);
        let drops_after = self.receive_drops();
        let drops = drops_after.iter().zip(&drops_before).map(|(after, before)| after.wrapping_sub(*before));
        SocketWorkerReport {
            sent: self.sent,
            receive_drops: drops.map(u64::from).sum(),
            intervals: self.inbox.book.end(self.cancelled()),
            tally: self.inbox.tally.clone(),
            bursts: self.bursts,
            late_sends: self.late_sends,
            worst_lag_ns: self.worst_lag_ns,
            timed_out: self.timed_out,
            cpu_ratio: cpu as f64 / wall as f64,
            last_sent_ns: self.last_sent_ns,
        }
    }

    /// Whether the slot is to end before its time.
    pub(super) fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Sends the next `count` requests of a flow, at most a burst; `intended` gives each one's time.
    pub(super) fn send(
        &mut self,
        flow: usize,
        count: u64,
        now_ns: u64,
        intended: impl Fn(u64) -> u64,
    ) -> SendResult {
        let Some(flow) = self.flows.get_mut(flow) else { return SendResult::GivenUp };
        let count = count.min(self.burst as u64);
        self.carried.write(&flow.track, count, &mut self.batch, &intended);
        // A connected socket reports here what ICMP said to an earlier request, and takes the next one only after.
        let mut result = self.batch.send(flow.socket.as_fd(), count as usize);
        for _ in 0..2 {
            let Err(error) = &result else { break };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ECONNREFUSED) => self.inbox.tally.errors.count(error),
                _ => break,
            }
            result = self.batch.send(flow.socket.as_fd(), count as usize);
        }
        match result {
            Ok(taken) => {
                self.bursts[taken.min(MAX_BURST)] += 1;
                let taken = taken as u64;
                self.carried.sent(&mut flow.track, taken, &intended);
                flow.track.ledger.sent(taken);
                self.inbox.book.sent(taken, &intended);
                self.sent += taken;
                self.last_sent_ns = now_ns;
                self.note_lag(taken, now_ns, intended);
                SendResult::Sent(taken)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                SendResult::Full
            }
            Err(error) => {
                self.inbox.tally.errors.count(&error);
                SendResult::GivenUp
            }
        }
    }

    /// Takes what has arrived on any flow, waiting up to `wait` for the first; the flows are left in `touched`.
    pub(super) fn receive(&mut self, wait: Duration) -> usize {
        let (carried, expected) = (&self.carried, &self.expected);
        let count = self.inbox.receive(&mut self.flows, carried, expected, wait, &mut self.touched);
        self.inbox.book.pass();
        count
    }

    fn note_lag(&mut self, count: u64, now_ns: u64, intended: impl Fn(u64) -> u64) {
        // Intended times rise, so the first lags most.
        let worst = now_ns.saturating_sub(intended(0));
        self.worst_lag_ns = self.worst_lag_ns.max(worst);
        if worst > LATE_NS {
            self.late_sends +=
                (0..count).filter(|i| now_ns.saturating_sub(intended(*i)) > LATE_NS).count() as u64;
        }
    }

    fn begin(&mut self, plan: &SocketPlan) {
        let view = self.view(plan);
        for flow in &mut self.flows {
            flow.track.begin(view);
        }
        self.carried.begin(plan.epoch);
        self.inbox.tally.clear();
        self.inbox.book.begin(plan.cut);
        self.expected.half_ns = plan.start_ns + plan.duration_ns / 2;
        self.expected.last_quarter_ns = plan.start_ns + plan.duration_ns / 4 * 3;
        self.expected.end_ns = plan.start_ns + plan.duration_ns;
        self.sent = 0;
        self.last_sent_ns = 0;
        self.late_sends = 0;
        self.worst_lag_ns = 0;
        self.timed_out = 0;
        self.bursts.fill(0);
    }

    /// Waits for the slot to begin. Stragglers of the last one are taken meanwhile: without tags they could not be told
    /// from answers.
    fn wait_until(&mut self, start_ns: u64) {
        while clock::now_ns() < start_ns && self.receive(Duration::ZERO) > 0 {}
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= start_ns || self.cancelled() {
                return;
            }
            clock::sleep_until(start_ns.min(now_ns + LONGEST_WAIT_NS));
        }
    }

    /// How many requests a flow has to keep in view: all that may still be answered.
    fn view(&self, plan: &SocketPlan) -> u64 {
        let flows = self.flows.len().max(1) as u64;
        match plan.timing {
            SendTiming::Paced(schedule) => {
                let span_ns = plan.duration_ns.min(clock::whole_ns(SPAN) + clock::whole_ns(plan.drain));
                let requests = span_ns as f64 / schedule.step_ns / flows as f64;
                // Bursts differ in length, so a flow may get more than its even share.
                (requests * 2.0) as u64
            }
            // How many will be sent is not known. What all flows have in view together is kept in bounds.
            SendTiming::Flood => FLOOD_VIEW / flows,
            SendTiming::Window { outstanding, .. } => {
                (outstanding.saturating_mul(4)).max(WINDOW_VIEW / flows)
            }
        }
    }

    /// Waits for stragglers.
    fn drain(&mut self, drain: Duration) {
        let slowest_ns = self.inbox.tally.latency.max().unwrap_or(0);
        let mut wait = DrainWait::new(drain);
        loop {
            let now_ns = clock::now_ns();
            let until_ns = wait.until_ns(self.inbox.tally.counts.answered == self.sent, slowest_ns);
            // The last call comes after the end, so that replies in a socket buffer are not lost.
            if self.receive(Duration::from_nanos(until_ns.saturating_sub(now_ns))) > 0 {
                if wait.arrived() {
                    return;
                }
            } else if now_ns >= until_ns {
                return;
            }
        }
    }

    fn receive_drops(&self) -> Vec<u32> {
        // A kernel that cannot tell reports no drops: then they show as loss only.
        self.flows.iter().map(|flow| sys::receive_drops(flow.socket.as_fd()).unwrap_or(0)).collect()
    }
}
