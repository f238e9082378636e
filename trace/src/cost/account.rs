//! From counters to CPUs, victims and devices.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use linerate_host::Known;
use linerate_host::stage::machine::CpuTimes;
use linerate_host::stage::softirq::SoftnetCpu;

use super::cost_tables::{
    CountedCost, CountedSpan, Counters, DevicePolls, InterruptCounts, PolledOn, ThreadOn, ThreadTurns,
};
use super::untraced_time::{UntracedIrq, UntracedTime};
use super::{COUNTING_POINT, CostReport, CostVictim, CpuCost, DeviceCost, OwnTime};

// The kernel's own counters per CPU.
#[derive(Debug, Clone, Default)]
pub(super) struct KernelCpuTimes {
    pub(super) times: Known<Vec<CpuTimes>>,
    pub(super) softnet: Known<Vec<SoftnetCpu>>,
}

#[derive(Debug)]
pub(super) struct AccountInput<'a> {
    /// Program runs on each CPU, whether counted or not.
    pub(super) runs: &'a BTreeMap<u32, i64>,
    // CPU time of this process, ns.
    pub(super) process_ns: u64,
    pub(super) kernel_begin: &'a KernelCpuTimes,
    pub(super) kernel_end: &'a KernelCpuTimes,
    pub(super) ns_a_run: &'a Known<f64>,
    pub(super) sees_calls_between_cpus: bool,
    pub(super) untraced: &'a Known<UntracedIrq>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadRole {
    /// Runs deferred softirqs.
    Ksoftirqd,
    /// Processes packets outside of softirqs.
    Packets,
    Other,
}

