//! Compares two runs that were measured one after the other, value by value.

use serde::{Deserialize, Serialize};

use super::{ComparisonVerdict, ConfidenceInterval, StatsError};

/// Two runs compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// The names of both: file names.
    pub names: [String; 2],
    /// The smallest difference that counts.
    pub tolerance_ratio: f64,
    pub figures: Vec<RunFigure>,
    pub verdict: ComparisonVerdict,
}

/// A figure of two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFigure {
    /// The figure with its unit.
    pub key: String,
    pub less_is_better: bool,
    pub values: [ConfidenceInterval; 2],
    /// The second by the first.
    pub ratio: ConfidenceInterval,
    /// Better or worse if the whole interval of the ratio lies beyond the tolerance.
    pub verdict: ComparisonVerdict,
}

impl RunComparison {
    #[must_use]
    pub fn new(names: [String; 2], tolerance_ratio: f64, figures: Vec<RunFigure>) -> Self {
        let verdict = RunFigure::verdict_of(&figures);
        Self { names, tolerance_ratio, figures, verdict }
    }
}

impl RunFigure {
    /// Compares the intervals of two runs.
    ///
    /// The samples of a run have no partners in the other run, so the interval of the ratio is
    /// computed from both intervals: on logarithms, the distances to the ends add up as squares
    /// (MOVER: Zou and Donner, 2008).
    ///
    /// # Errors
    /// [`StatsError::TooFew`] if a run has no interval, [`StatsError::NotPositive`] if there is no
    /// ratio. A second run of zeros is 0 times the first.
    pub fn new(
        key: impl Into<String>,
        less_is_better: bool,
        values: [ConfidenceInterval; 2],
        tolerance_ratio: f64,
    ) -> Result<Self, StatsError> {
        let [old, new] = values;
        let log_bounds = |value: ConfidenceInterval| {
            let (Some(low), Some(high)) = (value.low, value.high) else {
                return Err(StatsError::TooFew { samples: value.samples });
            };
            let invalid = [low, value.median, high].into_iter().find(|end| !(*end > 0.0 && end.is_finite()));
            match invalid {
                Some(value) => Err(StatsError::NotPositive { value }),
                None => Ok([low.ln(), value.median.ln(), high.ln()]),
            }
        };
        let [old_low, old_middle, old_high] = log_bounds(old)?;
        if !less_is_better && [new.median, new.high.unwrap_or(0.0)] == [0.0; 2] {
            let verdict = ComparisonVerdict::Worse;
            return Ok(Self { key: key.into(), less_is_better, values, ratio: new, verdict });
        }
        let [new_low, new_middle, new_high] = log_bounds(new)?;
        let middle = new_middle - old_middle;
        let low = middle - (new_middle - new_low).hypot(old_high - old_middle);
        let high = middle + (new_high - new_middle).hypot(old_middle - old_low);
        let ratio = ConfidenceInterval {
            median: middle.exp(),
            low: Some(low.exp()),
            high: Some(high.exp()),
            samples: old.samples.min(new.samples),
        };
        let margin = (1.0 + tolerance_ratio).ln();
        let verdict = match (low > margin, high < -margin) {
            (true, _) if less_is_better => ComparisonVerdict::Worse,
            (_, true) if less_is_better => ComparisonVerdict::Better,
            (true, _) => ComparisonVerdict::Better,
            (_, true) => ComparisonVerdict::Worse,
            _ => ComparisonVerdict::NoDifferenceShown,
        };
        Ok(Self { key: key.into(), less_is_better, values, ratio, verdict })
    }

    /// Worse if one figure is worse; better if one is better and none is worse.
    #[must_use]
    pub fn verdict_of(figures: &[RunFigure]) -> ComparisonVerdict {
        [ComparisonVerdict::Worse, ComparisonVerdict::Better]
            .into_iter()
            .find(|verdict| figures.iter().any(|figure| figure.verdict == *verdict))
            .unwrap_or(ComparisonVerdict::NoDifferenceShown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::interval;

    fn interval_around(center: f64) -> ConfidenceInterval {
        interval(&[0.99, 1.01, 1.0, 0.995, 1.005].map(|noise| noise * center)).expect("an interval")
    }

    fn verdict(less_is_better: bool, values: [f64; 2]) -> ComparisonVerdict {
        RunFigure::new("x", less_is_better, values.map(interval_around), 0.05).expect("a figure").verdict
    }

    #[test]
    fn verdict_requires_an_interval_beyond_the_tolerance() {
        assert_eq!(verdict(false, [100.0, 85.0]), ComparisonVerdict::Worse);
        assert_eq!(verdict(false, [100.0, 115.0]), ComparisonVerdict::Better);
        assert_eq!(verdict(true, [100.0, 115.0]), ComparisonVerdict::Worse);
        assert_eq!(verdict(true, [100.0, 85.0]), ComparisonVerdict::Better);
        for near in [96.0, 100.0, 104.0, 106.0] {
            assert_eq!(verdict(false, [100.0, near]), ComparisonVerdict::NoDifferenceShown, "{near}");
        }
    }

    #[test]
    fn ratio_interval_is_wider_than_the_interval_of_each_value() {
        let figure = RunFigure::new("x", false, [interval_around(100.0), interval_around(200.0)], 0.05)
            .expect("a figure");
        let width = |value: &ConfidenceInterval| value.high.expect("a high") / value.low.expect("a low");
        assert!((figure.ratio.median - 2.0).abs() < 1e-9, "{figure:?}");
        assert!(width(&figure.ratio) > width(&figure.values[0]), "{figure:?}");
        assert!(width(&figure.ratio) < width(&figure.values[0]).powi(2), "{figure:?}");
    }

    #[test]
    fn figures_without_interval_or_ratio_are_refused() {
        let few = interval(&[1.0, 2.0]).expect("a median");
        let (one, zero) = (interval_around(1.0), interval(&[0.0; 4]).expect("an interval"));
        let error =
            |less_is_better, values| RunFigure::new("x", less_is_better, values, 0.05).expect_err("no ratio");
        assert_eq!(error(false, [few, one]), StatsError::TooFew { samples: 2 });
        for (less_is_better, values) in [(false, [zero, one]), (false, [zero, zero]), (true, [one, zero])] {
            assert_eq!(error(less_is_better, values), StatsError::NotPositive { value: 0.0 });
        }
    }

    #[test]
    fn a_run_of_zeros_is_worse() {
        for zeros in [&[0.0; 4][..], &[0.0]] {
            let values = [interval_around(1.0), interval(zeros).expect("a median")];
            let figure = RunFigure::new("x", false, values, 0.05).expect("a figure");
            assert_eq!((figure.verdict, figure.ratio.median), (ComparisonVerdict::Worse, 0.0));
        }
    }

    #[test]
    fn one_worse_figure_makes_the_verdict_worse() {
        let figure =
            |new: f64| RunFigure::new("x", false, [100.0, new].map(interval_around), 0.05).expect("a figure");
        let of = |all: &[f64]| RunFigure::verdict_of(&all.iter().map(|new| figure(*new)).collect::<Vec<_>>());
        assert_eq!(of(&[120.0, 80.0]), ComparisonVerdict::Worse);
        assert_eq!(of(&[120.0, 100.0]), ComparisonVerdict::Better);
        assert_eq!(of(&[]), ComparisonVerdict::NoDifferenceShown);
    }
}
