//! Stacks of long softirqs: a timer samples each CPU while a window is open.

use linerate_host::{Host, Known};
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::TraceError;
use crate::flame::sample::{kernel_addresses, kernel_failed, time_a_clock_sample};
use crate::host_facts::online_cpus;

/// Samples per second: not a divisor of tick rates.
const FREQUENCY_HZ: u64 = 1_999;
const RING_BYTES: usize = 256 << 10;
/// Largest number of functions per stack.
const DEEPEST: u16 = 24;

/// Kernel functions of a CPU at a moment, innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StackSample {
    /// CLOCK_MONOTONIC, ns.
    pub(super) at: u64,
    pub(super) cpu: u32,
    pub(super) addresses: Vec<u64>,
}

/// A disabled sampler for each online CPU.
pub(super) struct StackSampler {
    samplers: Vec<(u32, Sampler)>,
    /// CPU time per sample.
    pub(super) sample_ns: f64,
}

impl std::fmt::Debug for StackSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpus: Vec<u32> = self.samplers.iter().map(|(cpu, _)| *cpu).collect();
        f.debug_struct("StackSampler").field("cpus", &cpus).finish_non_exhaustive()
    }
}

impl StackSampler {
    /// Unknown if perf events are not permitted.
    pub(super) fn open(host: &Host) -> Known<Self> {
        let open_all = || -> Result<Self, TraceError> {
            let open = |cpu| Ok((cpu, open_on(cpu).map_err(|error| kernel_failed(&error))?));
            let samplers = online_cpus(host)?.iter().map(open).collect::<Result<_, TraceError>>()?;
            // The kernel may permit samples, but not as many as are needed to time them.
            let sample_ns = time_a_clock_sample().ok().flatten().unwrap_or(0.0);
            Ok(Self { samplers, sample_ns })
        };
        open_all().into()
    }

    pub(super) fn enable(&mut self) -> std::io::Result<()> {
        self.samplers.iter_mut().try_for_each(|(_, sampler)| sampler.enable())
    }

    pub(super) fn take(&mut self) -> std::io::Result<Vec<StackSample>> {
        let mut samples = Vec::new();
        for (cpu, sampler) in &mut self.samplers {
            sampler.disable()?;
            while let Some(record) = sampler.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else { continue };
                let addresses = kernel_addresses(sample.callchain().unwrap_or_default());
                samples.push(StackSample { at: sample.time().unwrap_or(0), cpu: *cpu, addresses });
            }
        }
        Ok(samples)
    }
}

fn open_on(cpu: u32) -> std::io::Result<Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .any_pid()
        .one_cpu(cpu as usize)
        .include_kernel()
        .exclude_callchain_user(true)
        .clockid(Clock::MONOTONIC)
        .sample_frequency(FREQUENCY_HZ)
        .sample(SampleFlag::TIME | SampleFlag::CALLCHAIN)
        .sample_max_stack(DEEPEST)
        .wakeup_watermark(RING_BYTES / 2);
    builder.build()?.sampled(RING_BYTES)
}
