//! CPU time by owner while a configuration was under load, and the functions that used most of it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_host::{Host, Known};
use linerate_load::{Generator, LoadSlot};
use linerate_trace::TraceError;
use linerate_trace::flame::{CpuContext, FrameKind, ProfileOptions, SampledStack, StackProfile, fold, spots};
use serde::{Deserialize, Serialize};

use crate::ladder::error::TestbedError;
use crate::ladder::sampler::{check_observed, under_load};

/// Sampling begins after the slot, which remote generators begin 100 ms after the order or, if their
/// clocks are uncertain, later. It ends with the slot at the latest.
const SLOT: Duration = Duration::from_millis(1500);
const SAMPLED: Duration = Duration::from_millis(800);
const REMOTE_LEAD: Duration = Duration::from_millis(200);
/// Most functions per step in the report.
const MOST_FUNCTIONS: usize = 10;
/// Name of the engine's worker threads, before their number.
const WORKER_THREAD: &str = "linerate-";

/// The CPUs in one step, at a rate that holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuUse {
    /// The last of the steps in place, such as `steer-by-cpu`.
    pub step: String,
    pub offered_per_second: f64,
    pub cpus: Vec<CpuShares>,
    /// Most samples first, at most ten.
    pub functions: Vec<HotFunction>,
    /// Share of all samples that were not idle, by hot spot of `linerate flame`, such as `conntrack`.
    #[serde(default)]
    pub spot_ratios: BTreeMap<String, f64>,
    /// Limits of the sampling, one line each.
    pub notes: Vec<String>,
}

/// Shares of one CPU's time; together 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuShares {
    pub cpu: u32,
    pub interrupt_ratio: f64,
    /// Softirqs in any context, also in ksoftirqd.
    pub softirq_ratio: f64,
    pub server_user_ratio: f64,
    pub server_kernel_ratio: f64,
    pub generator_ratio: f64,
    /// Other processes.
    pub other_ratio: f64,
    pub idle_ratio: f64,
}

/// A function in which the CPUs were when they were sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotFunction {
    pub name: String,
    /// Of the samples of server, generator, softirqs and interrupts.
    pub busy_ratio: f64,
}

/// The owner of the CPU time in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleOwner {
    Server,
    Generator,
    Other,
}

/// The owner of a thread of this process: the server for its worker threads, `other_owner` for all
/// other threads.
pub(crate) fn thread_owner(stack: &SampledStack, other_owner: SampleOwner) -> SampleOwner {
    if is_worker(&stack.comm) { SampleOwner::Server } else { other_owner }
}

/// Whether a thread of this name is one of the engine's workers.
pub(crate) fn is_worker(comm: &str) -> bool {
    let suffix = comm.strip_prefix(WORKER_THREAD).unwrap_or_default();
    !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit())
}

struct NoProfile {
    why: String,
    /// Other programs may have delayed the sampling.
    may_differ_next_time: bool,
}

/// Samples the CPUs while the generator offers the rate. Unknown if sampling is not possible.
pub(crate) fn sample(
    host: &Host,
    generator: &mut dyn Generator,
    per_second: f64,
    is_remote: bool,
    owner: &dyn Fn(&SampledStack) -> SampleOwner,
) -> Result<Known<CpuUse>, TestbedError> {
    let mut observe = || -> Result<Result<StackProfile, NoProfile>, TestbedError> {
        let sampling_began = OnceCell::new();
        let (outcome, profile) = under_load(generator, &LoadSlot::rate(per_second, SLOT), |is_over| {
            if is_remote {
                std::thread::sleep(REMOTE_LEAD);
            }
            StackProfile::observe(host, &ProfileOptions::all(SAMPLED), &|| {
                sampling_began.get_or_init(SystemTime::now);
                is_over()
            })
        })?;
        let load_began = UNIX_EPOCH + Duration::from_nanos(outcome.started_realtime_ns);
        let is_early = sampling_began.get().is_some_and(|began| *began < load_began);
        let refused = |error: TraceError| NoProfile { why: error.to_string(), may_differ_next_time: false };
        Ok(profile.map_err(refused).and_then(|profile| {
            let is_of_load = match is_early {
                true => Err("sampling began before the load".to_owned()),
                false => check_observed(profile.seconds, SAMPLED),
            };
            is_of_load.map(|()| profile).map_err(|why| NoProfile { why, may_differ_next_time: true })
        }))
    };
    let profile = match observe()? {
        Err(NoProfile { may_differ_next_time: true, .. }) => observe()?,
        profile => profile,
    };
    Ok(match profile {
        Ok(profile) => Known::Value(CpuUse {
            step: String::new(),
            offered_per_second: per_second,
            cpus: shares(&profile, owner),
            functions: functions(&profile, owner),
            spot_ratios: spots::find(&profile)
                .into_iter()
                .map(|spot| (spot.id, spot.share_of_busy))
                .collect(),
            notes: profile.notes,
        }),
        Err(NoProfile { why, .. }) => Known::unknown(why),
    })
}

