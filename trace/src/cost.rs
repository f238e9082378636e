//! What packet processing takes from each CPU and each process.
//!
//! Interrupts and softirqs run on whatever CPU they come to, in the time of the thread that happens to run there. The
//! kernel counts that time as the thread's own unless it was built to tell interrupts apart (`CONFIG_IRQ_TIME_ACCOUNTING`),
//! so that `top` shows a program busy which packets keep from its work. Here BPF programs at the beginning and end of each
//! interrupt, softirq and turn of a thread say who had the CPU: time is charged to the innermost of them, once.
//!
//! Where softirqs are short and many, these programs would take some per cent of a CPU. They are then attached for a part of the
//! time only, in windows, and what they see there stands for all of it: how much was seen, and how far it may be off, is in the
//! result. [`CostSession::exact`] has them attached always.
//!
//! What is not seen: the way into an interrupt up to its tracepoint and the way out of it, caches that packets left cold,
//! and what a hypervisor takes. [`calibrate`] measures the loss from the victim's side, with no tracing at all, to compare.

mod account;
mod accounted;
pub mod calibrate;
mod call;
mod cgroup;
mod counted;
mod look;
mod pace;
mod sums;
mod tracer;
mod untraced;
mod windows;

use linerate_host::{CpuSet, Known};
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub use look::CostSession;
pub use untraced::{UntracedEstimate, UntracedIrq};

pub(crate) fn any_cgroup(text: &str) {
    drop(cgroup::of(text));
}

/// Where a packet is counted, once: where its `sk_buff` is handed to the network stack of this kernel for the first time,
/// before GRO and RPS, as many as it has segments; a frame that an XDP program keeps, at the end of its poll.
pub const COUNTING_POINT: &str = "host-entry";

/// What is done, for errors.
const WHAT: &str = "telling what packets take";

/// What to look at.
#[derive(Debug, Clone)]
pub struct CostOptions {
    pub duration: Duration,
    /// These CPUs only; none: all that are online.
    pub cpus: Option<CpuSet>,
}

/// What packet processing took over a time, by CPU, by victim and by device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    /// For how long it was looked at, in seconds.
    pub seconds: f64,
    /// Where `entered_packets` are counted: [`COUNTING_POINT`]. Unknown of results of version 0.1, which have none.
    #[serde(default)]
    pub counting_point: Known<String>,
    /// An item a CPU, in order of number.
    pub cpus: Vec<CpuCost>,
    /// An item a thread that ran, those that lost most first. Threads that process packets themselves are not among them.
    pub victims: Vec<CostVictim>,
    /// An item a device whose packets were processed, those that took most first.
    pub devices: Vec<DeviceCost>,
    /// What interrupts take beside what their tracepoints see, which is part of the other figures. Unknown where so few
    /// came that it does not matter, and where it cannot be measured.
    #[serde(default)]
    pub untraced_irq: Known<UntracedIrq>,
    /// What this look itself took.
    pub own: OwnTime,
    /// What a reader should know: what could not be seen, or was left out.
    pub notes: Vec<String>,
}

/// Where a CPU's time went. The parts are counted apart by what ran; their sum is the time that passed, which the clock
/// says (`elapsed_ns`), unless something was missed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    pub cpu: u32,
    /// Time that passed between the first and the last time the CPU was asked, by the clock.
    pub elapsed_ns: u64,
    /// Of `elapsed_ns`, the part in which it was counted. The other parts are brought up from it to all of the time, that of
    /// each stretch at the same pace by itself.
    #[serde(default)]
    pub traced_ns: u64,
    /// By how much the share of packets may be off, up or down, since not all of the time was counted, 0 to 1: half of the
    /// interval of 95 per cent that the windows' own shares tell. Unknown where there were fewer than four.
    #[serde(default)]
    pub packets_share_doubt: Known<f64>,
    /// Idle time, without what interrupts and softirqs took of it.
    pub idle_ns: u64,
    /// Time that threads had for themselves, threads that process packets excepted.
    pub tasks_ns: u64,
    /// NET_RX, by whomever it was run, and threads of NAPI.
    pub net_rx_ns: u64,
    pub net_tx_ns: u64,
    /// Timers, RCU, block devices and other softirqs.
    pub other_softirq_ns: u64,
    /// Interrupts of network devices, and those that other CPUs sent to have packets processed here (RPS).
    pub nic_irq_ns: u64,
    /// Other interrupts, as far as they have a tracepoint: all of devices, and on x86-64 and Arm the timer's and those
    /// between CPUs.
    pub other_irq_ns: u64,
    /// Of interrupts that came in the time of threads, the part that their tracepoints do not see, by
    /// [`CostReport::untraced_irq`]. It is part of `nic_irq_ns` and `other_irq_ns`.
    #[serde(default)]
    pub untraced_irq_ns: u64,
    /// By how much that may be off, up or down.
    #[serde(default)]
    pub untraced_irq_doubt_ns: u64,
    /// Of NET_RX and NET_TX, what ksoftirqd ran.
    pub in_ksoftirqd_ns: u64,
    /// Of NET_RX, what threads of NAPI, of its backlog or of a cpumap ran outside of softirqs.
    pub in_threads_ns: u64,
    /// Of NET_RX, NET_TX and interrupts for packets, what fell on idle time and so was taken from nobody.
    pub from_idle_ns: u64,
    /// Interrupts, as far as they have a tracepoint.
    #[serde(default)]
    pub interrupts: u64,
    /// Runs of NET_RX.
    pub rx_runs: u64,
    /// Polls of devices and backlog, within these runs or by threads.
    pub polls: u64,
    /// Packets these polls processed: one that is bridged to a veth, or that RPS hands on, counts with each poll. Those of
    /// transmit completions are not among them.
    pub packets: u64,
    /// Packets that entered the host on this CPU, each counted once, at [`CostReport::counting_point`].
    #[serde(default)]
    pub entered_packets: u64,
    /// How often a program of this look ran.
    pub own_runs: u64,
    /// Runs of NET_RX that stopped with work left, for want of budget or time (`time_squeeze` of softnet_stat).
    pub time_squeezes: Known<u64>,
    /// Taken by the hypervisor, by the kernel's count in ticks (`/proc/stat`). It is part of the other figures, since who had
    /// the CPU did not change.
    pub steal_ns: Known<u64>,
}

