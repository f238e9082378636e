//! Sampling: one event and one ring per CPU, drained during the run.
//!
//! The kernel writes each sample into its CPU's ring without a wakeup; rings are [drained
//! periodically](DRAIN) and samples are combined at once, so that a long run needs no more memory
//! than a short one with the same stacks.

mod context;
mod event;
mod mappings;
mod names;
mod sample_tally;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::{Host, Known};
use perf_event::Sampler;
use perf_event::data::Record;

pub(crate) use self::event::kernel_failed;
pub(crate) use self::mappings::any_mappings;

use self::names::{FunctionNames, OUTSIDE};
use self::sample_tally::{SamplePlace, SampleTally};
use super::profile::{
    CpuContext, CpuProfile, FrameKind, ProfileOptions, SampleEvent, SampledStack, SamplingCost, StackProfile,
};
use crate::host_facts::online_cpus;
use crate::{TraceError, window};

// Interval of draining. At 999 Hz a ring has room for ten times the deepest stacks of that time.
const DRAIN: Duration = Duration::from_millis(50);

// Interval of symbol lookup: processes may end, and their symbols with them.
const NAME: Duration = Duration::from_secs(1);

/// With fewer of the requested samples there is a note: other users of the CPU took the rest.
const ENOUGH: f64 = 0.9;

/// From this share of the busy samples on, a note reports linerate's own samples.
const NOTABLE: f64 = 0.01;

/// The `comm` of samples for the time of virtual machines.
const GUESTS: &str = "[virtual machines]";

/// The operation in an error message.
const WHAT: &str = "sampling CPUs";

impl StackProfile {
    /// Samples CPUs until the time is over or `stop` returns true.
    ///
    /// # Errors
    /// If perf events are not permitted (CAP_PERFMON, or `kernel.perf_event_paranoid` of 0 or less)
    /// or not in this kernel.
    pub fn observe(
        host: &Host,
        options: &ProfileOptions,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        observe_with(host, options, stop, &event::RINGS)
    }
}

