//! The shape of the ladder on a machine with other CPUs and queues, from the costs that a run here measured.
//!
//! The utilization law gives the rate of each resource: all CPUs, the CPUs that process received
//! packets, and the locks of sockets and transmit queues. docs/methodology.md states the
//! assumptions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ladder::configuration::{PortSharing, ServerConfiguration};
use crate::ladder::cpu_use::CpuShares;
use crate::ladder::report::LadderReport;
use crate::ladder::step::{BASELINE, STEPS};

/// The machine to predict for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PredictedMachine {
    pub cpus: u32,
    /// Receive and transmit queues of the interface.
    pub queues: u32,
    /// Time that the lock of a socket or transmit queue is held per transaction, ns: with one CPU, and more for each further CPU
    /// that takes the lock.
    pub lock_ns: f64,
    pub contention_ns: f64,
    /// Time that a transaction takes more if its datagram is read on another CPU than where it arrived, ns.
    pub remote_ns: f64,
    /// Whether the generator runs on the same CPUs, as in a lab.
    pub has_generator: bool,
}

/// CPU time of one transaction with the configuration of the baseline, by place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TransactionCost {
    /// CPUs of the machine that was measured, and the rate.
    pub cpus: u32,
    pub per_second: f64,
    pub softirq_ns: f64,
    pub server_ns: f64,
    pub generator_ns: f64,
    /// Parts of softirq and server, by hot spot of `linerate flame`.
    pub spots_ns: BTreeMap<String, f64>,
}

/// What ends the growth at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PredictedLimit {
    /// All CPUs together.
    AllCpus,
    /// The CPUs that process received packets.
    ReceivingCpus,
    SocketLock,
    TransmitLock,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedStep {
    pub id: String,
    pub per_second: f64,
    pub limit: PredictedLimit,
    /// Over the step before it; `None` for the baseline.
    pub gain_ratio: Option<f64>,
    /// The same on the machine that was measured: predicted, and measured.
    pub local_ratio: Option<f64>,
    pub measured_ratio: Option<f64>,
    /// Published for another machine.
    pub published_per_second: Option<f64>,
}

/// A predicted ladder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LadderPrediction {
    pub machine: PredictedMachine,
    pub cost: TransactionCost,
    pub steps: Vec<PredictedStep>,
    /// Rank correlation (Spearman) of predicted and measured gains on the machine that was measured; `None` with
    /// fewer than four steps.
    pub rank_correlation: Option<f64>,
}

/// Why a report permits no prediction: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    #[error(
        "the run did not sample its CPUs at the baseline, so that costs are unknown: measure with linerate lab as root"
    )]
    NoProfile,
    #[error("the run was recorded without hot spots: measure again with this version")]
    NoSpots,
}

/// Hot spots of every profile under load.
const PACKET_SPOTS: [&str; 3] = ["slab", "copy", "route-lookup"];

impl TransactionCost {
    /// Costs from the samples of a run's baseline.
    pub fn from_report(report: &LadderReport) -> Result<Self, PredictError> {
        let baseline = report.cpu_use.iter().find(|cpu_use| cpu_use.step == BASELINE);
        let cpu_use = baseline.ok_or(PredictError::NoProfile)?;
        if !PACKET_SPOTS.iter().any(|spot| cpu_use.spot_ratios.contains_key(*spot)) {
            return Err(PredictError::NoSpots);
        }
        let rate = cpu_use.offered_per_second;
        let sum =
            |figure: &dyn Fn(&CpuShares) -> f64| cpu_use.cpus.iter().map(figure).sum::<f64>() * 1e9 / rate;
        let busy_ns = sum(&|cpu| 1.0 - cpu.idle_ratio);
        Ok(Self {
            cpus: u32::try_from(cpu_use.cpus.len()).unwrap_or(u32::MAX),
            per_second: rate,
            softirq_ns: sum(&|cpu| cpu.softirq_ratio + cpu.interrupt_ratio),
            server_ns: sum(&|cpu| cpu.server_user_ratio + cpu.server_kernel_ratio),
            generator_ns: sum(&|cpu| cpu.generator_ratio),
            spots_ns: cpu_use.spot_ratios.iter().map(|(id, share)| (id.clone(), share * busy_ns)).collect(),
        })
    }

