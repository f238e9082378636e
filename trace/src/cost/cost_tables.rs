//! The tables of bpf/cost.h.

use std::collections::BTreeMap;

use crate::sys::{KernelName, kernel_layout};

// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

// `struct totals`, in nanoseconds.
//
// A value may be negative for a moment if an interrupt came during a read; the next read
// compensates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct CpuTotals {
    pub(super) net_rx: i64,
    pub(super) net_tx: i64,
    pub(super) other_softirq: i64,
    pub(super) packet_irq: i64,
    pub(super) other_irq: i64,
    pub(super) own_call: i64,
    /// Interrupts outside of softirqs.
    pub(super) packet_irqs: InterruptCounts,
    pub(super) other_irqs: InterruptCounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct InterruptCounts {
    pub(super) by_timer: i64,
    pub(super) by_cpu: i64,
    pub(super) by_device: i64,
}

/// `struct cpu_reading`: all counters of a CPU at a reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct CpuReading {
    pub(super) at: i64,
    pub(super) totals: CpuTotals,
    pub(super) idle: i64,
    pub(super) from_idle: i64,
    pub(super) tasks: i64,
    pub(super) packet_threads: i64,
    pub(super) rx_runs: i64,
    pub(super) polls: i64,
    pub(super) packets: i64,
    pub(super) events: i64,
    pub(super) interrupts: i64,
    pub(super) missed: i64,
    pub(super) irq_events: i64,
    /// Packets, counted where they enter the host.
    pub(super) entered: i64,
}

/// `struct thread`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(super) struct ThreadOn {
    pub(super) tid: u32,
    pub(super) cpu: u32,
}

/// `struct turns`: all turns of a thread on a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct ThreadTurns {
    pub(super) on_cpu: i64,
    pub(super) taken: CpuTotals,
    /// Time of packet processing threads while this thread waited for them.
    pub(super) displaced: i64,
    pub(super) cgroup: u64,
    pub(super) comm: KernelName,
    pub(super) pid: u32,
    /// `PF_*`.
    pub(super) flags: u32,
}

/// `struct place`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(super) struct PolledOn {
    pub(super) ifindex: u32,
    pub(super) network: u32,
    pub(super) cpu: u32,
    /// 0 for a backlog.
    pub(super) is_device: u32,
}

/// `struct polled`: all polls of a device on a CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct DevicePolls {
    pub(super) ns: i64,
    pub(super) polls: i64,
    pub(super) threaded: i64,
    pub(super) busy: i64,
    pub(super) packets: i64,
    pub(super) exhausted: i64,
    pub(super) name: KernelName,
}

/// `struct path`: by the numbers of devices, `out` is zero for packets that stayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(super) struct PathOn {
    pub(super) ingress: u32,
    pub(super) egress: u32,
    /// Of the ingress device.
    pub(super) network: u32,
    pub(super) cpu: u32,
    /// 1 if its packets came in for the first time.
    pub(super) is_entry: u32,
    pub(super) unused: u32,
}

/// `struct path_cost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct PathTime {
    pub(super) ns: i64,
    pub(super) packets: i64,
    /// Runs of the measurement's programs in this time.
    pub(super) events: i64,
}

/// Counters per thread, device and path, which are read less often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ThreadTables {
    pub(super) threads: BTreeMap<ThreadOn, ThreadTurns>,
    pub(super) devices: BTreeMap<PolledOn, DevicePolls>,
    pub(super) paths: BTreeMap<PathOn, PathTime>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CountedCost {
    pub(super) cpus: BTreeMap<u32, CountedSpan>,
    pub(super) tables: ThreadTables,
}

/// The counted part of a CPU's time, from which the rest is extrapolated.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CountedSpan {
    pub(super) elapsed_ns: u64,
    // The counted part, ns.
    pub(super) traced_ns: u64,
    /// Extrapolated to the elapsed time.
    pub(super) reading: CpuReading,
    /// Share of packets in each window, if not all of the time was counted.
    pub(super) shares: Vec<f64>,
}

/// Arithmetic on the numbers of a structure. Names, ids and times are those of `self`.
pub(super) trait Counters: Sized {
    fn combine_counters(&self, other: &Self, combine: &dyn Fn(i64, i64) -> i64) -> Self;

    fn scaled(&self, factor: f64) -> Self {
        self.combine_counters(self, &|sum, _| scaled(sum, factor))
    }

    fn minus(&self, before: &Self) -> Self {
        self.combine_counters(before, &|now, before| now - before)
    }

    /// Names, ids and times become those of `later`.
    fn add(&mut self, later: &Self) {
        *self = later.combine_counters(self, &|later, sum| sum + later);
    }
}

