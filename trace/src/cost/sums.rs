//! Sums, shares and ratios.

use linerate_host::Known;

use super::{CostReport, CostVictim, CpuCost, DeviceCost};

impl CostReport {
    /// All CPUs together; the number has no meaning.
    pub fn all_cpus(&self) -> CpuCost {
        let mut total =
            CpuCost { time_squeezes: Known::Value(0), steal_ns: Known::Value(0), ..CpuCost::default() };
        for cpu in &self.cpus {
            total.add(cpu);
        }
        total
    }
}

impl CpuCost {
    /// Packet processing: NET_RX, NET_TX and packet interrupts.
    pub fn packets_ns(&self) -> u64 {
        self.net_rx_ns + self.net_tx_ns + self.nic_irq_ns
    }

    /// The sum of all parts, which should be `elapsed_ns`.
    pub fn counted_ns(&self) -> u64 {
        self.idle_ns + self.tasks_ns + self.packets_ns() + self.other_softirq_ns + self.other_irq_ns
    }

    /// Deviation of the sum from the clock, as a share: positive if something was counted twice,
    /// negative if something was missed.
    pub fn imbalance(&self) -> f64 {
        ratio(self.counted_ns(), self.elapsed_ns).map_or(0.0, |ratio| ratio - 1.0)
    }

    /// Polls per run of NET_RX.
    pub fn polls_a_run(&self) -> Option<f64> {
        ratio(self.polls, self.rx_runs)
    }

    /// Packet processing time per packet that entered. Over all CPUs, because a packet is counted
    /// on the CPU where it enters, and may use time on others.
    pub fn ns_a_packet(&self) -> Option<f64> {
        ratio(self.packets_ns(), self.entered_packets)
    }

    fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.elapsed_ns, other.elapsed_ns),
            (&mut self.traced_ns, other.traced_ns),
            (&mut self.idle_ns, other.idle_ns),
            (&mut self.tasks_ns, other.tasks_ns),
            (&mut self.net_rx_ns, other.net_rx_ns),
            (&mut self.net_tx_ns, other.net_tx_ns),
            (&mut self.other_softirq_ns, other.other_softirq_ns),
            (&mut self.nic_irq_ns, other.nic_irq_ns),
            (&mut self.other_irq_ns, other.other_irq_ns),
            (&mut self.untraced_irq_ns, other.untraced_irq_ns),
            (&mut self.untraced_irq_doubt_ns, other.untraced_irq_doubt_ns),
            (&mut self.in_ksoftirqd_ns, other.in_ksoftirqd_ns),
            (&mut self.in_threads_ns, other.in_threads_ns),
            (&mut self.from_idle_ns, other.from_idle_ns),
            (&mut self.interrupts, other.interrupts),
            (&mut self.rx_runs, other.rx_runs),
            (&mut self.polls, other.polls),
            (&mut self.packets, other.packets),
            (&mut self.entered_packets, other.entered_packets),
            (&mut self.own_runs, other.own_runs),
        ] {
            *sum += part;
        }
        for (sum, part) in
            [(&mut self.time_squeezes, &other.time_squeezes), (&mut self.steal_ns, &other.steal_ns)]
        {
            *sum = sum.clone().zip(part.clone()).map(|(sum, part)| sum + part);
        }
    }
}

impl CostVictim {
    pub fn had_ns(&self) -> u64 {
        self.on_cpu_ns.saturating_sub(self.taken_ns).saturating_sub(self.taken_other_ns)
    }

    /// Time that packets took: from the thread's turns, and by threads that preempted it.
    pub fn lost_ns(&self) -> u64 {
        self.taken_ns + self.displaced_ns
    }

    /// Share of the time it was scheduled, 0 to 1.
    pub fn taken_share(&self) -> f64 {
        ratio(self.taken_ns, self.on_cpu_ns).unwrap_or(0.0)
    }
}

impl DeviceCost {
    pub fn packets_a_poll(&self) -> Option<f64> {
        ratio(self.packets, self.polls)
    }

    pub fn ns_a_packet(&self) -> Option<f64> {
        ratio(self.taken_ns, self.packets)
    }
}

pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
