//! Two measurements, figure by figure.

use linerate_host::Known;
use linerate_host::stats::RunComparison;
use serde::{Deserialize, Serialize};

use super::sums::ratio;
use super::{CostReport, CpuCost};

/// The figures of two measurements.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CostComparison {
    /// The names of both: file names.
    pub names: [String; 2],
    /// Both kernels; `None` if unknown.
    pub kernels: [Option<String>; 2],
    /// Where both count a packet.
    pub counting_point: Known<String>,
    pub figures: Vec<ComparedFigure>,
    /// Whether the time per packet differs; unknown if one measurement was too short.
    #[serde(default)]
    pub judged: Known<RunComparison>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComparedFigure {
    /// The figure with its unit, as in other documents.
    pub key: String,
    /// `None` if there is none: the time per packet without packets.
    pub values: [Option<f64>; 2],
    /// The second by the first.
    pub ratio: Option<f64>,
}

impl CostComparison {
    /// Compares two measurements, which must have the same counting point.
    #[must_use]
    pub fn new(
        names: [String; 2],
        kernels: [Option<String>; 2],
        costs: [&CostReport; 2],
        comparison: Known<RunComparison>,
    ) -> Self {
        let figures = FIGURES.iter().map(|(key, figure)| ComparedFigure::new(key, costs.map(figure)));
        let counting_point = costs[0].counting_point.clone();
        Self { names, kernels, counting_point, figures: figures.collect(), judged: comparison }
    }

    /// The figure with this key.
    #[must_use]
    pub fn figure(&self, key: &str) -> Option<&ComparedFigure> {
        self.figures.iter().find(|figure| figure.key == key)
    }
}

impl ComparedFigure {
    fn new(key: &str, values: [Option<f64>; 2]) -> Self {
        let ratio = match values {
            [Some(first), Some(second)] if first > 0.0 => Some(second / first),
            _ => None,
        };
        Self { key: key.to_owned(), values, ratio }
    }
}

type FigureReader = fn(&CostReport) -> Option<f64>;

/// Each figure, and how it is calculated.
const FIGURES: [(&str, FigureReader); 18] = [
    ("seconds", |cost| Some(cost.seconds)),
    ("cpus", |cost| Some(cost.cpus.len() as f64)),
    ("packets_per_second", |cost| per_second(cost, cost.all_cpus().entered_packets)),
    ("packets_cpu_ratio", |cost| elapsed_share(cost, CpuCost::packets_ns)),
    ("highest_cpu_packets_ratio", |cost| {
        let shares = cost.cpus.iter().filter_map(|cpu| ratio(cpu.packets_ns(), cpu.elapsed_ns));
        shares.max_by(f64::total_cmp)
    }),
    ("packets_ns_a_packet", |cost| cost.all_cpus().ns_a_packet()),
    ("net_rx_ns_a_packet", |cost| per_packet(cost, |all| all.net_rx_ns)),
    ("net_tx_ns_a_packet", |cost| per_packet(cost, |all| all.net_tx_ns)),
    ("nic_irq_ns_a_packet", |cost| per_packet(cost, |all| all.nic_irq_ns)),
    ("packets_a_poll", |cost| ratio(cost.all_cpus().packets, cost.all_cpus().polls)),
    ("polls_a_run", |cost| cost.all_cpus().polls_a_run()),
    ("budget_exhausted_ratio", |cost| {
        let exhausted = cost.devices.iter().map(|device| device.budget_exhausted).sum();
        ratio(exhausted, cost.devices.iter().map(|device| device.polls).sum())
    }),
    ("ksoftirqd_ratio", |cost| ratio(cost.all_cpus().in_ksoftirqd_ns, cost.all_cpus().packets_ns())),
    ("threads_of_napi_ratio", |cost| ratio(cost.all_cpus().in_threads_ns, cost.all_cpus().packets_ns())),
    ("taken_from_tasks_cpu_ratio", |cost| {
        let taken: u64 = cost.victims.iter().map(|victim| victim.taken_ns).sum();
        ratio(taken, cost.all_cpus().elapsed_ns)
    }),
    ("tasks_cpu_ratio", |cost| elapsed_share(cost, |cpu| cpu.tasks_ns)),
    ("idle_cpu_ratio", |cost| elapsed_share(cost, |cpu| cpu.idle_ns)),
    ("own_cpu_ratio", |cost| cost.own.share.value().copied()),
];

fn per_second(cost: &CostReport, count: u64) -> Option<f64> {
    (cost.seconds > 0.0).then(|| count as f64 / cost.seconds)
}

fn elapsed_share(cost: &CostReport, part: fn(&CpuCost) -> u64) -> Option<f64> {
    let total = cost.all_cpus();
    ratio(part(&total), total.elapsed_ns)
}

fn per_packet(cost: &CostReport, part: fn(&CpuCost) -> u64) -> Option<f64> {
    let total = cost.all_cpus();
    ratio(part(&total), total.entered_packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_requires_two_values_and_a_nonzero_divisor() {
        let ratio = |first| ComparedFigure::new("x", [first, Some(3.0)]).ratio;
        assert_eq!([ratio(Some(2.0)), ratio(Some(0.0)), ratio(None)], [Some(1.5), None, None]);
    }
}