/// `plain` fields are numbers, `nested` fields implement [`Counters`].
macro_rules! counters {
    ($type:ident { $($plain:ident),* } { $($nested:ident),* }) => {
        impl Counters for $type {
            fn combine_counters(&self, other: &Self, combine: &dyn Fn(i64, i64) -> i64) -> Self {
                let mut result = *self;
                $(result.$plain = combine(self.$plain, other.$plain);)*
                $(result.$nested = self.$nested.combine_counters(&other.$nested, combine);)*
                result
            }
        }
    };
}

counters!(InterruptCounts { by_timer, by_cpu, by_device } {});
counters!(CpuTotals { net_rx, net_tx, other_softirq, packet_irq, other_irq, own_call } { packet_irqs, other_irqs });
counters!(CpuReading {
    idle, from_idle, tasks, packet_threads, rx_runs, polls, packets, events, interrupts, missed, irq_events,
    entered
} { totals });
counters!(ThreadTurns { on_cpu, displaced } { taken });
counters!(PathTime { ns, packets, events } {});
counters!(DevicePolls { ns, polls, threaded, busy, packets, exhausted } {});

kernel_layout!(CpuReading: 200, ThreadOn: 8, ThreadTurns: 144);
kernel_layout!(PolledOn: 16, DevicePolls: 64, PathOn: 24, PathTime: 24);

impl CpuTotals {
    pub(super) fn packets(&self) -> i64 {
        self.net_rx + self.net_tx + self.packet_irq
    }

    pub(super) fn others(&self) -> i64 {
        self.other_softirq + self.other_irq
    }
}

impl InterruptCounts {
    pub(super) fn sum(self) -> i64 {
        self.by_timer + self.by_cpu + self.by_device
    }
}

impl CpuReading {
    /// Traced time of packet processing.
    pub(super) fn packets_ns(&self) -> i64 {
        self.totals.packets() + self.packet_threads
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self { at: self.at - before.at, ..self.minus(before) }
    }
}

impl ThreadTurns {
    pub(super) fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

fn scaled(sum: i64, factor: f64) -> i64 {
    // If everything was counted, sums beyond the mantissa stay exact.
    if factor == 1.0 { sum } else { (sum as f64 * factor).round() as i64 }
}

impl ThreadTables {
    /// The difference to an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            threads: growth(&self.threads, &before.threads, |turns| turns.on_cpu),
            devices: growth(&self.devices, &before.devices, |polled| polled.polls),
            paths: growth(&self.paths, &before.paths, |path| path.ns),
        }
    }

    /// Removes the entries that equal those of an earlier reading, and returns them.
    pub(super) fn take_idle(&mut self, before: &Self) -> Self {
        Self {
            threads: take_equal(&mut self.threads, &before.threads),
            devices: take_equal(&mut self.devices, &before.devices),
            paths: take_equal(&mut self.paths, &before.paths),
        }
    }

    /// Adds counters of a part of the time, multiplied by `scale` of the CPU.
    pub(super) fn add(&mut self, counters: &Self, scale: impl Fn(u32) -> f64) {
        for (key, turns) in &counters.threads {
            self.threads.entry(*key).or_default().add(&turns.scaled(scale(key.cpu)));
        }
        for (key, polled) in &counters.devices {
            self.devices.entry(*key).or_default().add(&polled.scaled(scale(key.cpu)));
        }
        for (key, path) in &counters.paths {
            self.paths.entry(*key).or_default().add(&path.scaled(scale(key.cpu)));
        }
    }
}

fn take_equal<K: Copy + Ord, V: Copy + PartialEq>(
    now: &mut BTreeMap<K, V>,
    before: &BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    now.extract_if(.., |key, value| before.get(key) == Some(&*value)).collect()
}

fn growth<K: Copy + Ord, V: Copy + Counters>(
    now: &BTreeMap<K, V>,
    before: &BTreeMap<K, V>,
    count: impl Fn(&V) -> i64,
) -> BTreeMap<K, V> {
    let change_of = |key, now: &V| before.get(key).map_or(*now, |before| now.minus(before));
    let changes = now.iter().map(|(key, now)| (*key, change_of(key, now)));
    changes.filter(|(_, change)| count(change) > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_that_did_not_change_are_idle() {
        let tables = |threads: &[(u32, i64)]| {
            let turns = |(tid, on_cpu): &(u32, i64)| {
                (ThreadOn { tid: *tid, cpu: 0 }, ThreadTurns { on_cpu: *on_cpu, ..Default::default() })
            };
            ThreadTables { threads: threads.iter().map(turns).collect(), ..Default::default() }
        };
        let before = tables(&[(1, 10), (2, 20)]);
        let mut now = tables(&[(1, 10), (2, 21), (3, 5)]);
        assert_eq!(now.take_idle(&before), tables(&[(1, 10)]));
        assert_eq!(now, tables(&[(2, 21), (3, 5)]));
        // Thread 1 counts from zero when it runs again.
        assert_eq!(tables(&[(1, 4), (2, 21), (3, 5)]).since(&now), tables(&[(1, 4)]));
    }
}
