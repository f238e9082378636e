//! The work of each CPU, and the times in which threads ran, waited for a CPU, or slept.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{EventKind, RecordedWindow};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum CpuWork {
    /// Before its first switch in the window.
    Unknown,
    Irq,
    /// By its number in include/linux/interrupt.h.
    Softirq(u16),
    Thread(u32),
}

/// Work of a CPU from `at` until the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuSpan {
    pub(super) at: u64,
    pub(super) work: CpuWork,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadState {
    Running { cpu: u32 },
    Runnable,
    Sleeping,
}

#[derive(Debug, Default)]
struct CpuContext {
    irqs: u32,
    softirq: Option<u16>,
    thread: Option<u32>,
}

impl CpuContext {
    fn work(&self) -> CpuWork {
        match (self.irqs, self.softirq, self.thread) {
            (1.., ..) => CpuWork::Irq,
            (_, Some(vector), _) => CpuWork::Softirq(vector),
            (.., Some(thread)) => CpuWork::Thread(thread),
            _ => CpuWork::Unknown,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct WindowTimeline {
    pub(super) cpus: BTreeMap<u32, Vec<CpuSpan>>,
    threads: BTreeMap<u32, Vec<(u64, ThreadState)>>,
    pub(super) names: BTreeMap<u32, String>,
    end: u64,
}

impl WindowTimeline {
    /// `watched`: threads whose states are recorded.
    pub(super) fn new(window: &RecordedWindow, watched: &BTreeSet<u32>) -> Self {
        let mut timeline = Self { end: window.end, ..Self::default() };
        let mut contexts: BTreeMap<u32, CpuContext> = BTreeMap::new();
        for event in &window.events {
            let (at, cpu) = (event.at, event.cpu);
            let context = contexts.entry(cpu).or_default();
            let mut change_state = |thread: u32, state: ThreadState| {
                if watched.contains(&thread) {
                    timeline.threads.entry(thread).or_default().push((at, state));
                }
            };
            match event.kind {
                EventKind::IrqBegin => context.irqs += 1,
                EventKind::IrqEnd => context.irqs = context.irqs.saturating_sub(1),
                EventKind::SoftirqBegin { vector } => context.softirq = Some(vector),
                EventKind::SoftirqEnd { .. } => context.softirq = None,
                EventKind::Switch { sleeps, next, name } => {
                    if let Some(previous) = context.thread.replace(next) {
                        let state = if sleeps { ThreadState::Sleeping } else { ThreadState::Runnable };
                        change_state(previous, state);
                    }
                    change_state(next, ThreadState::Running { cpu });
                    timeline.names.entry(next).or_insert_with(|| name.to_string());
                }
                EventKind::Waking { thread } if watched.contains(&thread) => {
                    let states = timeline.threads.entry(thread).or_default();
                    if !matches!(
                        states.last(),
                        Some((_, ThreadState::Running { .. } | ThreadState::Runnable))
                    ) {
                        states.push((at, ThreadState::Runnable));
                    }
                    continue;
                }
                // A thread that was on the CPU before the first switch in the window.
                EventKind::Read { thread, .. } if context.thread.is_none() => {
                    context.thread = Some(thread);
                    change_state(thread, ThreadState::Running { cpu });
                }
                _ => continue,
            }
            let spans = timeline.cpus.entry(cpu).or_default();
            let work = context.work();
            if spans.last().is_none_or(|span| span.work != work) {
                spans.push(CpuSpan { at, work });
            }
        }
        timeline
    }

    /// Time of each work of a CPU between two moments, ns.
    pub(super) fn work(&self, cpu: u32, from: u64, to: u64) -> BTreeMap<CpuWork, u64> {
        let mut sums = BTreeMap::new();
        let spans = self.cpus.get(&cpu).map_or(&[][..], Vec::as_slice);
        let first_index = spans.partition_point(|span| span.at <= from);
        let previous_work = first_index.checked_sub(1).map_or(CpuWork::Unknown, |index| spans[index].work);
        let mut current = CpuSpan { at: from, work: previous_work };
        let end = CpuSpan { at: to, work: CpuWork::Unknown };
        for next in spans[first_index..].iter().take_while(|span| span.at < to).chain([&end]) {
            *sums.entry(current.work).or_default() += next.at.saturating_sub(current.at);
            current = *next;
        }
        sums
    }

    /// States of a watched thread between two moments with their begins and ends; a gap is unknown.
    pub(super) fn states(&self, thread: u32, from: u64, to: u64) -> Vec<(u64, u64, ThreadState)> {
        let states = self.threads.get(&thread).map_or(&[][..], Vec::as_slice);
        let first_index = states.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let states = &states[first_index..];
        let ends = states.iter().skip(1).map(|(at, _)| *at).chain([self.end]);
        let spans = states.iter().zip(ends).take_while(|((at, _), _)| *at < to);
        spans
            .map(|((at, state), end)| ((*at).max(from), end.min(to), *state))
            .filter(|(begin, end, _)| begin < end)
            .collect()
    }

    /// The CPU on which a thread that waits at this moment runs next.
    pub(super) fn next_cpu(&self, thread: u32, from: u64) -> Option<u32> {
        let states = self.threads.get(&thread)?;
        let first_index = states.partition_point(|(at, _)| *at < from);
        states[first_index..].iter().find_map(|(_, state)| match state {
            ThreadState::Running { cpu } => Some(*cpu),
            _ => None,
        })
    }
}
