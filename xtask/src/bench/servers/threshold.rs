//! The thresholds of servers.

use linerate_load::stats::{self, ConfidenceInterval};

use super::MeasuredServerRun;
use super::candidate::{C, DNS_XDP, MMSG, MMSG_POLICY, NSD, TOKIO, XDP, XDP_SET, XDP_TX, XDP_WORKING};
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
    Told { who: &'static str, than: &'static str },
}

const THRESHOLDS: [ServerThreshold; 10] = [
    ServerThreshold::Level { who: MMSG, than: C },
    // The kernel's path decides, which is the same for both: docs/servers.md.
    ServerThreshold::Told { who: MMSG, than: TOKIO },
    ServerThreshold::Times { who: XDP, than: MMSG, at_least: 2.0 },
    ServerThreshold::Told { who: XDP, than: XDP_TX },
    ServerThreshold::Told { who: XDP_SET, than: XDP },
    ServerThreshold::Told { who: XDP_SET, than: XDP_TX },
    ServerThreshold::Goodput { who: XDP, at_least: 0.9 },
    ServerThreshold::Goodput { who: XDP_WORKING, at_least: 0.9 },
    ServerThreshold::Goodput { who: MMSG_POLICY, at_least: 0.7 },
    ServerThreshold::Times { who: DNS_XDP, than: NSD, at_least: 2.0 },
];

type Kept = Box<dyn Fn(&ConfidenceInterval) -> bool>;

/// Judges the thresholds of the servers that take part. If not `judged`, only the ratios are
/// reported.
pub(super) fn judge(entered: &[MeasuredServerRun], judged: bool) -> Vec<JudgedThreshold> {
    let mut thresholds: Vec<JudgedThreshold> =
        THRESHOLDS.iter().filter_map(|threshold| threshold.judge(entered)).collect();
    for threshold in
        thresholds.iter_mut().filter(|threshold| threshold.verdict != ThresholdVerdict::NotHere && !judged)
    {
        threshold.verdict = ThresholdVerdict::Told;
    }
    thresholds
}

impl ServerThreshold {
    // `None` if one of the servers does not take part.
    fn judge(&self, entered: &[MeasuredServerRun]) -> Option<JudgedThreshold> {
        let find = |name| entered.iter().find(|one| one.candidate.name == name);
        let (what, who, than, kept): (_, _, _, Kept) = match *self {
            ServerThreshold::Times { who, than, at_least } => (
                format!("{who} has at least {at_least} times the capacity of {than}"),
                who,
                Some(than),
                Box::new(move |ratio| ratio.median >= at_least),
            ),
            ServerThreshold::Level { who, than } => (
                format!("{who} has at least the capacity of {than}"),
                who,
                Some(than),
                Box::new(|ratio| ratio.high.unwrap_or(ratio.median) >= 1.0),
            ),
            ServerThreshold::Told { who, than } => {
                (format!("{who} as a share of {than}"), who, Some(than), Box::new(|_| true))
            }
            ServerThreshold::Goodput { who, at_least } => (
                format!("{who} still answers {:.0} % of its capacity at five times that", at_least * 100.0),
                who,
                None,
                Box::new(move |ratio| ratio.median >= at_least),
            ),
        };
        let one = find(who)?;
        let than = match than {
            Some(than) => Some(find(than)?),
            None => None,
        };
        let mut remarks = Vec::new();
        let ratio = match than {
            Some(than) => compare(than, one, &mut remarks),
            None => goodput(one, &mut remarks),
        };
        let verdict = match (&ratio, self) {
            (None, _) => ThresholdVerdict::NotHere,
            (Some(_), ServerThreshold::Told { .. }) => ThresholdVerdict::Told,
            (Some(_), ServerThreshold::Goodput { .. }) if !remarks.is_empty() => ThresholdVerdict::NotHere,
            (Some(ratio), _) if kept(ratio) => ThresholdVerdict::Pass,
            (Some(_), _) => ThresholdVerdict::Miss,
        };
        Some(JudgedThreshold { what, verdict, ratio, remarks })
    }
}

fn compare(
    than: &MeasuredServerRun,
    one: &MeasuredServerRun,
    remarks: &mut Vec<String>,
) -> Option<ConfidenceInterval> {
    for side in [one, than] {
        if let Some(why) = &side.out {
            remarks.push(format!("{}: {why}", side.candidate.name));
        }
        if side.samples.iter().any(|sample| sample.generator_bound) {
            let name = side.candidate.name;
            remarks.push(format!("the generator was the limit of {name}: that is a lower bound"));
        }
    }
    let pairs = than.samples.len().min(one.samples.len());
    let rates = |side: &MeasuredServerRun| -> Vec<f64> {
        side.samples[..pairs].iter().map(|sample| sample.capacity).collect()
    };
    let comparison = stats::compare(&rates(than), &rates(one));
    comparison.map(|comparison| comparison.ratio).map_err(|why| remarks.push(why.to_string())).ok()
}

fn goodput(one: &MeasuredServerRun, remarks: &mut Vec<String>) -> Option<ConfidenceInterval> {
    remarks.extend(one.out.clone());
    let (asked, less): (Vec<_>, Vec<_>) =
        one.samples.iter().partition(|sample| sample.overload_factor >= LEAST_OVERLOAD);
    // Most turns decide; the few in which the generator was too slow are ignored.
    let judged = if asked.len() > less.len() { asked } else { less };
    let shares: Vec<f64> = judged.iter().map(|sample| sample.goodput_ratio).collect();
    let factors: Vec<f64> = judged.iter().map(|sample| sample.overload_factor).collect();
    if let Some(factor) = stats::median(&factors).filter(|factor| *factor < LEAST_OVERLOAD) {
        remarks.push(format!("the generator offered {factor:.1} times its capacity, not five"));
    }
    stats::interval(&shares).map_err(|why| remarks.push(why.to_string())).ok()
}
