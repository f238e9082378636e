//! Threads that serve sockets: where they may run, where they run, and what each system call costs them.

mod audit;
mod counters;
mod cpu_quota;
mod observe;
mod rules;
mod sampling;
mod serving;
mod syscall;
mod task;

use serde::Serialize;

use super::{StageInfo, StageName};
use crate::{CpuSet, Known};

pub use audit::AuditRules;
pub use cpu_quota::CpuQuota;
pub use sampling::{ThreadSampling, ThreadSightings};
pub use task::TaskStat;
pub(crate) use {
    sampling::registered,
    syscall::ThreadActivity,
    task::{allowed_in, watched},
};

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Thread,
    explain: "A thread takes the packet out of its socket by a system call. On the CPU whose softirq put it there, or one \
              that shares a cache with it, that is cheap; on another node it is not. What looks at each system call, \
              as auditing does, is paid here.",
    rules: rules::RULES,
    counters: counters::counters,
};

/// Threads of the services.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadState {
    /// Those that serve a socket of a service, by process and number.
    pub serving: Known<Vec<ServingThread>>,
    /// The processes whose threads were looked at.
    pub processes: Vec<ThreadWatch>,
    /// Auditing of system calls.
    pub audit: Known<AuditState>,
}

/// What could be seen of the threads of a process.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadWatch {
    /// The process.
    pub pid: u32,
    /// How many threads it has.
    pub threads: Known<u32>,
    /// Of how many the kernel told what they do (`/proc/PID/task/TID/syscall`).
    pub calls: Known<u32>,
    /// How many of its threads a signal or a debugger stopped.
    pub stopped: u32,
    /// How many of its threads run only where a CPU has nothing else to do (SCHED_IDLE).
    pub scheduled_idle: u32,
    /// The CPU quota of its cgroup, or of one above it; none without one.
    pub cpu_quota: Option<CpuQuota>,
}

/// A thread that serves sockets.
#[derive(Debug, Clone, Serialize)]
pub struct ServingThread {
    /// Its process.
    pub pid: u32,
    /// Its own id.
    pub tid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Inodes of the sockets it serves.
    pub sockets: Vec<u64>,
    /// How that is known.
    pub how: ServingEvidence,
    /// The CPUs it may run on.
    pub allowed: Known<CpuSet>,
    /// The CPU it ran on last.
    pub last_cpu: Known<u32>,
    /// Time it ran in user mode, in ticks of `USER_HZ`.
    pub user_ticks: Known<u64>,
    /// Time it ran in the kernel.
    pub system_ticks: Known<u64>,
}

/// How it is known which sockets a thread serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServingEvidence {
    /// It was seen in a system call on the socket.
    InCall(String),
    /// It was seen waiting in epoll, select or poll for it.
    Polling(String),
    /// It is the only thread of its process.
    OnlyThread,
    /// It ran, and may serve any socket of its process.
    Assumed,
}

/// Auditing of system calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditState {
    /// 0 off, 1 on, 2 on and locked.
    pub enabled: u32,
    /// The rules that are loaded.
    pub rules: Known<AuditRules>,
}

impl ThreadState {
    /// Threads that serve the socket with this inode.
    pub fn of_socket(&self, inode: u64) -> impl Iterator<Item = &ServingThread> {
        let serving = self.serving.value().map_or(&[][..], Vec::as_slice);
        serving.iter().filter(move |thread| thread.sockets.contains(&inode))
    }
}

impl ServingThread {
    /// Whether it was seen at its sockets, in a call or polling.
    #[must_use]
    pub fn was_seen(&self) -> bool {
        matches!(self.how, ServingEvidence::InCall(_) | ServingEvidence::Polling(_))
    }
}
