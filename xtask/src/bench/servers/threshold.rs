//! The thresholds of servers.

use linerate_load::stats::{self, ConfidenceInterval};

use super::MeasuredServerRun;
use super::candidate::{C, DNS_XDP, MMSG, MMSG_POLICY, NSD, TOKIO, XDP, XDP_TX};
use crate::bench::threshold::{JudgedThreshold, ThresholdVerdict};

// Least offered multiple of capacity for a turn to count: 95 % of the planned five.
const LEAST_OVERLOAD: f64 = 4.75;

enum ServerThreshold {
    /// One server has at least this multiple of the capacity of another.
    Times { who: &'static str, than: &'static str, at_least: f64 },
    /// The two servers have the same capacity: the interval of the ratio includes 1.
    Level { who: &'static str, than: &'static str },
    /// The least goodput at five times the capacity, as a share of the capacity.
    Goodput { who: &'static str, at_least: f64 },
    /// A ratio without a threshold.
    ShareOf { who: &'static str, than: &'static str },
}

const THRESHOLDS: [ServerThreshold; 7] = [
    ServerThreshold::Level { who: MMSG, than: C },
    // The kernel's path decides, which is the same for both: docs/servers.md.
    ServerThreshold::ShareOf { who: MMSG, than: TOKIO },
    ServerThreshold::Times { who: XDP, than: MMSG, at_least: 2.0 },
    ServerThreshold::ShareOf { who: XDP, than: XDP_TX },
    ServerThreshold::Goodput { who: XDP, at_least: 0.9 },
    ServerThreshold::Goodput { who: MMSG_POLICY, at_least: 0.7 },
    ServerThreshold::Times { who: DNS_XDP, than: NSD, at_least: 2.0 },
];

/// Judges the thresholds of the servers that take part. If not `is_judged`, only the ratios are
/// reported.
pub(super) fn judge(servers: &[MeasuredServerRun], is_judged: bool) -> Vec<JudgedThreshold> {
    let mut thresholds: Vec<JudgedThreshold> =
        THRESHOLDS.iter().filter_map(|threshold| threshold.judge(servers)).collect();
    for threshold in
        thresholds.iter_mut().filter(|threshold| threshold.verdict != ThresholdVerdict::NotHere && !is_judged)
    {
        threshold.verdict = ThresholdVerdict::Unjudged;
    }
    thresholds
}

impl ServerThreshold {
    // `None` if one of the servers does not take part.
    fn judge(&self, servers: &[MeasuredServerRun]) -> Option<JudgedThreshold> {
        let find = |name| servers.iter().find(|server| server.candidate.name == name);
        let mut remarks = Vec::new();
        let ratio = match *self {
            Self::Times { who, than, .. } | Self::Level { who, than } | Self::ShareOf { who, than } => {
                compare(find(than)?, find(who)?, &mut remarks)
            }
            Self::Goodput { who, .. } => goodput(find(who)?, &mut remarks),
        };
        let what = match self {
            Self::Times { who, than, at_least } => {
                format!("{who} has at least {at_least} times the capacity of {than}")
            }
            Self::Level { who, than } => format!("{who} has at least the capacity of {than}"),
            Self::ShareOf { who, than } => format!("{who} as a share of {than}"),
            Self::Goodput { who, at_least } => {
                format!("{who} still answers {:.0} % of its capacity at five times that", at_least * 100.0)
            }
        };
        let is_kept = |ratio: &ConfidenceInterval| match *self {
            Self::Times { at_least, .. } | Self::Goodput { at_least, .. } => ratio.median >= at_least,
            Self::Level { .. } => ratio.high.unwrap_or(ratio.median) >= 1.0,
            Self::ShareOf { .. } => true,
        };
        let verdict = match (&ratio, self) {
            (None, _) => ThresholdVerdict::NotHere,
            (Some(_), Self::ShareOf { .. }) => ThresholdVerdict::Unjudged,
            (Some(_), Self::Goodput { .. }) if !remarks.is_empty() => ThresholdVerdict::NotHere,
            (Some(ratio), _) if is_kept(ratio) => ThresholdVerdict::Pass,
            (Some(_), _) => ThresholdVerdict::Miss,
        };
        Some(JudgedThreshold { what, verdict, ratio, remarks })
    }
}

fn compare(
    other_server: &MeasuredServerRun,
    server: &MeasuredServerRun,
    remarks: &mut Vec<String>,
) -> Option<ConfidenceInterval> {
    for either_server in [server, other_server] {
        if let Some(reason) = &either_server.out {
            remarks.push(format!("{}: {reason}", either_server.candidate.name));
        }
        if either_server.samples.iter().any(|sample| sample.generator_bound) {
            let name = either_server.candidate.name;
            remarks.push(format!("the generator was the limit of {name}: that is a lower bound"));
        }
    }
    let pairs = other_server.samples.len().min(server.samples.len());
    let rates = |either_server: &MeasuredServerRun| -> Vec<f64> {
        either_server.samples[..pairs].iter().map(|sample| sample.capacity).collect()
    };
    let comparison = stats::compare(&rates(other_server), &rates(server));
    comparison.map(|comparison| comparison.ratio).map_err(|reason| remarks.push(reason.to_string())).ok()
}

fn goodput(server: &MeasuredServerRun, remarks: &mut Vec<String>) -> Option<ConfidenceInterval> {
    remarks.extend(server.out.clone());
    let (overloaded, less_loaded): (Vec<_>, Vec<_>) =
        server.samples.iter().partition(|sample| sample.overload_factor >= LEAST_OVERLOAD);
    // Most turns decide; the few in which the generator was too slow are ignored.
    let judged_samples = if overloaded.len() > less_loaded.len() { overloaded } else { less_loaded };
    let shares: Vec<f64> = judged_samples.iter().map(|sample| sample.goodput_ratio).collect();
    let factors: Vec<f64> = judged_samples.iter().map(|sample| sample.overload_factor).collect();
    if let Some(factor) = stats::median(&factors).filter(|factor| *factor < LEAST_OVERLOAD) {
        remarks.push(format!("the generator offered {factor:.1} times its capacity, not five"));
    }
    stats::interval(&shares).map_err(|reason| remarks.push(reason.to_string())).ok()
}
