//! What was sampled.

use std::time::Duration;

use linerate_host::{Host, Known};
use serde::{Deserialize, Serialize};

use crate::TraceError;

mod saved;

pub(crate) use super::sample::any_mappings;
pub(crate) use saved::any_profile;

/// Samples a second and CPU unless asked otherwise: not a divisor of the tick's rates (100, 250, 300, 1000), so that what runs at
/// each tick is neither always nor never seen.
pub const FREQUENCY_HZ: u32 = 999;

/// What is to be sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOptions {
    pub duration: Duration,
    /// Samples a second on each CPU.
    pub frequency_hz: u32,
    /// Which CPUs; all that are online if `None`.
    pub cpus: Option<Vec<u32>>,
}

impl ProfileOptions {
    /// All CPUs at [`FREQUENCY_HZ`] for this long.
    pub fn all(duration: Duration) -> Self {
        Self { duration, frequency_hz: FREQUENCY_HZ, cpus: None }
    }
}

/// Stacks that were sampled, and how often each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "saved::SavedProfile")]
pub struct StackProfile {
    /// For how long it was sampled.
    pub seconds: f64,
    /// What made the samples.
    pub event: SampleEvent,
    /// Samples a second and CPU that were asked for.
    pub frequency_hz: u32,
    /// A row a CPU, by number.
    pub cpus: Vec<CpuProfile>,
    /// Functions, each once; [`SampledStack::frames`] has their indices. [`StackProfile::frames_of`] puts them together.
    pub frames: Vec<StackFrame>,
    /// Stacks, idle ones too, by falling number of samples.
    pub stacks: Vec<SampledStack>,
    /// What sampling itself took; unknown in files of version 0.1.
    #[serde(default)]
    pub own: Known<SamplingCost>,
    /// What cannot be seen this way here, and what went wrong, one line each.
    pub notes: Vec<String>,
}

/// What sampling took, which is part of what was sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingCost {
    /// What a sample took of its CPU, as a thread felt it that was sampled often before the run. Its stacks were short:
    /// those of a busy kernel take longer.
    pub ns_a_sample: f64,
    /// What this process took, with the names of functions that it looked up while it sampled.
    pub process_ns: u64,
    /// Both, as a share of the CPUs' time, 0 to 1.
    pub share: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SampleEvent {
    /// The CPU's cycle counter, whose interrupt is not masked on x86: sections with interrupts off are seen. A sample is as many
    /// cycles as the CPU had in that time when sampling began.
    CpuCycles,
    /// A timer a CPU. What runs with interrupts off is charged to where they are switched on again.
    CpuClock {
        /// Why not the cycle counter.
        why: String,
    },
}

/// Samples of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuProfile {
    pub cpu: u32,
    /// All samples, idle ones too.
    pub samples: u64,
    /// Those with nothing to do.
    pub idle: u64,
    /// Samples the kernel took and had no room for.
    pub lost: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StackFrame {
    /// Its name without offset; [`StackFrame::UNKNOWN`] where it has none.
    pub name: String,
    /// The kernel module (`bpf` for BPF programs), or the file name of the program or library; none for the kernel itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    pub kind: FrameKind,
}

impl StackFrame {
    /// The name of what has none.
    pub const UNKNOWN: &str = "[unknown]";
}

/// Whose function it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// The kernel's, its modules', or a BPF program.
    Kernel,
    /// A program's or library's.
    User,
}

/// What a CPU was doing when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuContext {
    /// A thread's own work, in user space or in a system call.
    Task,
    /// Softirq on the way out of an interrupt: takes its time from whoever was there.
    Softirq,
    /// Softirq that a thread's own system call set off and ran (`local_bh_enable`), such as sending over loopback.
    SoftirqOwn,
    /// Softirq in ksoftirqd, or NAPI in a thread of its own: scheduled like other threads.
    Ksoftirqd,
    /// A hardware interrupt, its handler.
    Irq,
    Idle,
}

impl CpuContext {
    /// All, in the order in which they are shown.
    pub const ALL: [CpuContext; 6] = [
        CpuContext::Irq,
        CpuContext::Softirq,
        CpuContext::SoftirqOwn,
        CpuContext::Ksoftirqd,
        CpuContext::Task,
        CpuContext::Idle,
    ];

    /// Whether interrupts and softirqs ran here, in whichever process.
    pub fn is_interrupt(self) -> bool {
        matches!(self, CpuContext::Softirq | CpuContext::SoftirqOwn | CpuContext::Ksoftirqd | CpuContext::Irq)
    }

    /// In words, such as `softirq in ksoftirqd`.
    pub fn describe(self) -> &'static str {
        match self {
            CpuContext::Task => "task",
            CpuContext::Softirq => "softirq after an interrupt",
            CpuContext::SoftirqOwn => "softirq in a system call",
            CpuContext::Ksoftirqd => "softirq in ksoftirqd",
            CpuContext::Irq => "hardware interrupt",
            CpuContext::Idle => "idle",
        }
    }
}

/// A stack on a CPU in a process, and how often it was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledStack {
    /// Indices into [`StackProfile::frames`], the root first: user space, then the kernel.
    pub frames: Vec<u32>,
    /// What the CPU was doing.
    pub context: CpuContext,
    /// Which of `frames` is where that context begins (`handle_softirqs`, the interrupt's entry); 0 for tasks.
    #[serde(default)]
    pub entry: u32,
    pub cpu: u32,
    /// The process that was current; 0 for the idle task.
    pub pid: u32,
    /// Name of the thread that was current.
    pub comm: String,
    pub samples: u64,
}

impl StackProfile {
    /// Samples what CPUs do, until the time is over or `stop` says so.
    ///
    /// # Errors
    /// If perf events are not permitted (CAP_PERFMON, or `kernel.perf_event_paranoid` of 0 or less) or not in this kernel, or none
    /// of the CPUs asked for is online.
    pub fn observe(host: &Host, asked: &ProfileOptions, stop: &dyn Fn() -> bool) -> Result<Self, TraceError> {
        super::sample::observe(host, asked, stop)
    }

    /// The functions of a stack, the root first.
    pub fn frames_of<'p>(
        &'p self,
        stack: &'p SampledStack,
    ) -> impl DoubleEndedIterator<Item = &'p StackFrame> + ExactSizeIterator {
        stack.frames.iter().map(|index| &self.frames[*index as usize])
    }

    /// All samples but idle ones.
    pub fn busy(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.samples - cpu.idle).sum()
    }

    /// Samples in a context, on one CPU or on all.
    pub fn samples_in(&self, context: CpuContext, cpu: Option<u32>) -> u64 {
        self.stacks
            .iter()
            .filter(|stack| stack.context == context && cpu.is_none_or(|cpu| cpu == stack.cpu))
            .map(|stack| stack.samples)
            .sum()
    }

    /// Samples the kernel took and had no room for.
    pub fn lost(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.lost).sum()
    }
}
