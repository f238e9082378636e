//! Threads that serve sockets: their CPUs, and the cost of their system calls.

mod audit;
mod cpu_quota;
mod observe;
pub(super) mod rules;
mod sampling;
mod serving_threads;
mod syscall;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{CpuSet, Known};

pub use crate::netlink::audit::AuditRules;
pub use crate::process::task::TaskStat;
pub use cpu_quota::CpuQuota;
pub use sampling::{ThreadSampling, ThreadSightings};
pub(crate) use serving_threads::TICKS_PER_SECOND;
pub(crate) use {
    crate::process::task::parse_epoll_targets, sampling::registered_sockets, syscall::ThreadActivity,
};

#[derive(Debug, Clone, Serialize)]
pub struct ThreadState {
    /// By process and thread id.
    pub serving: Known<Vec<ServingThread>>,
    pub processes: Vec<ThreadWatch>,
    pub audit: Known<AuditState>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ThreadWatch {
    pub pid: u32,
    pub threads: Known<u32>,
    /// When it was started, since boot; `None` if that cannot be read.
    pub started_seconds: Option<f64>,
    /// Threads whose system call the kernel reported (`/proc/PID/task/TID/syscall`).
    pub calls: Known<u32>,
    /// Threads stopped by a signal or a debugger.
    pub stopped: u32,
    /// Threads that run only on idle CPUs (SCHED_IDLE).
    pub scheduled_idle: u32,
    /// The CPU quota of its cgroup or a parent.
    pub cpu_quota: Known<Option<CpuQuota>>,
    /// User and system time of each thread, serving or not, in ticks of `USER_HZ`.
    #[serde(skip)]
    pub ticks: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ServingThread {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Inodes.
    pub sockets: Vec<u64>,
    pub how: ServingEvidence,
    /// The descriptor of the epoll instance in which it waited while no other thread of its process
    /// did. Threads that take turns in one instance, as those of Go and Tokio, read one at a time.
    pub takes_turns_at: Option<u64>,
    pub allowed: Known<CpuSet>,
    pub last_cpu: Known<u32>,
    /// In ticks of `USER_HZ`.
    pub user_ticks: Known<u64>,
    pub system_ticks: Known<u64>,
}

/// How the sockets of a thread were found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServingEvidence {
    /// Seen in a system call on the socket.
    InCall(String),
    /// Seen waiting in epoll, select or poll for it.
    Polling(String),
    /// The only thread of its process.
    OnlyThread,
    /// It ran, and may serve any socket of its process.
    Assumed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditState {
    /// 0 off, 1 on, 2 on and locked.
    pub enabled: u32,
    pub rules: Known<AuditRules>,
}

impl ThreadState {
    pub fn threads_of_socket(&self, inode: u64) -> impl Iterator<Item = &ServingThread> {
        let serving = self.serving.value().map_or(&[][..], Vec::as_slice);
        serving.iter().filter(move |thread| thread.sockets.contains(&inode))
    }
}

impl ServingThread {
    /// Whether the thread was seen at its sockets, in a call or polling.
    pub fn was_seen(&self) -> bool {
        matches!(self.how, ServingEvidence::InCall(_) | ServingEvidence::Polling(_))
    }
}