fn shares(profile: &StackProfile, owner: &dyn Fn(&SampledStack) -> SampleOwner) -> Vec<CpuShares> {
    let mut shares: BTreeMap<u32, CpuShares> = profile
        .cpus
        .iter()
        .map(|cpu| (cpu.cpu, CpuShares { cpu: cpu.cpu, ..CpuShares::default() }))
        .collect();
    for stack in &profile.stacks {
        let Some(cpu_shares) = shares.get_mut(&stack.cpu) else { continue };
        let samples = profile.cpus.iter().find(|cpu| cpu.cpu == stack.cpu).map_or(0, |cpu| cpu.samples);
        let ratio = match stack.context {
            CpuContext::Irq => &mut cpu_shares.interrupt_ratio,
            CpuContext::Softirq | CpuContext::SoftirqOwn | CpuContext::Ksoftirqd => {
                &mut cpu_shares.softirq_ratio
            }
            CpuContext::Idle => &mut cpu_shares.idle_ratio,
            CpuContext::Task => match (owner(stack), innermost(profile, stack)) {
                (SampleOwner::Server, Some(FrameKind::Kernel)) => &mut cpu_shares.server_kernel_ratio,
                (SampleOwner::Server, _) => &mut cpu_shares.server_user_ratio,
                (SampleOwner::Generator, _) => &mut cpu_shares.generator_ratio,
                (SampleOwner::Other, _) => &mut cpu_shares.other_ratio,
            },
        };
        *ratio += stack.samples as f64 / samples.max(1) as f64;
    }
    shares.into_values().collect()
}

fn innermost(profile: &StackProfile, stack: &SampledStack) -> Option<FrameKind> {
    profile.frames_of(stack).next_back().map(|frame| frame.kind)
}

fn functions(profile: &StackProfile, owner: &dyn Fn(&SampledStack) -> SampleOwner) -> Vec<HotFunction> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let is_of_run = |stack: &&SampledStack| match stack.context {
        CpuContext::Idle => false,
        CpuContext::Task => owner(stack) != SampleOwner::Other,
        _ => true,
    };
    for stack in profile.stacks.iter().filter(is_of_run) {
        if let Some(frame) = profile.frames_of(stack).next_back() {
            *counts.entry(fold::label(frame)).or_default() += stack.samples;
        }
    }
    let busy = counts.values().sum::<u64>().max(1) as f64;
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    counts.truncate(MOST_FUNCTIONS);
    counts
        .into_iter()
        .map(|(name, samples)| HotFunction { name, busy_ratio: samples as f64 / busy })
        .collect()
}

#[cfg(test)]
mod tests {
    use linerate_trace::flame::{CpuProfile, SampleEvent, StackFrame};

    use super::*;

    fn frame(name: &str, kind: FrameKind) -> StackFrame {
        StackFrame { name: name.to_owned(), module: None, kind }
    }

    fn stack(context: CpuContext, pid: u32, comm: &str, frames: &[u32], samples: u64) -> SampledStack {
        let comm = comm.to_owned();
        SampledStack { frames: frames.to_vec(), context, entry: 0, cpu: 0, pid, comm, samples }
    }

    #[test]
    fn cpu_shares_attribute_each_sample_to_one_owner() {
        let profile = StackProfile {
            seconds: 1.0,
            event: SampleEvent::CpuCycles,
            frequency_hz: 100,
            cpus: vec![CpuProfile { cpu: 0, samples: 100, idle: 30, lost: 0 }],
            frames: vec![
                frame("answer", FrameKind::User),
                frame("udp_sendmsg", FrameKind::Kernel),
                frame("net_rx_action", FrameKind::Kernel),
            ],
            stacks: vec![
                stack(CpuContext::Idle, 0, "swapper", &[], 30),
                stack(CpuContext::Task, 7, "nsd", &[0], 20),
                stack(CpuContext::Task, 7, "nsd", &[0, 1], 15),
                stack(CpuContext::SoftirqOwn, 7, "nsd", &[0, 1, 2], 25),
                stack(CpuContext::Task, 9, "linerate", &[1], 6),
                stack(CpuContext::Task, 8, "sh", &[0], 4),
            ],
            own: Known::default(),
            notes: Vec::new(),
        };
        let owner = |stack: &SampledStack| match stack.pid {
            7 => SampleOwner::Server,
            9 => thread_owner(stack, SampleOwner::Generator),
            _ => SampleOwner::Other,
        };
        let shares = shares(&profile, &owner)[0];
        let expected = CpuShares {
            cpu: 0,
            interrupt_ratio: 0.0,
            softirq_ratio: 0.25,
            server_user_ratio: 0.2,
            server_kernel_ratio: 0.15,
            generator_ratio: 0.06,
            other_ratio: 0.04,
            idle_ratio: 0.3,
        };
        assert_eq!(shares, expected);
        let functions = functions(&profile, &owner);
        let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names, ["net_rx_action", "udp_sendmsg", "answer"]);
        assert_eq!(
            thread_owner(&stack(CpuContext::Task, 1, "linerate-3", &[], 1), SampleOwner::Other),
            SampleOwner::Server
        );
    }
}