/// A thread that ran, and what was taken from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostVictim {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Number of its cgroup in the unified hierarchy.
    pub cgroup_id: u64,
    /// Path of that cgroup, as `/proc/PID/cgroup` has it; where it is the root, the longest path in hierarchies of version 1.
    pub cgroup: Known<String>,
    /// Time it was scheduled: what it had and what was taken.
    pub on_cpu_ns: u64,
    /// Of it, what packet processing took: NET_RX, NET_TX, interrupts for packets.
    pub taken_ns: u64,
    /// Of `taken_ns`, what it ran at the end of a call of its own, such as the far end of a packet it sent itself. That is
    /// so where no interrupt came just before (within 2 us). Unknown where interrupts between CPUs cannot be seen.
    pub taken_in_own_calls_ns: Known<u64>,
    /// Of it, what other softirqs and interrupts took.
    pub taken_other_ns: u64,
    /// Of `taken_ns` and `taken_other_ns`, what tracepoints do not see of interrupts, by [`CostReport::untraced_irq`].
    #[serde(default)]
    pub untraced_ns: u64,
    /// Time that ksoftirqd and threads of NAPI had on its CPU after they had displaced it, while it could have run on. It is
    /// not in `on_cpu_ns`.
    #[serde(default)]
    pub displaced_ns: u64,
    /// What top says it had: user and system time of `/proc/PID/task/TID/stat`, which counts hundredths of a second, over the
    /// same time. Unknown for threads that began or ended meanwhile.
    pub accounted_ns: Known<u64>,
}

/// What a device's packets took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceCost {
    /// Its name; `backlog` where packets come by software: loopback, RPS, most tunnels.
    pub name: String,
    /// Its number in its network namespace; zero for the backlog.
    pub ifindex: u32,
    /// Inode of its network namespace; zero for the backlog.
    pub network_namespace: u32,
    pub polls: u64,
    /// Of them, by threads of NAPI.
    pub threaded_polls: u64,
    /// Of them, by processes that waited for packets busily (`SO_BUSY_POLL`). Their time is not in `taken_ns`.
    pub busy_polls: u64,
    /// Packets. Those of transmit completions are not among them.
    pub packets: u64,
    /// Polls that found as much as they were allowed to take.
    pub budget_exhausted: u64,
    /// Time of these polls: all that was done for the packets in NET_RX, up to the socket.
    pub taken_ns: u64,
}

/// What looking took, which is part of all other figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnTime {
    /// How often a program ran.
    pub runs: u64,
    /// What a run took: as the kernel measured it in a part of the time (`BPF_ENABLE_STATS`), without its clock, and the way to
    /// a program and back, as measured when the look began. What it displaced from caches elsewhere is not in it.
    pub ns_a_run: Known<f64>,
    /// What the process that looks took itself of all CPUs, with attaching and detaching.
    #[serde(default)]
    pub process_ns: u64,
    /// Share of the time of all CPUs looked at, 0 to 1, of programs and process.
    pub share: Known<f64>,
    /// Of programs alone, of the CPU where they ran most.
    pub highest_share: Known<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VictimGroup {
    pub threads: usize,
    /// As of a [`CostVictim`].
    pub on_cpu_ns: u64,
    /// As of a [`CostVictim`].
    pub taken_ns: u64,
    /// As of a [`CostVictim`].
    pub taken_in_own_calls_ns: u64,
    /// As of a [`CostVictim`].
    pub taken_other_ns: u64,
    /// As of a [`CostVictim`].
    pub displaced_ns: u64,
    /// As of a [`CostVictim`]: of those of which it is known.
    pub accounted_ns: u64,
    /// Of how many it is not known.
    pub unaccounted_threads: usize,
}
