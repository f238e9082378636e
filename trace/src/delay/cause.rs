//! Why a request was slow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::{DelayRecord, DelayStage};
use super::timeline::{CpuWork, ThreadState, WindowTimeline};

/// What a request waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum DelayCause {
    /// The server's thread slept by its own call, and not for this request.
    ServerSlept {
        thread: String,
    },
    /// The server's thread ran: this request's work, or that of requests before.
    ServerRan {
        thread: String,
    },
    /// Another thread had the CPU, by its name.
    OtherThread {
        thread: String,
    },
    /// NET_RX: packets before this one.
    Packets,
    /// A softirq of another kind, by its name in `/proc/softirqs`.
    OtherSoftirq {
        name: String,
    },
    Interrupt,
    /// The CPU was idle: it woke up, or a CPU limit held the thread back.
    IdleCpu,
    /// The queueing discipline of the interface.
    Qdisc {
        interface: String,
    },
    /// It began before the window.
    NotSeen,
}

// Of include/linux/interrupt.h, Linux 6.18, as in /proc/softirqs.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
pub(super) const NET_RX: u16 = 3;

pub(super) fn softirq_name(vector: u16) -> &'static str {
    SOFTIRQS.get(usize::from(vector)).copied().unwrap_or("unknown")
}

#[derive(Debug)]
pub(super) struct CauseFinder<'w> {
    pub(super) timeline: &'w WindowTimeline,
    /// Names by index.
    pub(super) interfaces: &'w BTreeMap<u32, String>,
}

impl CauseFinder<'_> {
    pub(super) fn cause(&self, record: &DelayRecord, stage: DelayStage) -> DelayCause {
        let (from, to) = (record.points[stage as usize], record.points[stage as usize + 1]);
        let mut sums: BTreeMap<DelayCause, u64> = BTreeMap::new();
        match stage {
            DelayStage::Softirq | DelayStage::Poll | DelayStage::Ip => {
                self.add_cpu(&mut sums, record.receive_cpu, None, from, to);
            }
            DelayStage::WakeUp | DelayStage::Read => self.add_thread(&mut sums, record.reader, from, to),
            DelayStage::Server => self.add_thread(&mut sums, record.replier, from, to),
            DelayStage::Transmit => {
                let fallback_name = || format!("interface {}", record.device);
                let interface = self.interfaces.get(&record.device).cloned().unwrap_or_else(fallback_name);
                return DelayCause::Qdisc { interface };
            }
        }
        let longest = sums.into_iter().max_by_key(|(_, ns)| *ns);
        longest.map_or(DelayCause::NotSeen, |(cause, _)| cause)
    }

    fn add_thread(&self, sums: &mut BTreeMap<DelayCause, u64>, thread: u32, from: u64, to: u64) {
        for (begin, end, state) in self.timeline.states(thread, from, to) {
            match state {
                ThreadState::Running { cpu } => self.add_cpu(sums, cpu, Some(thread), begin, end),
                ThreadState::Runnable => {
                    if let Some(cpu) = self.timeline.next_cpu(thread, begin) {
                        self.add_cpu(sums, cpu, Some(thread), begin, end);
                    }
                }
                ThreadState::Sleeping => {
                    let cause = DelayCause::ServerSlept { thread: self.name(thread) };
                    *sums.entry(cause).or_default() += end - begin;
                }
            }
        }
    }

    /// `server`: the thread that counts as the server if it runs.
    fn add_cpu(
        &self,
        sums: &mut BTreeMap<DelayCause, u64>,
        cpu: u32,
        server: Option<u32>,
        from: u64,
        to: u64,
    ) {
        for (work, ns) in self.timeline.work(cpu, from, to) {
            *sums.entry(self.cause_of(work, server)).or_default() += ns;
        }
    }

    fn cause_of(&self, work: CpuWork, server: Option<u32>) -> DelayCause {
        match work {
            CpuWork::Unknown => DelayCause::NotSeen,
            CpuWork::Irq => DelayCause::Interrupt,
            CpuWork::Softirq(NET_RX) => DelayCause::Packets,
            CpuWork::Softirq(vector) => DelayCause::OtherSoftirq { name: softirq_name(vector).to_owned() },
            CpuWork::Thread(0) => DelayCause::IdleCpu,
            CpuWork::Thread(thread) => {
                let name = self.name(thread);
                if server == Some(thread) {
                    DelayCause::ServerRan { thread: name }
                } else if name.starts_with("napi/") || name.starts_with("ksoftirqd/") {
                    DelayCause::Packets
                } else {
                    DelayCause::OtherThread { thread: name }
                }
            }
        }
    }

    fn name(&self, thread: u32) -> String {
        self.timeline.names.get(&thread).cloned().unwrap_or_else(|| format!("thread {thread}"))
    }
}
