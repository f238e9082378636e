//! Time lost to contention of kernel locks, by lock and caller.
//!
//! When a lock is taken, the kernel reports the begin and end of the wait for it (tracepoints
//! `contention_begin` and `contention_end` of include/trace/events/lock.h, since Linux 5.19); a
//! free lock costs nothing here. `bpf/contention.bpf.c` adds the times up in the kernel.

mod callers;
mod program;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_host::Host;
use serde::{Deserialize, Serialize};

use crate::TraceError;
use crate::host_facts::online_cpus;
use crate::symbols::KernelSymbols;
use crate::window;
use program::ContentionProgram;

/// The operation in an error message.
const WHAT: &str = "looking at waits for locks";

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LockContention {
    pub seconds: f64,
    /// The observed CPUs.
    pub cpus: Vec<u32>,
    /// Longest first. Waits in the same code for locks of one kind are one item.
    pub locks: Vec<WaitSite>,
    /// Over all CPUs and threads: more than the observation if several wait at the same time.
    pub total_ns: u64,
    /// The part in which a CPU was busy waiting: spinlocks and rwlocks. Waiters for other locks
    /// sleep.
    pub spinning_ns: u64,
    /// Number of completed waits.
    pub waits: u64,
    /// Waits that were not counted, because a table was full or another program ran on the CPU.
    pub missed: u64,
    /// One sentence each.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitSite {
    /// Callers of the lock, innermost first, without the lock's own functions:
    /// `__udp_enqueue_schedule_skb`, `udp_queue_rcv_one_skb` and so on. Empty without a stack.
    pub callers: Vec<String>,
    pub lock: LockKind,
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_ns: u64,
    /// By the CPU on which the wait ended.
    pub by_cpu_ns: BTreeMap<u32, u64>,
    /// The `id` of the matching [`HotSpot`](crate::flame::spots::HotSpot), if there is one.
    pub spot: Option<String>,
}

/// Kinds of locks, as their flags distinguish them (`LCB_F_*` of include/trace/events/lock.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// `spinlock_t`: the CPU waits busily.
    Spinlock,
    /// `rwlock_t`, to read.
    RwlockRead,
    /// `rwlock_t`, to write.
    RwlockWrite,
    /// A mutex in its spinning phase.
    MutexSpin,
    /// A mutex: the thread sleeps.
    Mutex,
    /// `rw_semaphore`, such as `mmap_lock`, to read: the thread sleeps.
    RwsemRead,
    RwsemWrite,
    /// `percpu_rw_semaphore`, to read.
    PercpuRwsemRead,
    /// `percpu_rw_semaphore`, to write.
    PercpuRwsemWrite,
    /// `rt_mutex`, and all sleeping locks of a PREEMPT_RT kernel.
    Rt,
    /// No flags: a semaphore, or a kind of a later kernel.
    Other,
}

impl LockKind {
    /// From the flags of `contention_begin`.
    fn from_flags(flags: u32) -> Self {
        const SPIN: u32 = 1;
        const READ: u32 = 2;
        const WRITE: u32 = 4;
        const RT: u32 = 8;
        const PERCPU: u32 = 16;
        const MUTEX: u32 = 32;
        let has_flag = |flag| flags & flag != 0;
        if has_flag(RT) {
            return Self::Rt;
        }
        match (has_flag(SPIN), has_flag(MUTEX), has_flag(PERCPU), has_flag(READ), has_flag(WRITE)) {
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

    /// Whether the waiter keeps the CPU.
    pub fn spins(self) -> bool {
        matches!(self, Self::Spinlock | Self::RwlockRead | Self::RwlockWrite | Self::MutexSpin)
    }
}

impl LockContention {
    /// Observes all kernel locks on these CPUs, or on all, until the time is over or `stop` returns
    /// true. A wait counts when it ends.
    ///
    /// # Errors
    /// [`TraceError::NotHere`] before Linux 5.19, [`TraceError::NotPermitted`] without CAP_BPF and
    /// CAP_PERFMON.
    pub fn observe(
        host: &Host,
        duration: Duration,
        cpus: Option<&[u32]>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        let is_selected = |cpu: &u32| cpus.is_none_or(|cpus| cpus.contains(cpu));
        let cpus: Vec<u32> = online_cpus(host)?.iter().filter(is_selected).collect();
        let program = ContentionProgram::start()?;
        let seconds = window::wait(duration, stop).as_secs_f64();
        let counts = program.read()?;
        // After the observation, so that modules and BPF programs loaded meanwhile have names.
        let symbols = KernelSymbols::kernel(host)?;
        Ok(table::lock_report(&counts, &symbols, cpus, seconds))
    }
}
