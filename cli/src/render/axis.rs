//! Axes of the charts: the position of a value, in per cent of the width, and the ticks to draw.

use crate::document::ChartScale;

/// An axis from left to right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ValueAxis {
    /// Whether equal distances are equal ratios.
    pub(crate) is_log: bool,
    low: f64,
    high: f64,
}

// A greater ratio between values does not fit a linear axis: the small ones would all be at zero.
const WIDEST_LINEAR: f64 = 20.0;

impl ValueAxis {
    /// An axis for these values.
    pub(crate) fn of_scale(scale: ChartScale, values: &[f64]) -> Self {
        let usable = values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
        let (lowest, highest) =
            usable.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let linear = Self::linear(highest);
        match scale {
            ChartScale::LinearZoomed if highest > lowest => {
                let margin = (highest - lowest) * 0.04;
                Self { is_log: false, low: (lowest - margin).max(0.0), high: highest + margin }
            }
            ChartScale::Linear | ChartScale::LinearZoomed => linear,
            ChartScale::Automatic if linear.high / lowest <= WIDEST_LINEAR => linear,
            ChartScale::Logarithmic if highest == 0.0 => Self { is_log: true, low: 1.0, high: 10.0 },
            // A little wider than the values.
            ChartScale::Logarithmic | ChartScale::Automatic => {
                Self { is_log: true, low: lowest / 1.25, high: highest * 1.25 }
            }
        }
    }

    /// From zero to a round number above every value.
    fn linear(highest: f64) -> Self {
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = round_step(highest);
        Self { is_log: false, low: 0.0, high: (highest / step).ceil() * step }
    }

    /// The position of a value in per cent from the left; values outside the range are at the edge.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let share = match self.is_log {
            false => (value - self.low) / (self.high - self.low),
            true if value <= 0.0 => 0.0,
            true => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) * 100.0 } else { 0.0 }
    }

    // Round values to draw a line at, in order; at most `max_ticks` on a logarithmic axis.
    pub(crate) fn ticks(&self, max_ticks: usize) -> Vec<f64> {
        if !self.is_log {
            return self.even_ticks();
        }
        let [finest, coarser, decades] = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]].map(|mantissas| {
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            (first..=last)
                .flat_map(|decade| mantissas.iter().map(move |mantissa| mantissa * 10f64.powi(decade)))
                .filter(|value| (self.low..=self.high).contains(value))
                .collect::<Vec<_>>()
        });
        match () {
            // Over a range of values this short, ratios and differences look alike.
            () if finest.len() < 3 => self.even_ticks(),
            () if finest.len() <= max_ticks => finest,
            () if coarser.len() <= max_ticks => coarser,
            () => {
                let stride = decades.len().div_ceil(max_ticks).max(1);
                decades.into_iter().step_by(stride).collect()
            }
        }
    }

    /// Round values at equal distances.
    fn even_ticks(&self) -> Vec<f64> {
        let step = round_step(self.high - self.low);
        // Slightly more, so that rounding does not lose a tick at an end.
        let first = (self.low / step - 1e-9).ceil() as usize;
        let last = (self.high / step + 1e-9).floor() as usize;
        (first..=last).map(|index| index as f64 * step).collect()
    }
}

/// A step of 1, 2, 2.5 or 5 times a power of ten that makes four to six ticks.
fn round_step(high: f64) -> f64 {
    let unit = 10f64.powi(high.log10().floor() as i32);
    let steps = [0.2, 0.25, 0.5, 1.0, 2.0, 2.5].map(|step| step * unit);
    steps.into_iter().find(|step| high / step <= 6.0).unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::ChartScale::{Automatic, Linear, LinearZoomed, Logarithmic};
    use super::*;

    fn linear(values: &[f64]) -> ValueAxis {
        ValueAxis::of_scale(Linear, values)
    }

    fn zoomed(values: &[f64]) -> ValueAxis {
        ValueAxis::of_scale(LinearZoomed, values)
    }

    fn log(values: &[f64]) -> ValueAxis {
        ValueAxis::of_scale(Logarithmic, values)
    }

    fn automatic(values: &[f64]) -> ValueAxis {
        ValueAxis::of_scale(Automatic, values)
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_ends_at_a_tick() {
        let axis = linear(&[204e3, 405e3]);
        assert_eq!(axis.ticks(7), [0.0, 100e3, 200e3, 300e3, 400e3, 500e3]);
        assert_eq!(axis.position(250e3), 50.0);
        assert_eq!(axis.position(-1.0), 0.0);
        assert_eq!(axis.position(f64::NAN), 0.0);
    }

    #[test]
    fn a_zoomed_axis_starts_near_the_lowest_value() {
        let axis = zoomed(&[49_100.0, 50_900.0]);
        assert_eq!(axis.ticks(7), [49_500.0, 50_000.0, 50_500.0]);
        assert!((axis.position(50_000.0) - 50.0).abs() < 1e-9);
        assert_eq!(axis.position(1.0), 0.0);
        assert!(!zoomed(&[]).ticks(7).is_empty() && !zoomed(&[5.0]).ticks(7).is_empty());
    }

    #[test]
    fn a_log_axis_has_few_round_ticks() {
        let axis = log(&[0.063, 26.0]);
        let ticks = axis.ticks(7);
        assert_eq!(ticks.len(), 6, "{ticks:?}");
        for (tick, expected) in ticks.iter().zip([0.1, 0.3, 1.0, 3.0, 10.0, 30.0]) {
            assert!((tick / expected - 1.0).abs() < 1e-9, "{ticks:?}");
        }
        assert!(axis.position(0.063) > 0.0 && axis.position(26.0) < 100.0);
        let wide = log(&[1.0, 1e12]);
        assert!(wide.ticks(4).len() <= 4);
        assert!((2..=5).contains(&log(&[58_000.0, 2_410_000.0]).ticks(5).len()));
        assert_eq!(log(&[60.0, 80.0]).ticks(6), [50.0, 60.0, 70.0, 80.0, 90.0, 100.0]);
    }

    #[test]
    fn values_far_apart_get_a_log_axis() {
        assert!(automatic(&[17e3, 7e6]).is_log);
        assert!(!automatic(&[204e3, 405e3]).is_log);
    }

    #[test]
    fn an_axis_without_values_has_ticks() {
        for axis in [linear(&[]), log(&[]), automatic(&[]), log(&[f64::NAN, 0.0, -3.0])] {
            assert!(!axis.ticks(7).is_empty());
            assert!(axis.position(1.0).is_finite());
        }
    }

    #[test]
    fn axes_have_2_to_7_ascending_ticks_at_every_magnitude() {
        for exponent in -9..12 {
            for mantissa in [1.0, 1.7, 2.3, 3.1, 4.9, 5.0, 6.6, 9.99] {
                let value = mantissa * 10f64.powi(exponent);
                for axis in [linear(&[value]), log(&[value, value * 30.0])] {
                    let ticks = axis.ticks(7);
                    assert!((2..=7).contains(&ticks.len()), "{value}: {ticks:?}");
                    assert!(ticks.windows(2).all(|pair| axis.position(pair[0]) < axis.position(pair[1])));
                }
            }
        }
    }
}
