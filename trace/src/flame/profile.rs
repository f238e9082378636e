//! Sampled stacks.

use std::time::Duration;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

mod saved_profile;

pub(crate) use saved_profile::any_profile;

/// Default samples per second and CPU: not a divisor of tick rates (100, 250, 300, 1000), so that
/// periodic work is neither always sampled nor never.
pub const FREQUENCY_HZ: u32 = 999;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOptions {
    pub duration: Duration,
    pub frequency_hz: u32,
    /// `None` for all that are online.
    pub cpus: Option<Vec<u32>>,
}

impl ProfileOptions {
    /// All CPUs at [`FREQUENCY_HZ`].
    pub fn all(duration: Duration) -> Self {
        Self { duration, frequency_hz: FREQUENCY_HZ, cpus: None }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "saved_profile::SavedProfile")]
pub struct StackProfile {
    pub seconds: f64,
    pub event: SampleEvent,
    /// Per second and CPU, as requested.
    pub frequency_hz: u32,
    pub cpus: Vec<CpuProfile>,
    /// Unique functions; [`SampledStack::frames`] has their indices, and
    /// [`StackProfile::frames_of`] resolves them.
    pub frames: Vec<StackFrame>,
    /// Including idle ones, most samples first.
    pub stacks: Vec<SampledStack>,
    /// The cost of sampling; unknown in files of version 0.1.
    #[serde(default)]
    pub own: Known<SamplingCost>,
    /// Limits and problems, one line each.
    pub notes: Vec<String>,
}

/// The cost of sampling, included in the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingCost {
    /// Time per sample, measured in a thread before the run. Its stacks were short: those of a busy
    /// kernel take longer.
    pub ns_a_sample: f64,
    /// CPU time of this process, including symbol lookup.
    pub process_ns: u64,
    /// Both, as a share of the CPUs' time, 0 to 1.
    pub share: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SampleEvent {
    /// The CPU's cycle counter, whose interrupt is not masked on x86: sections with interrupts off
    /// are visible. A sample is a number of cycles that was calibrated at the start.
    CpuCycles,
    /// A timer per CPU. Code with interrupts off is charged to the place where they are enabled
    /// again.
    CpuClock {
        /// Why the cycle counter is not available.
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuProfile {
    pub cpu: u32,
    /// Including idle ones.
    pub samples: u64,
    pub idle: u64,
    /// Samples lost for lack of room.
    pub lost: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StackFrame {
    /// Without offset; [`StackFrame::UNKNOWN`] without a symbol.
    pub name: String,
    /// The kernel module (`bpf` for BPF programs), or the file name of the program or library;
    /// `None` for the kernel itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    pub kind: FrameKind,
}

impl StackFrame {
    pub const UNKNOWN: &str = "[unknown]";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// The kernel's, its modules', or a BPF program.
    Kernel,
    /// A program's or library's.
    User,
}

/// The activity of a CPU at a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuContext {
    /// A thread's own work, in user space or in a system call.
    Task,
    /// Softirq at the end of an interrupt, in the time of another thread.
    Softirq,
    /// Softirq triggered by a thread's own system call (`local_bh_enable`), such as sending over
    /// loopback.
    SoftirqOwn,
    /// Softirq in ksoftirqd, or NAPI in its own thread: scheduled like other threads.
    Ksoftirqd,
    /// A hardware interrupt handler.
    Irq,
    Idle,
}

impl CpuContext {
    /// In display order.
    pub const ALL: [CpuContext; 6] = [
        CpuContext::Irq,
        CpuContext::Softirq,
        CpuContext::SoftirqOwn,
        CpuContext::Ksoftirqd,
        CpuContext::Task,
        CpuContext::Idle,
    ];

    /// Whether interrupts and softirqs ran here, in any process.
    pub fn is_interrupt(self) -> bool {
        matches!(self, CpuContext::Softirq | CpuContext::SoftirqOwn | CpuContext::Ksoftirqd | CpuContext::Irq)
    }

    /// For people, such as `softirq in ksoftirqd`.
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

/// A stack on a CPU in a process, with its number of samples.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampledStack {
    /// Indices into [`StackProfile::frames`], root first: user space, then the kernel.
    pub frames: Vec<u32>,
    pub context: CpuContext,
    /// Index in `frames` of the context's first function (`handle_softirqs`, the interrupt's
    /// entry); 0 for tasks.
    #[serde(default)]
    pub entry: u32,
    pub cpu: u32,
    /// 0 for the idle task, and for processes outside of this PID namespace.
    pub pid: u32,
    pub comm: String,
    pub samples: u64,
}

impl StackProfile {
    /// Root first.
    pub fn frames_of<'p>(
        &'p self,
        stack: &'p SampledStack,
    ) -> impl DoubleEndedIterator<Item = &'p StackFrame> + ExactSizeIterator {
        stack.frames.iter().map(|index| &self.frames[*index as usize])
    }

    pub fn busy(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.samples - cpu.idle).sum()
    }

    pub fn samples_in(&self, context: CpuContext, cpu: Option<u32>) -> u64 {
        self.stacks
            .iter()
            .filter(|stack| stack.context == context && cpu.is_none_or(|cpu| cpu == stack.cpu))
            .map(|stack| stack.samples)
            .sum()
    }

    /// Samples lost for lack of room.
    pub fn lost(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.lost).sum()
    }
}