fn observe_with(
    host: &Host,
    options: &ProfileOptions,
    stop: &dyn Fn() -> bool,
    rings: &[usize],
) -> Result<StackProfile, TraceError> {
    let (event, mut samplers) = event::open(&cpus(host, options)?, options.frequency_hz, rings)?;
    let ns_a_sample = match event::time_a_sample(&event) {
        Ok(Some(ns)) => Known::Value(ns),
        Ok(None) => Known::unknown("the kernel made no samples of the thread that was to time them"),
        Err(error) => Known::unknown(format!("samples of a thread could not be timed: {error}")),
    };
    let lost = vec![0; samplers.len()];
    let mut run =
        SampleRun { tally: SampleTally::default(), names: FunctionNames::new(host)?, lost, throttled: 0 };
    for (_, sampler) in &mut samplers {
        sampler.enable().map_err(|error| kernel_failed(&error))?;
    }
    let process_before = window::thread_ns();
    let guests_before = guest_seconds(host);
    let begin = Instant::now();
    run.collect_samples(host, &mut samplers, options.duration, stop);
    for (_, sampler) in &mut samplers {
        sampler.disable().map_err(|error| kernel_failed(&error))?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let process_ns = window::thread_ns().saturating_sub(process_before);
    run.drain(&mut samplers);
    let guests = guest_seconds(host).into_iter();
    let guests = guests.map(|(cpu, now)| (cpu, now - guests_before.get(&cpu).unwrap_or(&now))).collect();
    run.tally.look_up_symbols(host, &mut run.names);
    let mut profile = run.into_profile(seconds, event, options.frequency_hz, &mut samplers, &guests);
    // Without the samples that were added for halted CPUs and guests, which have no frames.
    let sample_count: u64 =
        profile.stacks.iter().filter(|stack| !stack.frames.is_empty()).map(|stack| stack.samples).sum();
    let cpu_ns = seconds * 1e9 * profile.cpus.len().max(1) as f64;
    profile.own = ns_a_sample.map(|ns_a_sample| SamplingCost {
        ns_a_sample,
        process_ns,
        share: (sample_count as f64 * ns_a_sample + process_ns as f64) / cpu_ns,
    });
    Ok(profile)
}

/// Time of a sample by the clock, ns; `None` if the kernel takes no sample of this thread.
pub(crate) fn time_a_clock_sample() -> std::io::Result<Option<f64>> {
    event::time_a_sample(&SampleEvent::CpuClock { why: String::new() })
}

/// Addresses in the kernel of a sample's call chain, innermost first.
pub(crate) fn kernel_addresses(chain: &[u64]) -> Vec<u64> {
    let kernel = sample_tally::addresses(chain).filter(|(kind, _)| *kind == FrameKind::Kernel);
    kernel.map(|(_, address)| address).collect()
}

fn cpus(host: &Host, options: &ProfileOptions) -> Result<Vec<u32>, TraceError> {
    let is_requested = |cpu: &u32| options.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
    Ok(online_cpus(host)?.iter().filter(is_requested).collect())
}

fn refusal(why: String) -> TraceError {
    TraceError::Kernel { what: WHAT, source: std::io::Error::other(why) }
}

struct SampleRun {
    tally: SampleTally,
    names: FunctionNames,
    /// In the order of the samplers.
    lost: Vec<u64>,
    // Number of times the kernel throttled a CPU's samples.
    throttled: u64,
}

impl SampleRun {
    /// Drains rings and looks up symbols until the time is over.
    fn collect_samples(
        &mut self,
        host: &Host,
        samplers: &mut [(u32, Sampler)],
        duration: Duration,
        stop: &dyn Fn() -> bool,
    ) {
        let begin = Instant::now();
        let mut last_lookup = begin;
        while !stop() && begin.elapsed() < duration {
            window::wait(DRAIN.min(duration.saturating_sub(begin.elapsed())), stop);
            self.drain(samplers);
            // Not at the end, which it would delay: the rest is looked up after sampling.
            if last_lookup.elapsed() >= NAME && begin.elapsed() + NAME < duration {
                self.tally.look_up_symbols(host, &mut self.names);
                last_lookup = Instant::now();
            }
        }
    }

    fn drain(&mut self, samplers: &mut [(u32, Sampler)]) {
        for (index, (cpu, sampler)) in samplers.iter_mut().enumerate() {
            while let Some(record) = sampler.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let (pid, thread) = (sample.pid().unwrap_or(0), sample.tid().unwrap_or(0));
                        let place = SamplePlace { cpu: *cpu, pid, thread };
                        self.tally.add(place, sample.callchain().unwrap_or_default());
                    }
                    Ok(Record::Lost(lost)) => self.lost[index] += lost.lost,
                    Ok(Record::LostSamples(lost)) => self.lost[index] += lost.lost,
                    Ok(Record::Throttle(_)) => self.throttled += 1,
                    _ => {}
                }
            }
        }
    }

    fn into_profile(
        self,
        seconds: f64,
        event: SampleEvent,
        frequency_hz: u32,
        samplers: &mut [(u32, Sampler)],
        guests: &BTreeMap<u32, f64>,
    ) -> StackProfile {
        let mut stacks = self.tally.into_stacks();
        let cpus: Vec<CpuProfile> = samplers
            .iter_mut()
            .zip(&self.lost)
            .map(|((cpu, sampler), lost_records)| {
                let (mut samples, mut idle) = (0, 0);
                for stack in stacks.iter().filter(|stack| stack.cpu == *cpu) {
                    samples += stack.samples;
                    idle += if stack.context == CpuContext::Idle { stack.samples } else { 0 };
                }
                // Loss records come with the next sample that has room; the counter includes the
                // last ones.
                let lost_counter = sampler.read_full().ok().and_then(|count| count.lost());
                CpuProfile { cpu: *cpu, samples, idle, lost: lost_counter.unwrap_or(0).max(*lost_records) }
            })
            .collect();
        let cpus = match event {
            SampleEvent::CpuCycles => {
                add_halted_samples(cpus, &mut stacks, (seconds, frequency_hz.into()), guests)
            }
            SampleEvent::CpuClock { .. } => cpus,
        };
        let mut notes = limits(&event);
        notes.extend(self.names.notes());
        let outside: u64 =
            stacks.iter().filter(|stack| stack.comm == OUTSIDE).map(|stack| stack.samples).sum();
        if outside > 0 {
            notes.push(format!(
                "{outside} samples are of processes outside of this PID namespace, which have no names here"
            ));
        }
        if self.throttled > 0 {
            notes.push(format!(
                "the kernel paused the samples {} times, since they were too many",
                self.throttled
            ));
        }
        notes.extend(own_cost(&stacks));
        if event != SampleEvent::CpuCycles {
            notes.extend(shortfall(&cpus, seconds, frequency_hz));
        }
        let frames = self.names.into_frames();
        StackProfile { seconds, event, frequency_hz, cpus, frames, stacks, own: Known::default(), notes }
    }
}

