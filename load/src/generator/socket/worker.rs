//! One thread of the socket generator: its flows, and the life of a slot.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::inbox::{FlowInbox, SocketFlow};
use super::intervals::{SendCounts, SocketWorkerReport, ThreadIntervals};
use super::requests::RequestSource;
use super::send_drops::send_buffer_errors;
use crate::error::GeneratorError;
use crate::generator::account::SendReport;
use crate::generator::drain::DrainWait;
use crate::generator::plan::{SendTiming, SlotPlan, SlotSpan};
use crate::generator::{MAX_BURST, clock};
use crate::outcome::LATE_NS;
use crate::sys::{self, SendBatch};

// Open loop: how long requests stay in view, in addition to the drain. A service that answers after
// ten seconds is not distinguished from one that does not answer.
const SPAN: Duration = Duration::from_secs(10);

// Window mode: the number of requests in view of all flows of a thread, unless the windows need more.
const WINDOW_VIEW: u64 = 1 << 20;

// Flood: the number of requests in view of all flows of a thread: ten seconds at 0.4 M per second.
const FLOOD_VIEW: u64 = 1 << 22;

// The longest sleep before a slot begins, and after its last request, so that a cancellation is seen.
const LONGEST_WAIT_NS: u64 = 20_000_000;

// Errors that an ICMP message to an earlier request can cause (net/ipv4/icmp.c, `icmp_err_convert`;
// net/ipv6/icmp.c, `tab_unreach`). Except ECONNREFUSED, the present request can cause them, too.
const ICMP_ERRORS: [i32; 7] = [
    libc::ECONNREFUSED,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::ENOPROTOOPT,
    libc::EACCES,
    libc::EPROTO,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendResult {
    /// Number of requests that left.
    Sent(u64),
    /// The socket is full; the request stays due.
    Full,
    /// One request could not be sent.
    GivenUp,
}

/// The flows of a thread, with the memory to drive them without allocation.
pub(super) struct SocketWorker {
    pub(super) flows: Vec<SocketFlow>,
    pub(super) burst: usize,
    pub(super) sends: SendReport,
    pub(super) counts: SendCounts,
    pub(super) touched: Vec<usize>,
    inbox: FlowInbox,
    requests: RequestSource,
    batch: SendBatch,
    span: SlotSpan,
    cancel: Arc<AtomicBool>,
}

impl SocketWorker {
    /// For requests of up to `blank.len()` bytes.
    pub(super) fn new(
        flows: Vec<SocketFlow>,
        requests: RequestSource,
        blank: &[u8],
        burst: usize,
        cancel: Arc<AtomicBool>,
        intervals: ThreadIntervals,
    ) -> Result<Self, GeneratorError> {
        Ok(SocketWorker {
            inbox: FlowInbox::new(&flows, blank.len(), intervals)?,
            touched: Vec::with_capacity(flows.len()),
            batch: SendBatch::new(burst, blank),
            span: SlotSpan::default(),
            flows,
            requests,
            burst,
            cancel,
            sends: SendReport::default(),
            counts: SendCounts::default(),
        })
    }

    pub(super) fn run(&mut self, plan: &SlotPlan) -> SocketWorkerReport {
        self.begin(plan);
        // The counter is that of the network namespace, so one thread reads it.
        let send_errors = || if plan.thread == 0 { send_buffer_errors() } else { 0 };
        let (drops_before, send_errors_before) = (self.receive_drops(), send_errors());
        self.wait_until(plan.span.start_ns);
        let (wall_before, cpu_before) = (clock::now_ns(), clock::thread_cpu_ns());
        match plan.timing {
            _ if self.is_cancelled() => {}
            SendTiming::Paced(schedule) => self.pace(plan, &schedule),
            SendTiming::Window { outstanding, part_ns } => {
                self.keep_windows_full(plan, outstanding, part_ns);
            }
            SendTiming::Flood => self.flood(plan),
        }
        self.sends.ended_ns = if self.is_cancelled() { clock::now_ns() } else { plan.span.end_ns() };
        let wall = clock::now_ns().saturating_sub(wall_before).max(1);
        let cpu = clock::thread_cpu_ns().saturating_sub(cpu_before);
        self.sends.cpu_ratio = cpu as f64 / wall as f64;
        self.drain(plan);
        let drops_after = self.receive_drops();
        let drops = drops_after.iter().zip(&drops_before).map(|(after, before)| after.wrapping_sub(*before));
        SocketWorkerReport {
            sends: self.sends,
            counts: self.counts,
            receive_drops: drops.map(u64::from).sum(),
            send_buffer_errors: send_errors().saturating_sub(send_errors_before),
            intervals: self.inbox.intervals.end(self.is_cancelled()),
            totals: self.inbox.totals.clone(),
        }
    }

    /// Whether the slot is to end before its time.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    // Sends the next `count` requests of a flow, at most a burst; `intended` returns the intended
    // time of each request.
    pub(super) fn send(
        &mut self,
        flow: usize,
        count: u64,
        now_ns: u64,
        intended: impl Fn(u64) -> u64,
    ) -> SendResult {
        let Some(flow) = self.flows.get_mut(flow) else { return SendResult::GivenUp };
        let count = count.min(self.burst as u64);
        self.requests.write(&flow.track, count, &mut self.batch, &intended);
        // A connected socket first reports the ICMP error of an earlier request, and sends on the next call.
        let mut result = self.batch.send(flow.socket.as_fd(), count as usize);
        for _ in 0..2 {
            let Err(error) = result else { break };
            let code = error.raw_os_error();
            let may_be_icmp = code.is_some_and(|code| ICMP_ERRORS.contains(&code));
            if !may_be_icmp && error.kind() != io::ErrorKind::Interrupted {
                result = Err(error);
                break;
            }
            result = self.batch.send(flow.socket.as_fd(), count as usize);
            // An error that stays is about the present request.
            let stays = result.as_ref().is_err_and(|next_error| next_error.raw_os_error() == code);
            if may_be_icmp && (!stays || code == Some(libc::ECONNREFUSED)) {
                self.inbox.totals.errors.count_icmp(&error);
            }
        }
        if result.as_ref().map_or(true, |sent_count| (*sent_count as u64) < count) {
            self.counts.short_calls += 1;
        }
        match result {
            Ok(sent_count) => {
                self.counts.bursts[sent_count.min(MAX_BURST)] += 1;
                let sent_count = sent_count as u64;
                self.requests.record_sent(&mut flow.track, sent_count, &intended);
                flow.track.window.record_sent(sent_count);
                self.inbox.intervals.record_sent(sent_count, &intended);
                self.counts.sent += sent_count;
                self.sends.last_sent_ns = now_ns;
                self.note_lag(sent_count, now_ns, intended);
                SendResult::Sent(sent_count)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                SendResult::Full
            }
            Err(error) => {
                self.inbox.totals.errors.count(&error);
                SendResult::GivenUp
            }
        }
    }

    /// Receives on all flows, waiting up to `wait` for the first datagram; leaves the flows in `touched`.
    pub(super) fn receive(&mut self, wait: Duration) -> usize {
        let (requests, span) = (&self.requests, &self.span);
        let count = self.inbox.receive(&mut self.flows, requests, span, wait, &mut self.touched);
        self.inbox.intervals.end_elapsed();
        count
    }

    fn note_lag(&mut self, count: u64, now_ns: u64, intended: impl Fn(u64) -> u64) {
        // Intended times rise, so the first request is the latest.
        let worst_lag_ns = now_ns.saturating_sub(intended(0));
        self.sends.worst_lag_ns = self.sends.worst_lag_ns.max(worst_lag_ns);
        if worst_lag_ns > LATE_NS {
            self.sends.late_sends +=
                (0..count).filter(|index| now_ns.saturating_sub(intended(*index)) > LATE_NS).count() as u64;
        }
    }

    fn begin(&mut self, plan: &SlotPlan) {
        let requests_in_view = self.requests_in_view(plan);
        for flow in &mut self.flows {
            flow.track.begin(requests_in_view);
        }
        self.requests.begin(plan.span.epoch);
        self.inbox.totals.clear();
        self.inbox.intervals.begin(plan.span);
        self.span = plan.span;
        self.sends = SendReport::default();
        self.counts = SendCounts::default();
    }

    // Waits for the start of the slot, and receives stragglers of the last slot: without tags they
    // would look like answers.
    fn wait_until(&mut self, start_ns: u64) {
        while clock::now_ns() < start_ns && self.receive(Duration::ZERO) > 0 {}
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= start_ns || self.is_cancelled() {
                return;
            }
            clock::sleep_until(start_ns.min(now_ns + LONGEST_WAIT_NS));
        }
    }

    /// The number of requests in view per flow: all that may still be answered.
    fn requests_in_view(&self, plan: &SlotPlan) -> u64 {
        let flows = self.flows.len().max(1) as u64;
        match plan.timing {
            SendTiming::Paced(schedule) => {
                let span_ns = plan.span.duration_ns.min(clock::whole_ns(SPAN) + clock::whole_ns(plan.drain));
                let requests = span_ns as f64 / schedule.step_ns / flows as f64;
                // Bursts differ in length, so a flow may get more than its even share.
                (requests * 2.0) as u64
            }
            // The number of requests is unknown, so that the view has a fixed size.
            SendTiming::Flood => FLOOD_VIEW / flows,
            SendTiming::Window { outstanding, .. } => {
                (outstanding.saturating_mul(4)).max(WINDOW_VIEW / flows)
            }
        }
    }

    fn drain(&mut self, plan: &SlotPlan) {
        let cancel = Arc::clone(&self.cancel);
        let mut wait = DrainWait::new(plan.drain, plan.whole_drain, &cancel);
        loop {
            let now_ns = clock::now_ns();
            let slowest_ns = self.inbox.totals.latency.max().unwrap_or(0);
            let until_ns = wait.until_ns(self.inbox.totals.counts.answered == self.counts.sent, slowest_ns);
            // The last call comes after the end, so that replies in a socket buffer are not lost.
            let wait_ns = until_ns.saturating_sub(now_ns).min(LONGEST_WAIT_NS);
            if self.receive(Duration::from_nanos(wait_ns)) > 0 {
                if wait.note_arrival() {
                    return;
                }
            } else if now_ns >= until_ns {
                return;
            }
        }
    }

    fn receive_drops(&self) -> Vec<u32> {
        // If the kernel does not report drops, they only count as loss.
        self.flows.iter().map(|flow| sys::receive_drops(flow.socket.as_fd()).unwrap_or(0)).collect()
    }
}
