//! Sending threads. The BPF program receives the replies.

use std::sync::atomic::{AtomicBool, Ordering};

use super::program::RequestOutlets;
use crate::generator::account::SendReport;
use crate::generator::bursts::BurstLengths;
use crate::generator::clock;
use crate::generator::plan::{SendTiming, SlotPlan, TIMEOUT_PARTS};
use crate::generator::schedule::SendSchedule;
use crate::outcome::{LATE_NS, SendMethod};
use crate::sys::xdp::{BATCH, PARTS, XdpRow};

// The longest sleep, so that a cancellation is seen.
const LONGEST_SLEEP_NS: u64 = 10_000_000;

// Live frames: the target duration of a call, and its most frames. Each call allocates a page pool
// that lives for a second or more, so there should be few calls.
const CALL_NS: u64 = 10_000_000;
const CALL_FRAMES: u64 = 1 << 18;

// Frames per batch in a flood, because the cost of a batch matters there. Queues overflowed with
// 192.
const FLOOD_BATCH: u64 = 128;

// Clones made by a call, in one run of the program: a veth interface's queue holds 256, and is not
// read during the run.
const CALL_CLONES: u64 = 64;

/// Window mode: the wait for places to be released.
const WINDOW_WAIT_NS: u64 = 30_000;

/// Facts of a thread's slot that its row does not have.
#[derive(Debug, Default)]
pub(super) struct XdpWorkerReport {
    pub(super) sends: SendReport,
    pub(super) bursts: BurstLengths,
    pub(super) send_method: SendMethod,
    /// A call that failed with anything but EINTR ends the thread's slot.
    pub(super) failure: Option<std::io::Error>,
}

pub(super) struct XdpWorker<'a> {
    row: &'a XdpRow,
    outlets: &'a RequestOutlets,
    cancel: &'a AtomicBool,
    report: XdpWorkerReport,
}

impl<'a> XdpWorker<'a> {
    pub(super) fn new(row: &'a XdpRow, outlets: &'a RequestOutlets, cancel: &'a AtomicBool) -> Self {
        let report = XdpWorkerReport { send_method: SendMethod::Clones, ..XdpWorkerReport::default() };
        XdpWorker { row, outlets, cancel, report }
    }

    pub(super) fn run(mut self, plan: &SlotPlan) -> XdpWorkerReport {
        self.sleep_until(plan.span.start_ns);
        let (wall_before, cpu_before) = (clock::now_ns(), clock::thread_cpu_ns());
        match plan.timing {
            SendTiming::Paced(schedule) if plan.live_frames => self.wait(plan, &schedule),
            SendTiming::Paced(schedule) => self.tick(plan, &schedule),
            SendTiming::Window { outstanding, part_ns } => {
                self.keep_window_full(plan, outstanding * plan.flows, part_ns);
            }
            SendTiming::Flood => self.flood(plan),
        }
        self.report.sends.ended_ns = if self.is_stopped() { clock::now_ns() } else { plan.span.end_ns() };
        let wall = clock::now_ns().saturating_sub(wall_before).max(1);
        let cpu = clock::thread_cpu_ns().saturating_sub(cpu_before);
        self.report.sends.cpu_ratio = cpu as f64 / wall as f64;
        self.report
    }

    // Sends this thread's share of a schedule as clones: each tick, the requests that are due.
    fn tick(&mut self, plan: &SlotPlan, schedule: &SendSchedule) {
        let limit_ns = schedule.limit_ns(plan.span.duration_ns);
        let mut last_tick_ns = plan.span.start_ns;
        while !self.is_stopped() {
            let tick_began_ns = clock::now_ns();
            let sent_count = self.sent_count();
            if sent_count >= schedule.share || tick_began_ns > limit_ns {
                return;
            }
            let allowed_count = schedule.allowed(sent_count, tick_began_ns, last_tick_ns);
            last_tick_ns = tick_began_ns;
            if sent_count < allowed_count {
                self.note_lag(schedule, sent_count, allowed_count, tick_began_ns);
                self.clone_requests(allowed_count - sent_count, limit_ns);
            }
            // Even if more is due now, because otherwise each call would send a few requests only.
            self.sleep_until(schedule.intended(self.sent_count()).max(tick_began_ns + schedule.tick_ns));
        }
    }

    // Makes live frames wait for their time in calls that last: a program run over a frame that is
    // not due puts the frame back.
    fn wait(&mut self, plan: &SlotPlan, schedule: &SendSchedule) {
        let limit_ns = schedule.limit_ns(plan.span.duration_ns);
        self.run_calls(BATCH as u64, |worker, began_ns| {
            let remaining_ns = limit_ns.saturating_sub(began_ns);
            if worker.sent_count() >= schedule.share { 0 } else { remaining_ns }
        });
        if self.sent_count() > 0 {
            // A call continues after the last request, so that the last tick with requests counts.
            self.report.sends.last_sent_ns = self.row.horizon.load(Ordering::Relaxed);
        }
        self.report.sends.worst_lag_ns = self.row.worst_lag.load(Ordering::Relaxed);
        self.report.sends.late_sends = self.row.late_sends.load(Ordering::Relaxed);
        let bursts = (0..).zip(&self.row.bursts).skip(1);
        bursts.for_each(|(burst_length, count)| {
            self.report.bursts.add(burst_length, count.load(Ordering::Relaxed));
        });
    }

