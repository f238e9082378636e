use super::*;
use proptest::prelude::*;

/// Number of experiments per simulation: enough to distinguish 95 % from 90 %.
const EXPERIMENTS: usize = 500;

/// Number of resamples in a simulation: fewer than in a real comparison, to save time.
const ROUNDS: usize = 199;

fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// One sample in eight is an outlier with six times the deviation.
fn hiccups(random: &mut fastrand::Rng) -> f64 {
    let size = if random.u8(..8) == 0 { 6.0 } else { 1.0 };
    size * normal(random)
}

/// Student's t with three degrees of freedom: heavy tails throughout.
fn heavy(random: &mut fastrand::Rng) -> f64 {
    let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
    normal(random) / (squares / 3.0).sqrt()
}

/// Share of intervals that contain the true centre, which is 0.
fn coverage(noise: fn(&mut fastrand::Rng) -> f64, n: usize) -> f64 {
    let mut random = fastrand::Rng::with_seed(n as u64);
    let mut hits = 0;
    for _ in 0..EXPERIMENTS {
        let samples: Vec<f64> = (0..n).map(|_| 0.05 * noise(&mut random)).collect();
        let (low, high) = bootstrap::bounds_by(&samples, ROUNDS).unwrap();
        hits += usize::from(low <= 0.0 && 0.0 <= high);
    }
    hits as f64 / EXPERIMENTS as f64
}

#[test]
fn confidence_intervals_cover_the_true_value_at_least_92_percent() {
    type Noise = fn(&mut fastrand::Rng) -> f64;
    let noises: [(&str, Noise); 3] = [("normal", normal), ("hiccups", hiccups), ("heavy", heavy)];
    for (name, noise) in noises {
        for n in [4, 6, 8, 12] {
            // Of equal configurations, `1 - coverage` are called better or worse: at most 7 %, plus
            // the uncertainty of 500 experiments (two standard errors are 2 %).
            let share = coverage(noise, n);
            assert!(
                share >= 0.92,
                "{name} noise, {n} samples: {share:.3} of the intervals contain the true value"
            );
        }
    }
}

#[test]
fn equal_configurations_rarely_differ_under_drift() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut differences = 0;
    for _ in 0..200 {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        // A B B A: the machine slows by 2 % each run, and runs scatter by 1 %.
        for (run, is_b) in [false, true, true, false, false, true, true, false].into_iter().enumerate() {
            let rate = 1e5 * 0.98f64.powi(run as i32) * (0.01 * normal(&mut random)).exp();
            if is_b { b.push(rate) } else { a.push(rate) }
        }
        differences += usize::from(compare(&a, &b).unwrap().verdict != ComparisonVerdict::NoDifferenceShown);
    }
    assert!(differences <= 14, "{differences} of 200");
}

#[test]
fn a_clear_difference_is_shown_from_four_pairs() {
    let a = [100.0, 102.0, 99.0, 101.0];
    let b = [150.0, 149.0, 152.0, 151.0];
    let better = compare(&a, &b).unwrap();
    assert_eq!(better.verdict, ComparisonVerdict::Better);
    assert!((better.ratio.median - 1.49).abs() < 0.03, "{better:?}");
    assert_eq!(better.ratio.samples, 4);
    assert_eq!(compare(&b, &a).unwrap().verdict, ComparisonVerdict::Worse);
    assert_eq!(better, compare(&a, &b).unwrap(), "the same samples give the same interval");
}

#[test]
fn one_outlier_in_eight_runs_does_not_hide_a_difference() {
    let a = [100.0, 101.0, 99.0, 100.0, 100.5, 99.5, 101.0, 100.0];
    let mut b = [121.0, 120.0, 119.5, 120.5, 120.0, 121.0, 120.5, 119.0];
    b[3] = 20.0;
    assert_eq!(compare(&a, &b).unwrap().verdict, ComparisonVerdict::Better);
}

#[test]
fn interval_of_equal_samples_has_zero_width() {
    let same = interval(&[5.0; 4]).unwrap();
    assert!((same.low.unwrap() - 5.0).abs() < 1e-9 && (same.high.unwrap() - 5.0).abs() < 1e-9);
    let but_one = interval(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0]).unwrap();
    assert!(but_one.low.unwrap() < 5.0 && but_one.high.unwrap() > 5.0, "{but_one:?}");
}

#[test]
fn too_few_samples_have_no_bounds_and_no_verdict() {
    let two = compare(&[1.0, 1.0], &[1.0, 1.0]).unwrap();
    assert_eq!(two.verdict, ComparisonVerdict::NoDifferenceShown);
    assert_eq!((two.ratio.median, two.ratio.low, two.ratio.high), (1.0, None, None));
    let json = serde_json::to_value(two).unwrap();
    assert_eq!(json["verdict"], "no-difference-shown");
    assert!(json["ratio"]["low"].is_null());
}

#[test]
fn empty_unpaired_and_non_positive_samples_are_refused() {
    assert_eq!(compare(&[], &[]), Err(StatsError::Empty));
    assert_eq!(compare(&[1.0], &[1.0, 2.0]), Err(StatsError::Unpaired { a: 1, b: 2 }));
    assert_eq!(compare(&[1.0, 0.0], &[1.0, 2.0]), Err(StatsError::NotPositive { value: 0.0 }));
    assert!(compare(&[1.0, f64::NAN], &[1.0, 2.0]).is_err());
    assert!(compare(&[1.0], &[f64::INFINITY]).is_err());
    assert!(interval(&[1.0, f64::NAN]).is_err());
    assert_eq!(interval(&[]), Err(StatsError::Empty));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn interval_bounds_enclose_the_median(samples in prop::collection::vec(-1e3..1e6f64, 1..10)) {
        let found = interval(&samples).unwrap();
        prop_assert_eq!(found.low.is_some(), samples.len() >= 3);
        if let (Some(low), Some(high)) = (found.low, found.high) {
            prop_assert!(low <= found.median && found.median <= high);
        }
    }
}