    fn rate(&self, machine: &PredictedMachine, configuration: &ServerConfiguration) -> (f64, PredictedLimit) {
        let (cpus, queues) = (f64::from(machine.cpus), f64::from(machine.queues));
        let softirq = self.softirq_with(machine, configuration);
        let generator = if machine.has_generator { self.generator_ns } else { 0.0 };
        // The flow hash does not depend on the CPU.
        let remote_share =
            if configuration.sharing == PortSharing::Reuseport { 1.0 - 1.0 / cpus } else { 0.0 };
        let remote_ns = machine.remote_ns * remote_share;
        let total_ns = softirq + self.server_with(configuration) + remote_ns + generator;
        // Half of the CPUs, as with all interrupts on one node.
        let receiving_cpus =
            if configuration.receive_spread { cpus } else { (cpus / 2.0).max(1.0).min(queues) };
        let is_local = configuration.sharing == PortSharing::SteeredByCpu && configuration.pinned;
        let serving_cpus = if is_local { receiving_cpus } else { cpus };
        // Number of socket locks, and of CPUs that take each lock: the receiving CPUs and the
        // reader's CPU.
        let (sockets, takers) = match configuration.sharing {
            PortSharing::OneSocket => (1.0, cpus),
            PortSharing::Reuseport => (cpus, receiving_cpus.min(cpus - 1.0) + 1.0),
            PortSharing::SteeredByCpu => (receiving_cpus, if is_local { 1.0 } else { 2.0 }),
        };
        let senders = if configuration.transmit_by_cpu { (cpus / queues).max(1.0) } else { cpus };
        let lock = |locks: f64, takers: f64| {
            locks * 1e9 / (machine.lock_ns + machine.contention_ns * (takers - 1.0))
        };
        let limits = [
            (serving_cpus * 1e9 / total_ns, PredictedLimit::AllCpus),
            (receiving_cpus * 1e9 / softirq, PredictedLimit::ReceivingCpus),
            (lock(sockets, takers), PredictedLimit::SocketLock),
            (lock(queues, senders), PredictedLimit::TransmitLock),
        ];
        limits.into_iter().min_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or(limits[0])
    }

    fn softirq_with(&self, machine: &PredictedMachine, configuration: &ServerConfiguration) -> f64 {
        // If the generator uses the same CPUs, a lab spreads packets without RPS: they stay on the
        // CPU that sent them.
        let has_rps = !(machine.has_generator && configuration.receive_spread);
        self.without_spots(
            self.softirq_ns,
            &[
                (has_rps, &["rps"]),
                (configuration.gro, &["gro"]),
                (configuration.netfilter, &["netfilter", "conntrack", "conntrack-lock"]),
                (configuration.source_validation, &["source-validation"]),
                (configuration.early_demux, &["early-demux"]),
            ],
        )
    }

    fn server_with(&self, configuration: &ServerConfiguration) -> f64 {
        let is_local = configuration.pinned && configuration.sharing == PortSharing::SteeredByCpu;
        self.without_spots(
            self.server_ns,
            &[
                (configuration.audit, &["audit"]),
                (!configuration.skip_ip_id, &["ip-id"]),
                // A system call for many datagrams costs almost nothing per datagram.
                (!configuration.batched_calls, &["syscall-entry"]),
                (configuration.sharing == PortSharing::OneSocket, &["socket-lock", "wake-up-lock"]),
                (!is_local, &["run-queue-lock", "memory-lock"]),
                (!configuration.transmit_by_cpu, &["qdisc-lock"]),
            ],
        )
    }

    /// A cost without the hot spots that are absent in a configuration.
    fn without_spots(&self, ns: f64, spots: &[(bool, &[&str])]) -> f64 {
        let absent_spots = spots.iter().filter(|(is_present, _)| !is_present).flat_map(|(_, ids)| ids.iter());
        (ns - absent_spots.filter_map(|id| self.spots_ns.get(*id)).fold(0.0, |sum, ns| sum + ns)).max(1.0)
    }
}

/// Steps whose effect is not in the costs of the baseline.
const NOT_PREDICTED: [&str; 3] = ["busy-poll", "receive-buffer", "smt"];

impl LadderPrediction {
    /// The steps of a run, as they would be on `machine`.
    ///
    /// # Errors
    /// [`PredictError`] if the run lacks the required samples.
    pub fn new(report: &LadderReport, machine: PredictedMachine) -> Result<Self, PredictError> {
        let cost = TransactionCost::from_report(report)?;
        let local_machine = PredictedMachine {
            cpus: u32::try_from(report.testbed.server_cpus.len()).unwrap_or(u32::MAX),
            queues: report.testbed.queues,
            has_generator: report.testbed.shares_cpus,
            ..machine
        };
        let mut configuration = ServerConfiguration::baseline();
        let mut steps: Vec<PredictedStep> = Vec::new();
        let mut previous_local_rate = None;
        for step in STEPS.iter().filter(|step| !NOT_PREDICTED.contains(&step.id)) {
            (step.change)(&mut configuration);
            let (per_second, limit) = cost.rate(&machine, &configuration);
            let (local_rate, _) = cost.rate(&local_machine, &configuration);
            let measured = report.steps.iter().find(|measured| measured.id == step.id);
            steps.push(PredictedStep {
                id: step.id.to_owned(),
                per_second,
                limit,
                gain_ratio: steps.last().map(|previous| per_second / previous.per_second),
                local_ratio: previous_local_rate.map(|previous| local_rate / previous),
                measured_ratio: measured
                    .and_then(|step| step.versus_previous.as_ref())
                    .map(|comparison| comparison.ratio.median),
                published_per_second: published(report, step.id),
            });
            previous_local_rate = Some(local_rate);
        }
        let pairs: Vec<(f64, f64)> =
            steps.iter().filter_map(|step| Some((step.local_ratio?, step.measured_ratio?))).collect();
        Ok(Self { machine, cost, steps, rank_correlation: rank_correlation(&pairs) })
    }
}