    /// Keeps `outstanding` requests under way until the slot ends.
    fn keep_window_full(&mut self, plan: &SlotPlan, outstanding: u64, part_ns: u64) {
        let end_ns = plan.span.end_ns();
        let mut parts = SlotParts { oldest: 0, newest: 0 };
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= end_ns || self.is_stopped() {
                return;
            }
            let part = now_ns.saturating_sub(plan.span.start_ns) / part_ns;
            self.report.sends.timed_out += parts.advance_to(part, self.row);
            let free_places = outstanding.saturating_sub(parts.outstanding(self.row));
            if free_places == 0 {
                clock::sleep_until((now_ns + WINDOW_WAIT_NS).min(end_ns));
                continue;
            }
            self.clone_requests(free_places, end_ns);
        }
    }

    fn flood(&mut self, plan: &SlotPlan) {
        let end_ns = plan.span.end_ns();
        if !plan.live_frames {
            while clock::now_ns() < end_ns && !self.is_stopped() {
                self.clone_requests(CALL_CLONES, end_ns);
            }
            return;
        }
        self.run_calls(FLOOD_BATCH, |_, began_ns| end_ns.saturating_sub(began_ns));
        self.report.bursts.add(FLOOD_BATCH, self.sent_count() / FLOOD_BATCH);
    }

    /// Runs the program over frames, batch after batch and call after call, until `remaining_ns`
    /// reports that no time is left.
    fn run_calls(&mut self, batch: u64, remaining_ns: impl Fn(&Self, u64) -> u64) {
        let Some(frames) = &self.outlets.frames else { return };
        self.report.send_method = SendMethod::LiveFrames;
        let mut count = 4 * batch;
        loop {
            let began_ns = clock::now_ns();
            let remaining_ns = remaining_ns(self, began_ns);
            if remaining_ns == 0 || self.is_stopped() {
                return;
            }
            self.row.looks.store(0, Ordering::Relaxed);
            let sent_before = self.sent_count();
            self.record_result(frames.send_requests(count as u32, batch as u32), sent_before);
            let frame_ns = (clock::now_ns().saturating_sub(began_ns) / count).max(1);
            let max_frames = (remaining_ns.min(CALL_NS) / frame_ns).clamp(batch, CALL_FRAMES);
            count = max_frames.min(count * 2) / batch * batch;
        }
    }

    /// Sends `count` requests as clones, or as many as leave until `end_ns`.
    fn clone_requests(&mut self, count: u64, end_ns: u64) {
        let (start_count, mut clone_count) = (self.sent_count(), 0);
        while clone_count < count && clock::now_ns() < end_ns && !self.is_stopped() {
            self.row.looks.store(0, Ordering::Relaxed);
            self.row.clones.store((count - clone_count).min(CALL_CLONES), Ordering::Relaxed);
            let result = self.outlets.clones.send_requests(1, 0);
            self.record_result(result, start_count + clone_count);
            clone_count = self.sent_count().saturating_sub(start_count);
        }
        self.report.bursts.add(clone_count, 1);
    }

    /// Records the result of a call. `sent_before`: requests sent before it.
    fn record_result(&mut self, result: std::io::Result<()>, sent_before: u64) {
        if self.sent_count() > sent_before {
            self.report.sends.last_sent_ns = clock::now_ns();
        }
        match result {
            // Requests that a signal interrupted stay due.
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                self.report.failure = Some(error);
            }
            _ => {}
        }
    }

    fn sent_count(&self) -> u64 {
        self.row.sent.load(Ordering::Relaxed)
    }

    fn is_stopped(&self) -> bool {
        self.report.failure.is_some() || self.cancel.load(Ordering::Relaxed)
    }

    fn note_lag(&mut self, schedule: &SendSchedule, sent_count: u64, allowed_count: u64, now_ns: u64) {
        // Intended times rise, so the first lags most.
        let worst_lag_ns = now_ns.saturating_sub(schedule.intended(sent_count));
        self.report.sends.worst_lag_ns = self.report.sends.worst_lag_ns.max(worst_lag_ns);
        if worst_lag_ns > LATE_NS {
            let due_in_time = schedule.due(now_ns - LATE_NS).clamp(sent_count, allowed_count);
            self.report.sends.late_sends += due_in_time - sent_count;
        }
    }

    fn sleep_until(&self, at_ns: u64) {
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= at_ns || self.cancel.load(Ordering::Relaxed) {
                return;
            }
            clock::sleep_until(at_ns.min(now_ns + LONGEST_SLEEP_NS));
        }
    }
}

/// The parts of a slot that may have requests under way. The program counts requests and answers by
/// part.
struct SlotParts {
    oldest: u64,
    newest: u64,
}

impl SlotParts {
    /// Begins parts up to `part`. Returns the number of unanswered requests that timed out.
    fn advance_to(&mut self, part: u64, row: &XdpRow) -> u64 {
        let mut timed_out = 0;
        while self.newest < part {
            self.newest += 1;
            // A call that began in this part may end in the next part. Its place was last used by a
            // part that was given up long ago.
            let index = part_index(self.newest + 1);
            row.made[index].store(0, Ordering::SeqCst);
            row.returned[index].store(0, Ordering::SeqCst);
            if self.newest - self.oldest > TIMEOUT_PARTS {
                timed_out += unanswered_count(row, self.oldest);
                self.oldest += 1;
                row.oldest_part.store(self.oldest, Ordering::SeqCst);
            }
        }
        timed_out
    }

    fn outstanding(&self, row: &XdpRow) -> u64 {
        (self.oldest..=self.newest + 1).map(|part| unanswered_count(row, part)).sum()
    }
}

fn part_index(part: u64) -> usize {
    (part % PARTS as u64) as usize
}

// Unanswered requests of a part. Answers are read first, because the number of sent requests only grows.
fn unanswered_count(row: &XdpRow, part: u64) -> u64 {
    let answered_count = row.returned[part_index(part)].load(Ordering::SeqCst);
    row.made[part_index(part)].load(Ordering::SeqCst).saturating_sub(answered_count)
}
