//! CPU time that packet processing takes from each CPU and process.
//!
//! Interrupts and softirqs run on the CPU of their arrival, in the time of the thread that runs
//! there. The kernel charges their time to that thread unless it was built with
//! `CONFIG_IRQ_TIME_ACCOUNTING`, so `top` shows a program as busy while packets keep it from its
//! work. BPF programs at the begin and end of each interrupt, softirq and thread switch record the
//! current context; time is charged once, to the innermost context.
//!
//! With many short softirqs these programs would use some percent of a CPU. They are then attached
//! only part of the time, in windows, from which the rest is extrapolated; coverage and uncertainty
//! are in the result. [`CostSession::exact`] attaches them permanently.
//!
//! Not measured: entry and exit of an interrupt outside its tracepoints, cold caches after packets,
//! and hypervisor time. [`calibrate`] measures the loss from the victim's side without tracing, for
//! comparison.

mod account;
mod accounted_times;
pub mod calibrate;
pub(crate) mod cgroup;
mod compare;
mod cost_session;
mod cost_tables;
mod pace;
mod path;
mod result;
mod sums;
mod tracer;
mod untraced_time;
mod windows;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

pub use compare::{ComparedFigure, CostComparison};
pub use cost_session::CostSession;
pub use result::{CostResult, VictimGroup, VictimGrouping};
pub use untraced_time::{UntracedEstimate, UntracedIrq};

/// The point at which a packet is counted once: its `sk_buff` is handed to the network stack of
/// this kernel for the first time, before GRO and RPS, counted as its segments; a frame that an XDP
/// program keeps, at the end of its poll.
pub const COUNTING_POINT: &str = "host-entry";

/// The operation in an error message.
const WHAT: &str = "measuring the CPU time of packets";

/// CPU time of packet processing by CPU, victim and device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    pub seconds: f64,
    /// Where `entered_packets` are counted: [`COUNTING_POINT`]. Unknown in results of version 0.1.
    #[serde(default)]
    pub counting_point: Known<String>,
    /// By number.
    pub cpus: Vec<CpuCost>,
    /// Threads that ran, largest loss first, without threads that process packets themselves.
    pub victims: Vec<CostVictim>,
    /// Devices with packets, most time first.
    pub devices: Vec<DeviceCost>,
    /// Paths of packets through this host, most time first; `None` if they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<PathCost>>,
    /// Interrupt time outside the tracepoints, included in the other figures. Unknown if there were
    /// too few interrupts to matter, or it cannot be measured.
    #[serde(default)]
    pub untraced_irq: Known<UntracedIrq>,
    /// The cost of the measurement.
    pub own: OwnTime,
    /// CPU time of packet processing per packet in consecutive parts of the measurement, ns. Empty with
    /// [`CostSession::exact`], which does not divide it.
    #[serde(default)]
    pub packets_ns_a_packet_samples: Vec<f64>,
    /// Limits of the measurement, for the reader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// CPU time by context. The sum of the parts is the elapsed time by the clock (`elapsed_ns`),