fn limits(event: &SampleEvent) -> Vec<String> {
    match event {
        SampleEvent::CpuCycles => vec![
            "sampled by cycles: a CPU that is halted has none, so that what is missing to the time counts as idle, after the \
             time of virtual machines by /proc/stat; at a higher or lower clock than that of the beginning, a sample is \
             shorter or longer"
                .to_owned(),
        ],
        SampleEvent::CpuClock { why } => vec![format!(
            "sampled by a timer, because {why}: code with interrupts off is charged to the place where they are switched on again, \
             and interrupt handlers are not seen"
        )],
    }
}

/// Time in virtual machines by CPU, s: `guest` and `guest_nice` of /proc/stat (proc(5)).
fn guest_seconds(host: &Host) -> BTreeMap<u32, f64> {
    let guest = |line: &str| {
        let words: Vec<u64> =
            line.strip_prefix("cpu")?.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [cpu, _, _, _, _, _, _, _, _, guest, guest_nice, ..] = words[..] else { return None };
        let ticks = (guest + guest_nice) as f64;
        Some((u32::try_from(cpu).ok()?, ticks / rustix::param::clock_ticks_per_second() as f64))
    };
    host.read("/proc/stat").unwrap_or_default().lines().filter_map(guest).collect()
}

// Adds missing samples: those of virtual machines, which are not sampled, and the others as idle,
// because a halted CPU has no cycles.
fn add_halted_samples(
    mut cpus: Vec<CpuProfile>,
    stacks: &mut Vec<SampledStack>,
    (seconds, frequency_hz): (f64, f64),
    guests: &BTreeMap<u32, f64>,
) -> Vec<CpuProfile> {
    for cpu in &mut cpus {
        let missing = ((seconds * frequency_hz).round() as u64).saturating_sub(cpu.samples + cpu.lost);
        let guest = guests.get(&cpu.cpu).map_or(0, |seconds| (seconds * frequency_hz) as u64).min(missing);
        cpu.samples += missing;
        cpu.idle += missing - guest;
        let (idle, task) = (CpuContext::Idle, CpuContext::Task);
        for (context, comm, samples) in [(idle, "swapper", missing - guest), (task, GUESTS, guest)] {
            if samples > 0 {
                let (frames, comm) = (Vec::new(), comm.to_owned());
                stacks.push(SampledStack { frames, context, entry: 0, cpu: cpu.cpu, pid: 0, comm, samples });
            }
        }
    }
    stacks.sort_by_key(|stack| std::cmp::Reverse(stack.samples));
    cpus
}

/// linerate's own samples: draining rings and symbol lookup.
fn own_cost(stacks: &[SampledStack]) -> Option<String> {
    let samples = |is_own: bool| -> u64 {
        let busy = stacks.iter().filter(|stack| stack.context != CpuContext::Idle);
        busy.filter(|stack| !is_own || stack.pid == std::process::id()).map(|stack| stack.samples).sum()
    };
    let share = samples(true) as f64 / samples(false) as f64;
    (share >= NOTABLE).then(|| format!("{:.1} % of the samples are linerate's own process", share * 100.0))
}

// Whether samples are missing without being counted as lost.
fn shortfall(cpus: &[CpuProfile], seconds: f64, frequency_hz: u32) -> Option<String> {
    let expected = seconds * f64::from(frequency_hz);
    let is_short = |cpu: &&CpuProfile| ((cpu.samples + cpu.lost) as f64) < expected * ENOUGH;
    let (count, worst) = (
        cpus.iter().filter(is_short).count(),
        cpus.iter().filter(is_short).min_by_key(|cpu| cpu.samples + cpu.lost)?,
    );
    let ratio = (worst.samples + worst.lost) as f64 / expected;
    Some(format!(
        "{count} of {} CPUs gave fewer samples than asked for, CPU {} {:.0} %: it stood still (hypervisor, deep sleep), or had \
         interrupts off for long",
        cpus.len(),
        worst.cpu,
        ratio * 100.0
    ))
}

#[cfg(test)]
mod tests;
