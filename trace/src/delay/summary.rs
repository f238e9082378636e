//! Adds windows up to distributions.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;
use linerate_host::Known;
use serde::{Deserialize, Serialize};

use super::DelayReport;
use super::cause::{CauseFinder, DelayCause, NET_RX, softirq_name};
use super::event::{EventKind, RecordedWindow};
use super::record::{DelayRecord, DelayStage, STAGES};
use super::requests::{self, RequestCounts};
use super::timeline::WindowTimeline;

const LONGEST_NS: u64 = 60_000_000_000;
/// Number of softirqs in `longest_softirqs`.
const LONGEST_RUNS: usize = 5;
/// kernel/softirq.c; the second name before Linux 6.10.
const SOFTIRQ_ENTRY: [&str; 2] = ["handle_softirqs", "__do_softirq"];

// Causes are looked up for the slowest one in this many requests of each window. The slowest of all
// windows are among them even if windows differ.
const CANDIDATES: usize = 20;
const FEWEST_CANDIDATES: usize = 100;
const MOST_CANDIDATES: usize = 200_000;

/// The part of the requests that counts as slow.
const SLOW_PART: u64 = 100;

/// A distribution of times or counts. `None` without values. Percentiles have two digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayQuantiles {
    pub count: u64,
    pub p50: Option<u64>,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Distribution {
    values: Histogram<u32>,
    largest: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        let values = Histogram::new_with_bounds(1, LONGEST_NS, 2)
            .expect("constant bounds: high is more than twice low, and the digits are within 0..=5");
        Self { values, largest: 0 }
    }
}

impl Distribution {
    pub(super) fn record(&mut self, value: u64) {
        self.values.saturating_record(value);
        self.largest = self.largest.max(value);
    }

    pub(super) fn median(&self) -> u64 {
        self.values.value_at_quantile(0.5)
    }

    pub(super) fn quantiles(&self) -> DelayQuantiles {
        let count = self.values.len();
        let quantile = |share| (count > 0).then(|| self.values.value_at_quantile(share).min(self.largest));
        DelayQuantiles {
            count,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: (count > 0).then_some(self.largest),
        }
    }
}

impl FromIterator<u64> for Distribution {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut distribution = Self::default();
        values.into_iter().for_each(|value| distribution.record(value));
        distribution
    }
}

/// A stage on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuStageDelay {
    pub cpu: u32,
    pub ns: DelayQuantiles,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageDelay {
    pub stage: DelayStage,
    /// Of all requests, ns.
    pub ns: DelayQuantiles,
    /// Of the slowest 1 % of requests by their end-to-end time, ns.
    pub slowest_ns: DelayQuantiles,
    /// By the CPU that the stage waits for.
    pub cpus: Vec<CpuStageDelay>,
}

/// Why some of the slowest 1 % of requests were slow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowReason {
    /// The stage that took most time above its median.
    pub stage: DelayStage,
    pub cause: DelayCause,
    pub requests: u64,
    /// Part of the slowest 1 %, 0 to 1.
    pub share: f64,
    /// Median time of the stage in these requests.
    pub stage_ns: u64,
}

/// NET_RX on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoftirqDelay {
    pub cpu: u32,
    /// Length of a run, with interrupts in it.
    pub run_ns: DelayQuantiles,
    pub poll_packets: DelayQuantiles,
    /// Of devices, per second.
    pub interrupts_per_second: f64,
    /// Runs that stopped with work left, in all of the time (`time_squeeze` of softnet_stat).
    pub time_squeezes: Known<u64>,
}

/// One of the longest softirqs, with interrupts in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LongSoftirq {
    pub cpu: u32,
    /// As in `/proc/softirqs`.
    pub name: String,
    pub ns: u64,
    /// Kernel functions in the middle of it, innermost first; unknown if no sample of the timer is in it.
    pub functions: Known<Vec<String>>,
}

/// A [`LongSoftirq`] with addresses instead of names.
#[derive(Debug)]
struct LongRun {
    cpu: u32,
    vector: u16,
    ns: u64,
    stack: Option<Vec<u64>>,
}

/// A slow request, before the slowest are known.
#[derive(Debug, Clone)]
struct SlowCandidate {
    end_to_end_ns: u64,
    stages: [u64; STAGES],
    stage: DelayStage,
    cause: DelayCause,
}