/// unless something was missed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    pub cpu: u32,
    /// Between the first and the last reading of the CPU, by the clock.
    pub elapsed_ns: u64,
    /// The counted part of `elapsed_ns`. The other values are extrapolated from it, each stretch of
    /// constant pace by itself.
    #[serde(default)]
    pub traced_ns: u64,
    /// Uncertainty of the share of packets, because not all of the time was counted, 0 to 1: half
    /// of the 95 % interval of the windows' shares. Unknown with fewer than four.
    #[serde(default)]
    pub packets_share_doubt: Known<f64>,
    /// Without interrupts and softirqs.
    pub idle_ns: u64,
    /// Own time of threads, without those that process packets.
    pub tasks_ns: u64,
    /// NET_RX in any thread, and NAPI threads.
    pub net_rx_ns: u64,
    pub net_tx_ns: u64,
    /// Timers, RCU, block devices and other softirqs.
    pub other_softirq_ns: u64,
    /// Interrupts of network devices, and those between CPUs for packets (RPS).
    pub nic_irq_ns: u64,
    /// Other interrupts with tracepoints: all of devices, and on x86-64 and Arm the timer's and
    /// those between CPUs.
    pub other_irq_ns: u64,
    /// Time outside the tracepoints of interrupts that came in the time of threads and in idle
    /// time, by [`CostReport::untraced_irq`]. Part of `nic_irq_ns` and `other_irq_ns`.
    #[serde(default)]
    pub untraced_irq_ns: u64,
    /// Uncertainty of that.
    #[serde(default)]
    pub untraced_irq_doubt_ns: u64,
    /// NET_RX and NET_TX in ksoftirqd.
    pub in_ksoftirqd_ns: u64,
    /// NET_RX in threads of NAPI, of its backlog or of a cpumap, outside of softirqs.
    pub in_threads_ns: u64,
    /// NET_RX, NET_TX and packet interrupts during idle time, so not at the cost of another task.
    pub from_idle_ns: u64,
    /// Interrupts with a tracepoint.
    #[serde(default)]
    pub interrupts: u64,
    /// Runs of NET_RX.
    pub rx_runs: u64,
    /// Polls of devices and backlog, in these runs or by threads.
    pub polls: u64,
    /// Packets of these polls, counted once per poll: a packet that is bridged to a veth or handed
    /// on by RPS counts again. Without transmit completions.
    pub packets: u64,
    /// Packets that entered the host on this CPU, each counted once, at
    /// [`CostReport::counting_point`].
    #[serde(default)]
    pub entered_packets: u64,
    /// Runs of the measurement's programs.
    pub own_runs: u64,
    /// Runs of NET_RX that stopped with work left, because budget or time was used up
    /// (`time_squeeze` of softnet_stat).
    pub time_squeezes: Known<u64>,
    /// Taken by the hypervisor, in ticks of `/proc/stat`. Included in the other values, because the
    /// context did not change.
    pub steal_ns: Known<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CostVictim {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// In the unified hierarchy.
    pub cgroup_id: u64,
    /// As in `/proc/PID/cgroup`; if that is the root, the longest path in hierarchies of version 1.
    pub cgroup: Known<String>,
    /// Time it was scheduled, including time taken from it.
    pub on_cpu_ns: u64,
    /// The part of that taken by packets: NET_RX, NET_TX, packet interrupts.
    pub taken_ns: u64,
    /// The part of `taken_ns` at the end of its own calls, such as the receive side of a packet it
    /// sent: no interrupt came within 2 us before. Unknown if interrupts between CPUs are not
    /// visible.
    pub taken_in_own_calls_ns: Known<u64>,
    /// The part taken by other softirqs and interrupts.
    pub taken_other_ns: u64,
    /// The part of `taken_ns` and `taken_other_ns` outside the tracepoints of interrupts, by
    /// [`CostReport::untraced_irq`].
    #[serde(default)]
    pub untraced_ns: u64,
    /// Time of ksoftirqd and NAPI threads on its CPU after they preempted it. Not in `on_cpu_ns`.
    #[serde(default)]
    pub displaced_ns: u64,
    /// As top shows it: user and system time of `/proc/PID/task/TID/stat`, in hundredths of a
    /// second, over the same time. Unknown for threads that started or ended meanwhile.
    pub accounted_ns: Known<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceCost {
    /// `backlog` for packets of software: loopback, RPS, most tunnels.
    pub name: String,
    /// In its network namespace; zero for the backlog.
    pub ifindex: u32,
    /// Inode of its network namespace; zero for the backlog.
    pub network_namespace: u32,
    pub polls: u64,
    /// Polls by NAPI threads.
    pub threaded_polls: u64,
    /// Polls by busy polling processes (`SO_BUSY_POLL`). Their time is not in `taken_ns`.
    pub busy_polls: u64,
    /// Without transmit completions.
    pub packets: u64,
    /// Polls that used up their budget.
    pub budget_exhausted: u64,
    /// Time of these polls: all work for the packets in NET_RX, up to the socket.
    pub taken_ns: u64,
}

/// Packets that came in by one device, and left by another or stayed on this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathCost {
    /// The device where they came in.
    pub ingress: String,
    /// The last device that sent them in the same softirq; `None` if they stayed.
    pub egress: Option<String>,
    /// Inode of the network namespace of the ingress device.
    pub network_namespace: u32,
    /// The virtual machine or container at one end, if it is known.
    pub owner: Option<String>,
    /// Counted at [`CostReport::counting_point`]; zero for a path that only goes on with packets that came in by another
    /// device.
    pub packets: u64,
    /// NET_RX, from the driver's poll to the last device or the socket, without the programs of the
    /// measurement. For a container, its side of the veth pair is included.
    pub taken_ns: u64,
    /// Time of the measurement's programs for these packets; zero if it is unknown.
    pub own_ns: u64,
    /// Time of the vhost threads of the virtual machine, shared among its paths by packets.
    pub vhost_ns: u64,
}

/// The cost of the measurement, included in all other values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnTime {
    /// Program runs.
    pub runs: u64,
    /// Time per run: measured by the kernel for a part of the time (`BPF_ENABLE_STATS`), without
    /// its clock, plus the call overhead measured at the start. Does not include cache effects.
    pub ns_a_run: Known<f64>,
    /// CPU time of the measuring process, including attaching and detaching.
    #[serde(default)]
    pub process_ns: u64,
    /// Share of the time of all observed CPUs, 0 to 1, of programs and process.
    pub share: Known<f64>,
    /// Share of the programs on the CPU where they ran most.
    pub highest_share: Known<f64>,
}