impl AccountInput<'_> {
    pub(super) fn cost(&self, counts: &CountedCost) -> CostReport {
        let cpus: Vec<CpuCost> =
            counts.cpus.iter().map(|(cpu, span)| self.cpu(*cpu, span, &counts.tables.threads)).collect();
        let seconds = cpus.iter().map(|cpu| cpu.elapsed_ns).max().unwrap_or(0) as f64 / 1e9;
        let mut notes = Vec::new();
        let missed: i64 = counts.cpus.values().map(|span| span.reading.missed).sum();
        if missed > 0 {
            notes.push(format!("{missed} turns, polls or paths are in no account, because a table is full"));
        }
        CostReport {
            seconds,
            counting_point: Known::Value(COUNTING_POINT.to_owned()),
            untraced_irq: self.untraced.clone(),
            own: self.own(&cpus),
            victims: self.victims(&counts.tables.threads),
            devices: devices(&counts.tables.devices),
            cpus,
            notes,
            ..CostReport::default()
        }
    }

    fn cpu(&self, cpu: u32, span: &CountedSpan, threads: &BTreeMap<ThreadOn, ThreadTurns>) -> CpuCost {
        let reading = &span.reading;
        let mut in_ksoftirqd = 0;
        let (mut task_packet_irqs, mut task_other_irqs) =
            (InterruptCounts::default(), InterruptCounts::default());
        // Interrupts that came in no thread's time.
        let mut idle_irqs = [reading.totals.packet_irqs, reading.totals.other_irqs];
        for (_, turns) in threads.iter().filter(|(key, _)| key.cpu == cpu) {
            idle_irqs =
                [idle_irqs[0].minus(&turns.taken.packet_irqs), idle_irqs[1].minus(&turns.taken.other_irqs)];
            if turns.role() != ThreadRole::Packets {
                task_packet_irqs.add(&turns.taken.packet_irqs);
                task_other_irqs.add(&turns.taken.other_irqs);
            }
            if turns.role() == ThreadRole::Ksoftirqd {
                in_ksoftirqd += turns.taken.net_rx + turns.taken.net_tx;
            }
        }
        let untraced = [&task_packet_irqs, &task_other_irqs, &idle_irqs[0], &idle_irqs[1]]
            .map(|irqs| self.untraced(irqs));
        let [packets_ns, others_ns, idle_packets_ns, idle_others_ns] =
            untraced.map(|untraced| untraced.ns as i64);
        CpuCost {
            cpu,
            elapsed_ns: span.elapsed_ns,
            traced_ns: span.traced_ns,
            packets_share_doubt: doubt(span),
            idle_ns: count(reading.idle - idle_packets_ns - idle_others_ns),
            tasks_ns: count(reading.tasks - reading.packet_threads - packets_ns - others_ns),
            net_rx_ns: count(reading.totals.net_rx + reading.packet_threads),
            net_tx_ns: count(reading.totals.net_tx),
            other_softirq_ns: count(reading.totals.other_softirq),
            nic_irq_ns: count(reading.totals.packet_irq + packets_ns + idle_packets_ns),
            other_irq_ns: count(reading.totals.other_irq + others_ns + idle_others_ns),
            untraced_irq_ns: count(packets_ns + others_ns + idle_packets_ns + idle_others_ns),
            untraced_irq_doubt_ns: untraced.iter().map(|untraced| untraced.doubt_ns as u64).sum(),
            in_ksoftirqd_ns: count(in_ksoftirqd),
            in_threads_ns: count(reading.packet_threads),
            from_idle_ns: count(reading.from_idle + idle_packets_ns),
            interrupts: count(reading.interrupts),
            rx_runs: count(reading.rx_runs),
            polls: count(reading.polls),
            packets: count(reading.packets),
            entered_packets: count(reading.entered),
            own_runs: count(self.runs.get(&cpu).copied().unwrap_or(0)),
            time_squeezes: self.time_squeezes(cpu),
            steal_ns: self.steal(cpu),
        }
    }

    fn untraced(&self, interrupts: &InterruptCounts) -> UntracedTime {
        self.untraced.value().map_or_else(UntracedTime::default, |estimate| estimate.time_of(interrupts))
    }

    fn time_squeezes(&self, cpu: u32) -> Known<u64> {
        let squeezes = |line: &SoftnetCpu| (line.cpu == cpu).then_some(line.time_squeeze);
        // The kernel's counter is 32 bits wide.
        growth(&self.kernel_begin.softnet, &self.kernel_end.softnet, squeezes)
            .map(|squeezes| squeezes & 0xffff_ffff)
    }

    fn steal(&self, cpu: u32) -> Known<u64> {
        let steal_ticks = |times: &CpuTimes| (times.cpu == cpu).then_some(times.steal);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        growth(&self.kernel_begin.times, &self.kernel_end.times, steal_ticks)
            .map(|ticks| ticks.saturating_mul(tick_ns))
    }

    fn victims(&self, threads: &BTreeMap<ThreadOn, ThreadTurns>) -> Vec<CostVictim> {
        let mut parts: Vec<_> =
            threads.iter().filter(|(_, turns)| turns.role() == ThreadRole::Other).collect();
        // The name of the CPU where the thread ran longest: another CPU may have the name from
        // before its execve().
        parts.sort_by_key(|(_, turns)| turns.on_cpu);
        let mut merged: BTreeMap<u32, ThreadTurns> = BTreeMap::new();
        for (key, turns) in parts {
            merged.entry(key.tid).or_default().add(turns);
        }
        let mut victims: Vec<CostVictim> =
            merged.into_iter().map(|(tid, turns)| self.victim(tid, turns)).collect();
        victims.sort_by_key(|victim| Reverse((victim.lost_ns(), victim.on_cpu_ns)));
        victims
    }

    fn victim(&self, tid: u32, turns: ThreadTurns) -> CostVictim {
        let untraced = [turns.taken.packet_irqs, turns.taken.other_irqs].map(|irqs| self.untraced(&irqs).ns);
        let [packets_ns, others_ns] = untraced.map(|ns| ns as i64);
        CostVictim {
            pid: turns.pid,
            tid,
            comm: turns.comm.to_string(),
            cgroup_id: turns.cgroup,
            on_cpu_ns: count(turns.on_cpu),
            taken_ns: count(turns.taken.packets() + packets_ns),
            taken_in_own_calls_ns: if self.sees_calls_between_cpus {
                Known::Value(count(turns.taken.own_call))
            } else {
                Known::unknown("this kernel has no tracepoint of interrupts between CPUs")
            },
            taken_other_ns: count(turns.taken.others() + others_ns),
            untraced_ns: count(packets_ns + others_ns),
            displaced_ns: count(turns.displaced),
            ..CostVictim::default()
        }
    }

    fn own(&self, cpus: &[CpuCost]) -> OwnTime {
        let share = |runs: u64, elapsed_ns: u64, extra_ns: u64| {
            let elapsed_ns = elapsed_ns.max(1) as f64;
            self.ns_a_run.clone().map(|ns| (runs as f64 * ns + extra_ns as f64) / elapsed_ns)
        };
        let runs = cpus.iter().map(|cpu| cpu.own_runs).sum();
        let busiest = cpus.iter().max_by_key(|cpu| cpu.own_runs);
        OwnTime {
            runs,
            ns_a_run: self.ns_a_run.clone(),
            process_ns: self.process_ns,
            share: share(runs, cpus.iter().map(|cpu| cpu.elapsed_ns).sum(), self.process_ns),
            highest_share: busiest
                .map_or_else(|| share(0, 0, 0), |cpu| share(cpu.own_runs, cpu.elapsed_ns, 0)),
        }
    }
}

impl ThreadTurns {
    fn role(&self) -> ThreadRole {
        if !self.is_kernel_thread() {
            return ThreadRole::Other;
        }
        // Names of kernel/softirq.c, net/core/dev.c and kernel/bpf/cpumap.c, Linux 6.18.
        match self.comm.to_string().split_once('/') {
            Some(("ksoftirqd", _)) => ThreadRole::Ksoftirqd,
            Some(("napi" | "backlog_napi" | "cpumap", _)) => ThreadRole::Packets,
            _ => ThreadRole::Other,
        }
    }
}

