//! Medians, intervals and comparisons from few samples.

use serde::{Deserialize, Serialize};

mod bootstrap;
mod runs;

pub use runs::{RunComparison, RunFigure};

/// The median; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// An estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceInterval {
    pub median: f64,
    /// The interval's lower end; `None` with fewer than three samples.
    pub low: Option<f64>,
    /// Its upper end; `None` with fewer than three samples.
    pub high: Option<f64>,
    /// How many samples it rests on.
    pub samples: usize,
}

/// Whether one configuration differs from another by more than noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonVerdict {
    /// The interval of the ratio lies above 1.
    Better,
    /// It lies below 1.
    Worse,
    /// It holds 1, or there are too few samples for one.
    NoDifferenceShown,
}

/// Two configurations compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateComparison {
    /// The second as a multiple of the first.
    pub ratio: ConfidenceInterval,
    /// The conclusion, if more is better.
    pub verdict: ComparisonVerdict,
}

/// The reason why samples cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// No samples at all.
    #[error("no samples")]
    Empty,
    /// A sample that has no ratio to other samples.
    #[error("sample {value} is not a positive number, so there is no ratio to it")]
    NotPositive { value: f64 },
    /// A sample that is no number.
    #[error("sample {value} is not a finite number")]
    NotFinite { value: f64 },
    #[error("{samples} samples have no interval: three are required")]
    TooFew { samples: usize },
    /// The samples of two configurations do not form pairs.
    #[error("{a} samples against {b}: alternating runs give as many of each")]
    Unpaired {
        /// Samples of the first configuration.
        a: usize,
        /// Samples of the second configuration.
        b: usize,
    },
}

/// The interval of a series of values, one per run.
///
/// For positive values it is computed on their logarithms, so that it is never below zero.
///
/// # Errors
/// There are no samples, or a sample is not finite.
pub fn interval(samples: &[f64]) -> Result<ConfidenceInterval, StatsError> {
    let median = median(samples).ok_or(StatsError::Empty)?;
    if let Some(value) = samples.iter().copied().find(|value| !value.is_finite()) {
        return Err(StatsError::NotFinite { value });
    }
    let positive = samples.iter().all(|value| *value > 0.0);
    let bounds = if positive {
        let logarithms: Vec<f64> = samples.iter().map(|value| value.ln()).collect();
        bootstrap::bounds(&logarithms).map(|(low, high)| (low.exp(), high.exp()))
    } else {
        bootstrap::bounds(samples)
    };
    Ok(ConfidenceInterval::around(median, bounds, samples.len()))
}

/// Compares configuration `b` with `a` by samples taken alternately, A B B A A B B A ...: `a[i]`
/// and `b[i]` were measured one after the other.
///
/// Each pair gives one logarithm of a ratio, so that a slow change of the machine affects both
/// halves of a pair alike. Its effect within a pair has the opposite sign in the next pair, where
/// the order is reversed, so it cancels in the estimate over an even number of pairs and only
/// widens the interval.
///
/// The ratio is `b / a`. For values where less is better, such as cycles per transaction, swap the
/// arguments or interpret the verdict accordingly.
///
/// The result depends on the samples only, because they are also the seed of the resampling.
///
/// # Errors
/// There are no samples, the numbers of samples differ, or a sample is not a positive finite
/// number.
pub fn compare(a: &[f64], b: &[f64]) -> Result<RateComparison, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::Unpaired { a: a.len(), b: b.len() });
    }
    if let Some(value) = a.iter().chain(b).copied().find(|value| !(*value > 0.0 && value.is_finite())) {
        return Err(StatsError::NotPositive { value });
    }
    let logarithms: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect();
    let median = median(&logarithms).ok_or(StatsError::Empty)?;
    let bounds = bootstrap::bounds(&logarithms).map(|(low, high)| (low.exp(), high.exp()));
    let ratio = ConfidenceInterval::around(median.exp(), bounds, a.len());
    let verdict = match (ratio.low, ratio.high) {
        (Some(low), _) if low > 1.0 => ComparisonVerdict::Better,
        (_, Some(high)) if high < 1.0 => ComparisonVerdict::Worse,
        _ => ComparisonVerdict::NoDifferenceShown,
    };
    Ok(RateComparison { ratio, verdict })
}

impl ConfidenceInterval {
    /// Widens the interval to contain its estimate: the bounds come from a trimmed mean, but the
    /// estimate is the median.
    fn around(median: f64, bounds: Option<(f64, f64)>, samples: usize) -> Self {
        let (low, high) = bounds.map(|(low, high)| (low.min(median), high.max(median))).unzip();
        ConfidenceInterval { median, low, high, samples }
    }
}

#[cfg(test)]
mod tests;
