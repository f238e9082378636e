//! One slot of the BPF program: its input before, and its counters after.

use std::sync::atomic::{AtomicU64, Ordering};

use super::program::LoadProgram;
use crate::generator::plan::{SendTiming, SlotPlan, SlotSpan};
use crate::latency::Latency;
use crate::outcome::SendErrors;
use crate::sys::xdp::{BUCKETS, INTERVALS, SEGMENTS, SUB_BITS, XdpFlow, XdpRow};

/// Prepares flows and rows. No thread sends, and stragglers of the last slot are late from now on.
pub(super) fn begin(program: &LoadProgram, span: &SlotSpan, plans: &[SlotPlan]) {
    // Flows first: until its flow begins the slot, a straggler counts as an answer, and the reset of
    // the rows removes that.
    for (id, flow) in (0u32..).zip(program.flows.iter()) {
        if program.codec.is_some() {
            program.renew_echo(id, span.epoch);
        } else {
            flow.first.store(flow.next.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        flow.highest.store(flow_first(program, flow), Ordering::Relaxed);
    }
    let [frames, clones] = program.hands_over;
    let is_live = plans.iter().any(|plan| plan.live_frames);
    program.refused_at_far_end.store(if is_live { frames } else { clones }, Ordering::Relaxed);
    // An answer releases its place on any CPU, even on a CPU that sends nothing.
    let part_ns = match plans.first().map(|plan| plan.timing) {
        Some(SendTiming::Window { part_ns, .. }) => part_ns,
        _ => 0,
    };
    for row in program.rows.iter() {
        reset(row, span);
        row.part.store(part_ns, Ordering::Relaxed);
    }
    for plan in plans {
        if let Some(row) = program.row(plan.thread) {
            configure_row(row, plan, program);
        }
    }
}

fn flow_first(program: &LoadProgram, flow: &XdpFlow) -> u64 {
    if program.codec.is_some() { 0 } else { flow.first.load(Ordering::Relaxed) }
}

fn reset(row: &XdpRow, span: &SlotSpan) {
    let is_used = row.answered.load(Ordering::Relaxed) + row.sent.load(Ordering::Relaxed) > 0;
    let zero = |counter: &AtomicU64| counter.store(0, Ordering::Relaxed);
    [&row.sent, &row.refused, &row.down, &row.too_long, &row.failed].into_iter().for_each(zero);
    [&row.oldest_part, &row.made_until].into_iter().for_each(zero);
    [&row.tick, &row.horizon, &row.quota].into_iter().for_each(zero);
    [&row.share, &row.worst_lag, &row.late_sends].into_iter().for_each(zero);
    [&row.run_over, &row.made_of].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    row.returned.iter().chain(&row.made).chain(&row.bursts).for_each(zero);
    [&row.arrivals, &row.answered, &row.in_time, &row.duplicate, &row.reordered].into_iter().for_each(zero);
    [&row.corrupt, &row.unsolicited, &row.late, &row.unverified, &row.verdicts].into_iter().for_each(zero);
    [&row.nobody, &row.rejected, &row.fragments].into_iter().for_each(zero);
    zero(&row.longest);
    if is_used {
        [&row.sent_in, &row.answered_in, &row.received_in].into_iter().flatten().for_each(zero);
        row.codes.iter().chain(row.latency.iter().flatten()).for_each(zero);
    }
    let set = |field: &AtomicU64, value| field.store(value, Ordering::Relaxed);
    set(&row.start, span.start_ns);
    set(&row.half, span.half_ns());
    set(&row.last_quarter, span.last_quarter_ns());
    set(&row.end, span.end_ns());
    set(&row.interval, span.interval_ns);
    set(&row.epoch, u64::from(span.epoch));
}

fn configure_row(row: &XdpRow, plan: &SlotPlan, program: &LoadProgram) {
    let (threads, flows, requests) =
        (program.cpus.len(), program.flows.len(), program.requests.max(1) as u64);
    row.first_flow.store(plan.thread as u32, Ordering::Relaxed);
    row.flow.store(plan.thread as u32, Ordering::Relaxed);
    row.flow_step.store(threads as u32, Ordering::Relaxed);
    row.flow_count.store(flows as u32, Ordering::Relaxed);
    row.turn.store(plan.thread as u64 % requests, Ordering::Relaxed);
    row.turn_step.store(threads as u64 % requests, Ordering::Relaxed);
    row.looks.store(0, Ordering::Relaxed);
    row.clocked.store(u32::from(plan.timing.schedule().is_none()), Ordering::Relaxed);
    let Some(schedule) = plan.timing.schedule() else { return };
    let ((first_ns, fraction), (step, step_fraction)) = (schedule.first_send(), schedule.step());
    row.when.store(first_ns, Ordering::Relaxed);
    row.fraction.store(fraction, Ordering::Relaxed);
    row.step.store(step, Ordering::Relaxed);
    row.step_fraction.store(step_fraction, Ordering::Relaxed);
    if plan.live_frames {
        row.tick.store(schedule.tick_ns, Ordering::Relaxed);
        row.next_tick.store(schedule.intended(0), Ordering::Relaxed);
        row.share.store(schedule.share, Ordering::Relaxed);
    }
}

impl LoadProgram {
    /// A counter of all CPUs together.
    pub(super) fn sum(&self, counter: fn(&XdpRow) -> &AtomicU64) -> u64 {
        self.rows.iter().map(|row| counter(row).load(Ordering::Relaxed)).sum()
    }

    /// A counter of all CPUs together in the interval `number`.
    pub(super) fn sum_in(&self, number: usize, counter: fn(&XdpRow) -> &[AtomicU64; INTERVALS]) -> u64 {
        let count = |row| counter(row).get(number).map_or(0, |count| count.load(Ordering::Relaxed));
        self.rows.iter().map(count).sum()
    }

    /// Requests meant to leave in the interval `number` that left. Requests that did not leave are known
    /// only in total, and spread over the intervals.
    pub(super) fn sent_in(&self, number: usize) -> u64 {
        let made = self.sum(|row| &row.sent);
        sent_share(self.sum_in(number, |row| &row.sent_in), self.sent(), made)
    }

    /// Requests that left.
    pub(super) fn sent(&self) -> u64 {
        let unsent = self.send_errors().unsent();
        self.sum(|row| &row.sent).saturating_sub(unsent)
    }

    /// Frames that left, and that the link refused because the far end's queue was full.
    pub(super) fn refused_by_link(&self) -> u64 {
        if self.refused_at_far_end.load(Ordering::Relaxed) { self.sum(|row| &row.refused) } else { 0 }
    }

    pub(super) fn send_errors(&self) -> SendErrors {
        SendErrors {
            refused: self.sum(|row| &row.nobody),
            rejected: self.sum(|row| &row.rejected),
            unreachable: self.sum(|row| &row.down),
            too_long: self.sum(|row| &row.too_long),
            no_buffers: self.sum(|row| &row.refused).saturating_sub(self.refused_by_link()),
            other: self.sum(|row| &row.failed),
            ..SendErrors::default()
        }
    }

    /// The longest latency; 0 without replies.
    pub(super) fn longest_ns(&self) -> u64 {
        self.rows.iter().map(|row| row.longest.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

// Requests that left of the `made_in` of an interval, if `sent` of `made` left in all.
fn sent_share(made_in: u64, sent: u64, made: u64) -> u64 {
    (u128::from(made_in) * u128::from(sent) / u128::from(made.max(1))) as u64
}

/// Latencies by segment and bucket over all CPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LatencyBuckets(Vec<u64>);

impl LatencyBuckets {
    pub(super) fn new() -> Self {
        LatencyBuckets(vec![0; SEGMENTS * BUCKETS])
    }

    pub(super) fn read(program: &LoadProgram) -> Self {
        let mut buckets = LatencyBuckets::new();
        for row in program.rows.iter() {
            if row.answered.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for (sum, count) in buckets.0.iter_mut().zip(row.latency.iter().flatten()) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        buckets
    }

    // The latencies recorded since `earlier`.
    pub(super) fn since(&self, earlier: &LatencyBuckets) -> Latency {
        let mut latency = Latency::new();
        for (index, (count, earlier_count)) in self.0.iter().zip(&earlier.0).enumerate() {
            record(&mut latency, index % BUCKETS, count.saturating_sub(*earlier_count));
        }
        latency
    }

    /// Latencies of requests with intended times in these segments, none longer than `longest_ns`.
    pub(super) fn segment_latency(&self, segments: std::ops::Range<usize>, longest_ns: u64) -> Latency {
        let mut latency = Latency::new();
        for segment in segments {
            for index in 0..BUCKETS {
                let count = self.0[segment * BUCKETS + index];
                if index == bucket(longest_ns) {
                    latency.record_many(longest_ns, count);
                } else {
                    record(&mut latency, index, count);
                }
            }
        }
        latency
    }

    pub(super) fn remove_latency(&mut self, segment: usize, latency_ns: u64) {
        if let Some(count) = self.0.get_mut(segment * BUCKETS + bucket(latency_ns)) {
            *count = count.saturating_sub(1);
        }
    }
}

fn record(latency: &mut Latency, index: usize, count: u64) {
    if count > 0 {
        latency.record_many(bucket_middle(index), count);
    }
}

// The bucket of a latency; must agree with `bucket` of bpf/load.bpf.c.
fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << 36) - 1);
    let shift = (ns >> SUB_BITS).checked_ilog2().unwrap_or(0);
    let shifted = if ns >> SUB_BITS == 0 { 0 } else { shift };
    ((u64::from(shifted) << SUB_BITS) + (ns >> shifted)) as usize
}

// The middle of a bucket, ns.
fn bucket_middle(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 << SUB_BITS {
        return index;
    }
    let shift = (index >> SUB_BITS) - 1;
    let lower_bound = (index - (shift << SUB_BITS)) << shift;
    lower_bound + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_midpoints_deviate_by_at_most_a_256th(ns in 0..1u64 << 36) {
            let midpoint = bucket_middle(bucket(ns));
            prop_assert!(bucket(ns) < BUCKETS);
            prop_assert!(midpoint.abs_diff(ns) <= ns / 256 + 1, "{} {}", ns, midpoint);
        }
    }

    #[test]
    fn requests_that_did_not_leave_are_spread_over_the_intervals() {
        for (due, sent, made, expected) in [(100, 300, 300, 100), (100, 291, 300, 97), (0, 0, 0, 0)] {
            assert_eq!(sent_share(due, sent, made), expected);
        }
    }

    #[test]
    fn bucket_midpoints_increase_and_map_to_their_bucket() {
        assert!(
            (0..3_839).all(|at| bucket(bucket_middle(at)) == at && bucket_middle(at) < bucket_middle(at + 1))
        );
    }

    #[test]
    fn take_removes_one_latency_from_its_bucket() {
        let mut buckets = LatencyBuckets::new();
        buckets.0[BUCKETS + bucket(5_000)] = 2;
        buckets.remove_latency(1, 5_000);
        let latency = buckets.segment_latency(0..SEGMENTS, 5_000);
        assert_eq!(latency.count(), 1);
        assert!(latency.max().is_some_and(|ns| ns.abs_diff(5_000) < 10));
    }
}
