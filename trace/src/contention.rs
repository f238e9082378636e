//! Time lost waiting for the kernel's locks, by lock and caller.
//!
//! Where a lock is taken by another, the kernel tells when the wait begins and when it ends (tracepoints `contention_begin` and
//! `contention_end` of include/trace/events/lock.h, since Linux 5.19); a lock that is free costs nothing here. `bpf/contention.bpf.c`
//! adds them up where they happen.

mod callers;
mod program;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_host::{CpuSet, Host};
use serde::{Deserialize, Serialize};

use crate::TraceError;
use crate::symbols::KernelSymbols;
use crate::window;
use program::ContentionProgram;

/// What is to be done, for errors.
const WHAT: &str = "looking at waits for locks";

/// Where the kernel lists its CPUs.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// What is to be looked at.
#[derive(Debug, Clone)]
pub struct ContentionOptions {
    pub duration: Duration,
    /// Waits on these CPUs only; none: on all.
    pub cpus: Option<Vec<u32>>,
}

/// Time lost waiting for locks of the kernel.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LockContention {
    /// For how long was looked.
    pub seconds: f64,
    /// The CPUs that were looked at.
    pub cpus: Vec<u32>,
    /// Who waited, most time first. Waits at the same place of code for locks of one kind are one.
    pub locks: Vec<WaitSite>,
    /// Time lost in all of them, over all CPUs and threads: more than the time looked at where several wait at a time.
    pub total_ns: u64,
    /// Of that, time in which a CPU did nothing else: spinlocks and rwlocks. Who waits for the others sleeps.
    pub spinning_ns: u64,
    /// Waits that ended and are counted.
    pub waits: u64,
    /// Waits that could not be counted, as a table was full or a program was busy with another on its CPU.
    pub missed: u64,
    /// What has to be known to read this, a sentence each.
    pub notes: Vec<String>,
}

/// Waits at one place of code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitSite {
    /// Functions on the way to the lock, innermost first, without the lock's own: `__udp_enqueue_schedule_skb`,
    /// `udp_queue_rcv_one_skb` and so on. Empty where the stack was not to be had.
    pub callers: Vec<String>,
    /// The kind of lock.
    pub lock: LockKind,
    pub waits: u64,
    /// For how long together.
    pub waited_ns: u64,
    pub longest_ns: u64,
    /// Time by the CPU that the wait ended on.
    pub by_cpu_ns: BTreeMap<u32, u64>,
    /// The hot spot that this is, as `id` of [`Spot`](crate::flame::spots::HotSpot); none where it is not known.
    pub spot: Option<String>,
}

/// Kinds of locks, as far as their flags tell them apart (`LCB_F_*` of include/trace/events/lock.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// `spinlock_t`: the CPU does nothing else.
    Spinlock,
    /// `rwlock_t`, to read.
    RwlockRead,
    /// `rwlock_t`, to write.
    RwlockWrite,
    /// A mutex that is first spun for.
    MutexSpin,
    /// A mutex: the thread sleeps.
    Mutex,
    /// A semaphore of readers and writers (`rw_semaphore`, such as `mmap_lock`), to read: the thread sleeps.
    RwsemRead,
    RwsemWrite,
    /// One with a part a CPU, to read.
    PercpuRwsemRead,
    /// One with a part a CPU, to write.
    PercpuRwsemWrite,
    /// A lock of the real-time kinds (`rt_mutex`; all sleeping locks of a PREEMPT_RT kernel).
    Rt,
    /// One without flags: a semaphore, or what a later kernel adds.
    Other,
}

impl LockKind {
    /// By the flags of `contention_begin`.
    fn of(flags: u32) -> Self {
        const SPIN: u32 = 1;
        const READ: u32 = 2;
        const WRITE: u32 = 4;
        const RT: u32 = 8;
        const PERCPU: u32 = 16;
        const MUTEX: u32 = 32;
        let has = |flag| flags & flag != 0;
        if has(RT) {
            return Self::Rt;
        }
        match (has(SPIN), has(MUTEX), has(PERCPU), has(READ), has(WRITE)) {
            (true, true, ..) => Self::MutexSpin,
            (false, true, ..) => Self::Mutex,
            (true, _, _, true, _) => Self::RwlockRead,
            (true, _, _, _, true) => Self::RwlockWrite,
            (true, ..) => Self::Spinlock,
            (_, _, true, true, _) => Self::PercpuRwsemRead,
            (_, _, true, _, true) => Self::PercpuRwsemWrite,
            (_, _, _, true, _) => Self::RwsemRead,
            (_, _, _, _, true) => Self::RwsemWrite,
            _ => Self::Other,
        }
    }

    /// Whether who waits keeps the CPU.
    #[must_use]
    pub fn spins(self) -> bool {
        matches!(self, Self::Spinlock | Self::RwlockRead | Self::RwlockWrite | Self::MutexSpin)
    }

    /// In words, such as `rwlock, to read`.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Spinlock => "spinlock",
            Self::RwlockRead => "rwlock, to read",
            Self::RwlockWrite => "rwlock, to write",
            Self::MutexSpin => "mutex, spinning",
            Self::Mutex => "mutex",
            Self::RwsemRead => "rwsem, to read",
            Self::RwsemWrite => "rwsem, to write",
            Self::PercpuRwsemRead => "per-CPU rwsem, to read",
            Self::PercpuRwsemWrite => "per-CPU rwsem, to write",
            Self::Rt => "rt_mutex",
            Self::Other => "semaphore or other",
        }
    }
}

impl LockContention {
    /// Looks at all locks of the kernel, for this long or until `stop` says so. A wait is counted when it ends.
    ///
    /// # Errors
    /// [`TraceError::NotHere`] before Linux 5.19, [`TraceError::NotPermitted`] without CAP_BPF and CAP_PERFMON.
    pub fn observe(
        host: &Host,
        asked: &ContentionOptions,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        let online = CpuSet::from_list(&host.read(ONLINE)?).map_err(|error| TraceError::Kernel {
            what: WHAT,
            source: std::io::Error::other(format!("{ONLINE}: {error}")),
        })?;
        let wanted = |cpu: &u32| asked.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
        let cpus: Vec<u32> = online.iter().filter(wanted).collect();
        let program = ContentionProgram::start()?;
        let seconds = window::wait(asked.duration, stop).as_secs_f64();
        let counted = program.read()?;
        // After the look, so that modules and BPF programs that came meanwhile have names.
        let symbols = KernelSymbols::kernel(host)?;
        Ok(table::made(&counted, &symbols, cpus, seconds))
    }
}