fn published(report: &LadderReport, id: &str) -> Option<f64> {
    let ladder = report.published.first()?;
    ladder.steps.iter().find(|step| step.id == id).map(|step| step.low_per_second)
}

/// Spearman's rank correlation; equal values have the mean of their ranks.
fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    const LEAST: usize = 4;
    if pairs.len() < LEAST {
        return None;
    }
    let ranks = |key: &dyn Fn(&(f64, f64)) -> f64| -> Vec<f64> {
        let values: Vec<f64> = pairs.iter().map(key).collect();
        let count_below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
        let count_equal = |value: f64| values.iter().filter(|other| **other == value).count() as f64;
        values.iter().map(|&value| count_below(value) + (count_equal(value) - 1.0) / 2.0).collect()
    };
    let (left, right) = (ranks(&|pair| pair.0), ranks(&|pair| pair.1));
    let mean = (pairs.len() - 1) as f64 / 2.0;
    let product = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| (left - mean) * (right - mean)).sum()
    };
    let scale = (product(&left, &left) * product(&right, &right)).sqrt();
    (scale > 0.0).then(|| product(&left, &right) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost() -> TransactionCost {
        let spots = [("conntrack", 300.0), ("syscall-entry", 400.0), ("ip-id", 100.0)];
        TransactionCost {
            cpus: 2,
            per_second: 100_000.0,
            softirq_ns: 2_000.0,
            server_ns: 3_000.0,
            generator_ns: 5_000.0,
            spots_ns: spots.map(|(id, ns)| (id.to_owned(), ns)).into(),
        }
    }

    fn machine(cpus: u32, queues: u32) -> PredictedMachine {
        PredictedMachine {
            cpus,
            queues,
            lock_ns: 150.0,
            contention_ns: 180.0,
            remote_ns: 0.0,
            has_generator: false,
        }
    }

    /// The rate with all steps up to `last`, and its limit.
    fn rate_up_to(machine: &PredictedMachine, last: &str) -> (f64, PredictedLimit) {
        let mut configuration = ServerConfiguration::baseline();
        for step in STEPS {
            (step.change)(&mut configuration);
            if step.id == last {
                break;
            }
        }
        let (rate, limit) = cost().rate(machine, &configuration);
        (rate.round(), limit)
    }

    #[test]
    fn a_shared_socket_lock_limits_20_cpus_but_not_2() {
        assert_eq!(rate_up_to(&machine(2, 2), "baseline"), (400_000.0, PredictedLimit::AllCpus));
        let shared = (1e9_f64 / (150.0 + 180.0 * 19.0)).round();
        assert_eq!(rate_up_to(&machine(20, 20), "irq-affinity-rps"), (shared, PredictedLimit::SocketLock));
        assert_eq!(rate_up_to(&machine(20, 20), "reuseport"), (4e6, PredictedLimit::AllCpus));
        assert_eq!(rate_up_to(&machine(20, 1), "reuseport").1, PredictedLimit::TransmitLock);
        let far = PredictedMachine { remote_ns: 2_000.0, ..machine(20, 20) };
        assert_eq!(rate_up_to(&far, "reuseport").0.round(), (20e9_f64 / (5_000.0 + 0.95 * 2_000.0)).round());
        assert_eq!(rate_up_to(&far, "steer-by-cpu").0, 4e6);
    }

    #[test]
    fn each_step_removes_its_measured_cost() {
        let rate = |step| rate_up_to(&machine(2, 2), step).0;
        assert_eq!(rate("gro-off"), rate("pin-threads"), "the profile had no time in GRO");
        assert_eq!(rate("netfilter-off").round(), (2e9_f64 / 4_700.0).round());
        assert_eq!(rate("ip-id-skip").round(), (2e9_f64 / 4_600.0).round());
        assert_eq!(rate("batch-syscalls").round(), (2e9_f64 / 4_200.0).round());
        let shared = PredictedMachine { has_generator: true, ..machine(2, 2) };
        assert_eq!(rate_up_to(&shared, "baseline").0, 200_000.0);
    }

    #[test]
    fn rank_correlation_uses_mean_ranks_for_ties() {
        let up = [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (4.0, 35.0)];
        assert_eq!(rank_correlation(&up), Some(1.0));
        let down = up.map(|(x, y)| (x, -y));
        assert_eq!(rank_correlation(&down), Some(-1.0));
        let ties = [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)];
        assert!((rank_correlation(&ties).expect("four") - 0.948_683).abs() < 1e-6);
        assert_eq!(rank_correlation(&up[..3]), None);
        assert_eq!(rank_correlation(&[(1.0, 1.0); 5]), None, "all values are equal");
    }
}