fn devices(device_polls: &BTreeMap<PolledOn, DevicePolls>) -> Vec<DeviceCost> {
    let mut merged: BTreeMap<(String, u32, u32), DeviceCost> = BTreeMap::new();
    for (key, counts) in device_polls {
        let name = if key.is_device != 0 { counts.name.to_string() } else { "backlog".to_owned() };
        let device = merged.entry((name.clone(), key.ifindex, key.network)).or_insert_with(|| DeviceCost {
            name,
            ifindex: key.ifindex,
            network_namespace: key.network,
            ..DeviceCost::default()
        });
        device.polls += count(counts.polls);
        device.threaded_polls += count(counts.threaded);
        device.busy_polls += count(counts.busy);
        device.packets += count(counts.packets);
        device.budget_exhausted += count(counts.exhausted);
        device.taken_ns += count(counts.ns);
    }
    let mut devices: Vec<DeviceCost> = merged.into_values().collect();
    devices.sort_by_key(|device| Reverse(device.taken_ns));
    devices
}

fn doubt(span: &CountedSpan) -> Known<f64> {
    match span.doubt() {
        Some(doubt) => Known::Value(doubt),
        None if span.shares.len() == 1 => Known::unknown("1 window is too few"),
        None => Known::unknown(format!("{} windows are too few", span.shares.len())),
    }
}

/// An interrupt at the wrong moment can make a sum negative.
fn count(sum: i64) -> u64 {
    u64::try_from(sum).unwrap_or(0)
}

/// `value`: the counter of the CPU; `None` for the line of another CPU.
fn growth<T>(before: &Known<Vec<T>>, after: &Known<Vec<T>>, value: impl Fn(&T) -> Option<u64>) -> Known<u64> {
    let count = |lines: &Known<Vec<T>>| {
        let count = |lines: &Vec<T>| lines.iter().find_map(&value);
        lines.as_ref().and_then(|lines| count(lines).ok_or("the kernel has no line of this CPU").into())
    };
    count(before).zip(count(after)).map(|(before, after)| after.wrapping_sub(before))
}

#[cfg(test)]
mod tests {
    use super::super::cost_tables::{CpuReading, CpuTotals};
    use super::super::untraced_time::UntracedEstimate;
    use super::*;
    use crate::sys::KernelName;

    #[test]
    fn untraced_interrupt_time_is_subtracted_from_threads_and_idle_time() {
        let by_timer = |count| CpuTotals {
            other_irqs: InterruptCounts { by_timer: count, ..Default::default() },
            ..Default::default()
        };
        let reading =
            CpuReading { totals: by_timer(10), idle: 500_000, tasks: 300_000, ..Default::default() };
        let name = |name: &[u8; 8]| KernelName(*[*name, [0; 8]].as_flattened().first_chunk().expect("16"));
        let forked = ThreadTurns { on_cpu: 10, pid: 7, comm: name(b"bash\0\0\0\0"), ..Default::default() };
        let turns = ThreadTurns { on_cpu: 100, taken: by_timer(4), comm: name(b"openssl\0"), ..forked };
        let mut counted_cost = CountedCost::default();
        counted_cost.cpus.insert(1, CountedSpan { elapsed_ns: 800_000, reading, ..Default::default() });
        counted_cost.tables.threads.insert(ThreadOn { tid: 7, cpu: 1 }, turns);
        counted_cost.tables.threads.insert(ThreadOn { tid: 7, cpu: 0 }, forked);
        let estimate = UntracedEstimate { ns: 1_000.0, low_ns: 900.0, high_ns: 1_100.0, interrupts: 100 };
        let cost = AccountInput {
            runs: &BTreeMap::new(),
            process_ns: 0,
            kernel_begin: &KernelCpuTimes::default(),
            kernel_end: &KernelCpuTimes::default(),
            ns_a_run: &Known::Value(10.0),
            sees_calls_between_cpus: true,
            untraced: &Known::Value(UntracedIrq {
                cpu: 1,
                by_timer: Known::Value(estimate),
                by_cpu: Known::default(),
            }),
        }
        .cost(&counted_cost);
        let cpu = &cost.cpus[0];
        assert_eq!((cpu.idle_ns, cpu.tasks_ns, cpu.other_irq_ns), (494_000, 296_000, 10_000));
        assert_eq!((cpu.untraced_irq_ns, cpu.untraced_irq_doubt_ns), (10_000, 1_000));
        let victim = &cost.victims[0];
        assert_eq!(victim.untraced_ns, 4_000);
        assert_eq!((victim.comm.as_str(), victim.on_cpu_ns), ("openssl", 110));
    }
}