#[derive(Debug, Default)]
struct SoftirqCounts {
    runs: Distribution,
    polls: Distribution,
    interrupts: u64,
    /// The vector of the present softirq, and its begin.
    begin: Option<(u16, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct DelaySummary {
    end_to_end: Distribution,
    stages: [(Distribution, BTreeMap<u32, Distribution>); STAGES],
    candidates: Vec<SlowCandidate>,
    softirqs: BTreeMap<u32, SoftirqCounts>,
    longest: Vec<LongRun>,
    counts: RequestCounts,
    pub(super) events: u64,
    lost_events: u64,
    seconds: f64,
    pub(super) windows: u64,
}

impl DelaySummary {
    /// Adds a window and returns its requests. `name`: the name of a thread that the window's
    /// events do not name.
    pub(super) fn add(
        &mut self,
        window: &RecordedWindow,
        interfaces: &BTreeMap<u32, String>,
        name: impl Fn(u32) -> Option<String>,
    ) -> Vec<DelayRecord> {
        let records = requests::match_requests(window, &mut self.counts);
        self.events += u64::try_from(window.events.len()).unwrap_or(0);
        self.lost_events += window.lost;
        self.seconds += window.seconds();
        self.windows += 1;
        self.add_softirqs(window);
        for record in &records {
            self.end_to_end.record(record.end_to_end_ns());
            for (stage, (distribution, cpus)) in DelayStage::ALL.iter().zip(&mut self.stages) {
                let ns = record.stage_ns(*stage);
                distribution.record(ns);
                cpus.entry(record.cpu(*stage)).or_default().record(ns);
            }
        }
        let mut slowest_records: Vec<&DelayRecord> = records.iter().collect();
        slowest_records.sort_by_key(|record| std::cmp::Reverse(record.end_to_end_ns()));
        slowest_records.truncate((records.len() / CANDIDATES).max(FEWEST_CANDIDATES));
        let watched_threads: BTreeSet<u32> = slowest_records
            .iter()
            .flat_map(|slow_record| [slow_record.reader, slow_record.replier])
            .collect();
        let mut timeline = WindowTimeline::new(window, &watched_threads);
        for thread in watched_threads {
            if let (false, Some(name)) = (timeline.names.contains_key(&thread), name(thread)) {
                timeline.names.insert(thread, name);
            }
        }
        let finder = CauseFinder { timeline: &timeline, interfaces };
        let medians: Vec<u64> = self.stages.iter().map(|(distribution, _)| distribution.median()).collect();
        let candidates = slowest_records.into_iter().map(|record| {
            let stages = DelayStage::ALL.map(|stage| record.stage_ns(stage));
            let excess =
                |stage: &DelayStage| stages[*stage as usize].saturating_sub(medians[*stage as usize]);
            let stage = DelayStage::ALL.into_iter().max_by_key(excess).unwrap_or(DelayStage::Server);
            let cause = finder.cause(record, stage);
            SlowCandidate { end_to_end_ns: record.end_to_end_ns(), stages, stage, cause }
        });
        self.candidates.extend(candidates);
        if self.candidates.len() > MOST_CANDIDATES {
            self.candidates.sort_by_key(|slow| std::cmp::Reverse(slow.end_to_end_ns));
            self.candidates.truncate(MOST_CANDIDATES / 2);
        }
        records
    }

    fn add_softirqs(&mut self, window: &RecordedWindow) {
        for counts in self.softirqs.values_mut() {
            counts.begin = None;
        }
        for event in &window.events {
            let counts = self.softirqs.entry(event.cpu).or_default();
            match event.kind {
                EventKind::IrqBegin => counts.interrupts += 1,
                EventKind::SoftirqBegin { vector } => counts.begin = Some((vector, event.at)),
                EventKind::SoftirqEnd { vector } => {
                    let Some((begin_vector, begin)) = counts.begin.take() else { continue };
                    // The events between may be missing, because there was no room.
                    if begin_vector != vector {
                        continue;
                    }
                    let ns = event.at.saturating_sub(begin);
                    if vector == NET_RX {
                        counts.runs.record(ns);
                    }
                    if self.longest.len() < LONGEST_RUNS || self.longest.iter().any(|run| run.ns < ns) {
                        let stack = middle_stack(window, event.cpu, begin, event.at);
                        self.longest.push(LongRun { cpu: event.cpu, vector, ns, stack });
                        self.longest.sort_by_key(|run| std::cmp::Reverse(run.ns));
                        self.longest.truncate(LONGEST_RUNS);
                    }
                }
                EventKind::PollEnd { packets } if packets > 0 => counts.polls.record(u64::from(packets)),
                _ => {}
            }
        }
    }

    /// `function`: the name of the function at an address. `unsampled`: why a softirq has no stack.
    pub(super) fn longest_softirqs(
        &self,
        function: impl Fn(u64) -> Known<String>,
        unsampled: &str,
    ) -> Vec<LongSoftirq> {
        let to_softirq = |run: &LongRun| {
            let functions = match &run.stack {
                Some(stack) => functions(stack, &function),
                None => Known::unknown(unsampled),
            };
            LongSoftirq { cpu: run.cpu, name: softirq_name(run.vector).to_owned(), ns: run.ns, functions }
        };
        self.longest.iter().map(to_softirq).collect()
    }

    pub(super) fn requests(&self) -> u64 {
        self.end_to_end.values.len()
    }

    /// A report without the longest softirqs, the port and the cost. `squeezes`: by CPU.
    pub(super) fn report(&self, squeezes: &Known<BTreeMap<u32, u64>>) -> DelayReport {
        let mut slow: Vec<&SlowCandidate> = self.candidates.iter().collect();
        slow.sort_by_key(|slow| std::cmp::Reverse(slow.end_to_end_ns));
        slow.truncate(usize::try_from(self.requests().div_ceil(SLOW_PART)).unwrap_or(usize::MAX));
        let stages = DelayStage::ALL.into_iter().zip(&self.stages).map(|(stage, (stage_total, cpus))| {
            let slowest: Distribution = slow.iter().map(|slow| slow.stages[stage as usize]).collect();
            let cpus = cpus
                .iter()
                .map(|(cpu, distribution)| CpuStageDelay { cpu: *cpu, ns: distribution.quantiles() });
            let slowest_ns = slowest.quantiles();
            StageDelay { stage, ns: stage_total.quantiles(), slowest_ns, cpus: cpus.collect() }
        });
        let softirqs = self.softirqs.iter().map(|(cpu, counts)| SoftirqDelay {
            cpu: *cpu,
            run_ns: counts.runs.quantiles(),
            poll_packets: counts.polls.quantiles(),
            interrupts_per_second: counts.interrupts as f64 / self.seconds.max(1e-9),
            time_squeezes: squeezes.as_ref().and_then(|squeezes| {
                let line = squeezes.get(cpu).copied();
                line.ok_or_else(|| format!("/proc/net/softnet_stat has no CPU {cpu}")).into()
            }),
        });
        let counts = &self.counts;
        DelayReport {
            windows: self.windows,
            observed_seconds: self.seconds,
            received: counts.received,
            reads: counts.reads,
            unmatched_reads: counts.reads.saturating_sub(counts.known_reads),
            replies: counts.replies,
            replies_by_order: counts.replies_by_order,
            requests: self.requests(),
            lost_events: self.lost_events,
            end_to_end_ns: self.end_to_end.quantiles(),
            slowest_ns: slow.iter().map(|slow| slow.end_to_end_ns).collect::<Distribution>().quantiles(),
            stages: stages.collect(),
            reasons: reasons(&slow),
            softirqs: softirqs.collect(),
            ..DelayReport::default()
        }
    }
}

fn middle_stack(window: &RecordedWindow, cpu: u32, begin: u64, end: u64) -> Option<Vec<u64>> {
    let samples =
        window.stacks.iter().filter(|sample| sample.cpu == cpu && (begin..end).contains(&sample.at));
    let middle = begin.midpoint(end);
    samples.min_by_key(|sample| sample.at.abs_diff(middle)).map(|sample| sample.addresses.clone())
}

/// Names up to the function that runs softirqs: functions further out were interrupted.
fn functions(stack: &[u64], function: &impl Fn(u64) -> Known<String>) -> Known<Vec<String>> {
    let mut names = Vec::new();
    for address in stack {
        match function(*address) {
            Known::Value(name) if SOFTIRQ_ENTRY.contains(&crate::symbols::source_name(&name)) => break,
            Known::Value(name) => names.push(name),
            Known::Unknown { why } if names.is_empty() => return Known::Unknown { why },
            Known::Unknown { .. } => {}
        }
    }
    Known::Value(names)
}

/// The most frequent reason first.
fn reasons(candidates: &[&SlowCandidate]) -> Vec<SlowReason> {
    let mut groups: BTreeMap<(DelayStage, &DelayCause), Vec<u64>> = BTreeMap::new();
    for candidate in candidates {
        groups
            .entry((candidate.stage, &candidate.cause))
            .or_default()
            .push(candidate.stages[candidate.stage as usize]);
    }
    let mut reasons: Vec<SlowReason> = groups
        .into_iter()
        .map(|((stage, cause), mut times)| {
            times.sort_unstable();
            SlowReason {
                stage,
                cause: cause.clone(),
                requests: u64::try_from(times.len()).unwrap_or(0),
                share: times.len() as f64 / candidates.len() as f64,
                stage_ns: times[times.len() / 2],
            }
        })
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.requests));
    reasons
}
