//! Compares the windows of a measurement.

use linerate_host::stats::{self, ComparisonVerdict, ConfidenceInterval, RunFigure};

use super::{ChangeMeasurement, MeasuredService, ServiceSample, ServiceWindow, WindowOrder};

// With a greater change of the offered load, figures that depend on it are not judged.
const STEADY: f64 = 0.1;
// A service with fewer replies per datagram does not reply, as a syslog server.
const REPLIES: f64 = 0.1;

// Fewer datagrams may be absent from a window by chance.
const LEAST_MISSED: f64 = 20.0;

const ANSWERED_RATIO: &str = "answered_ratio";
const ANSWERED_TOLERANCE: f64 = 0.005;

/// A figure of a service, and the smallest difference that counts. Figures of one host differ by less from one window
/// to the next while nothing is changed.
struct FigureRule {
    key: &'static str,
    less_is_better: bool,
    tolerance_ratio: f64,
    /// A smaller difference of the medians does not count, for any ratio.
    least_difference: f64,
    /// Whether the figure changes with the load alone.
    depends_on_load: bool,
    value: FigureValue,
}

/// The second argument is whether the service replies.
type FigureValue = fn(&ServiceSample, bool) -> Option<f64>;

const RULES: [FigureRule; 9] = [
    FigureRule {
        key: "answered_per_second",
        less_is_better: false,
        tolerance_ratio: 0.05,
        least_difference: 0.0,
        depends_on_load: true,
        value: |sample, replies| Some(sample.answered(replies) as f64 / sample.seconds),
    },
    FigureRule {
        key: ANSWERED_RATIO,
        less_is_better: false,
        tolerance_ratio: ANSWERED_TOLERANCE,
        least_difference: 0.0,
        depends_on_load: false,
        value: |sample, replies| {
            // Replies to datagrams of the sample before are no gain.
            (sample.offered() > 0)
                .then(|| sample.answered(replies) as f64 / sample.offered() as f64)
                .map(|ratio| ratio.min(1.0))
        },
    },
    FigureRule::time("wait_p50_ns", 0.25, 50e3, |sample, _| sample.wait_p50_ns),
    FigureRule::time("wait_p99_ns", 0.5, 500e3, |sample, _| sample.wait_p99_ns),
    FigureRule::time("reply_p50_ns", 0.25, 50e3, |sample, _| sample.reply_p50_ns),
    FigureRule::time("reply_p99_ns", 0.5, 500e3, |sample, _| sample.reply_p99_ns),
    FigureRule::cost("service_cpu_ns_per_transaction", |sample, replies| {
        sample.per_transaction(sample.service_cpu_ns?, replies)
    }),
    FigureRule::cost("softirq_cpu_ns_per_transaction", |sample, replies| {
        sample.per_transaction(sample.softirq_cpu_ns, replies)
    }),
    FigureRule::cost("highest_softirq_cpu_ns_per_transaction", |sample, replies| {
        sample.per_transaction(sample.highest_softirq_cpu_ns, replies)
    }),
];

impl ServiceSample {
    /// Datagrams that arrived, including lost datagrams.
    pub fn offered(&self) -> u64 {
        self.arrived + self.buffer_drops + self.stage_drops
    }

    fn answered(&self, replies: bool) -> u64 {
        if replies { self.sent } else { self.read }
    }

    fn per_transaction(&self, ns: u64, replies: bool) -> Option<f64> {
        let answered = self.answered(replies);
        // Without any softirq, packets are processed by threads, whose time is not in this figure.
        (answered > 0 && ns > 0).then(|| ns as f64 / answered as f64)
    }
}

impl ChangeMeasurement {
    /// Judges windows in the order of time. Samples of the same configuration are combined.
    pub fn new(
        service: MeasuredService,
        order: WindowOrder,
        generated_per_second: Option<f64>,
        windows: Vec<ServiceWindow>,
    ) -> Self {
        let samples = [false, true].map(|changed| {
            let matching = windows.iter().filter(|window| window.changed == changed);
            matching.flat_map(|window| &window.samples).collect::<Vec<_>>()
        });
        let sum = |figure: fn(&ServiceSample) -> u64| -> u64 {
            windows.iter().flat_map(|window| &window.samples).map(figure).sum()
        };
        let replies = sum(|sample| sample.sent) as f64 > REPLIES * sum(|sample| sample.read) as f64;
        let rate = |figure: &dyn Fn(&ServiceSample) -> u64| {
            samples.each_ref().map(|samples| {
                let count: u64 = samples.iter().map(|sample| figure(sample)).sum();
                count as f64 / samples.iter().map(|sample| sample.seconds).sum::<f64>().max(f64::MIN_POSITIVE)
            })
        };
        let offered_per_second = rate(&ServiceSample::offered);
        let [before, after] = offered_per_second;
        let load_change = after / before.max(f64::MIN_POSITIVE) - 1.0;
        let mut caveats = Vec::new();
        // Alternated windows share slow changes between both configurations, and generated load does not
        // change, so a change of the load is an effect.
        let load_is_known = order == WindowOrder::Alternate || generated_per_second.is_some();
        let is_steady = load_is_known || load_change.abs() <= STEADY;
        if !is_steady {
            caveats.push(format!(
                "The offered load changed by {:+.0} %, so only the answered share is judged. Clients that wait for \
                 replies send less to a slower service; --measure=alternate separates that from other changes.",
                load_change * 100.0
            ));
        }
        let mut figures = Vec::new();
        for rule in &RULES {
            let values = samples.each_ref().map(|samples| {
                samples.iter().filter_map(|sample| (rule.value)(sample, replies)).collect::<Vec<_>>()
            });
            match rule.compare(&values) {
                Ok(mut figure) => {
                    let load_is_the_result = rule.key == "answered_per_second" && !load_is_known;
                    if load_is_the_result || (rule.depends_on_load && !is_steady) {
                        figure.verdict = ComparisonVerdict::NoDifferenceShown;
                    }
                    figures.push(figure);
                }
                Err(error) => caveats.push(format!("{} could not be compared: {error}", rule.key)),
            }
        }
        caveats.extend(without_gains_of_losses(&mut figures));
        let mut verdict = RunFigure::verdict_of(&figures);
        let changed_seconds: f64 = samples[1].iter().map(|sample| sample.seconds).sum();
        if after == 0.0 && before * changed_seconds >= LEAST_MISSED {
            verdict = ComparisonVerdict::Worse;
            caveats.push(format!("No datagram arrives with the changes, {before:.0}/s did before."));
        }
        let answered_per_second = rate(&|sample| sample.answered(replies));
        Self {
            service,
            order,
            generated_per_second,
            windows,
            offered_per_second,
            answered_per_second,
            figures,
            verdict,
            caveats,
        }
    }

    pub fn is_worse(&self) -> bool {
        self.verdict == ComparisonVerdict::Worse
    }
}

/// Removes the verdict "better" from times if more datagrams may be lost than before: a datagram
/// that is dropped by a full buffer does not wait in it.
fn without_gains_of_losses(figures: &mut [RunFigure]) -> Option<String> {
    let ratio = figures.iter().find(|figure| figure.key == ANSWERED_RATIO)?.ratio;
    if ratio.low.is_some_and(|low| low >= 1.0 - ANSWERED_TOLERANCE) {
        return None;
    }
    let times = figures
        .iter_mut()
        .filter(|figure| figure.key.starts_with("wait_") || figure.key.starts_with("reply_"));
    let better: Vec<&mut RunFigure> =
        times.filter(|figure| figure.verdict == ComparisonVerdict::Better).collect();
    let keys = better.iter().map(|figure| figure.key.as_str()).collect::<Vec<_>>().join(", ");
    let caveat = (!better.is_empty()).then(|| {
        format!(
            "{keys}: shorter, but the answered share may be lower, and datagrams that are lost do not wait."
        )
    });
    better.into_iter().for_each(|figure| figure.verdict = ComparisonVerdict::NoDifferenceShown);
    caveat
}

impl FigureRule {
    const fn time(
        key: &'static str,
        tolerance_ratio: f64,
        least_difference: f64,
        value: FigureValue,
    ) -> Self {
        Self { key, less_is_better: true, tolerance_ratio, least_difference, depends_on_load: true, value }
    }

    /// CPU time per transaction.
    const fn cost(key: &'static str, value: FigureValue) -> Self {
        Self::time(key, 0.15, 0.0, value)
    }

    fn compare(&self, values: &[Vec<f64>; 2]) -> Result<RunFigure, String> {
        let interval = |samples: &Vec<f64>| -> Result<ConfidenceInterval, String> {
            // A sample without replies has no logarithm.
            let positive: Vec<f64> = samples.iter().map(|value| value.max(1e-6)).collect();
            stats::interval(&positive).map_err(|error| error.to_string())
        };
        let values = [interval(&values[0])?, interval(&values[1])?];
        let mut figure = RunFigure::new(self.key, self.less_is_better, values, self.tolerance_ratio)
            .map_err(|error| error.to_string())?;
        if (values[1].median - values[0].median).abs() < self.least_difference {
            figure.verdict = ComparisonVerdict::NoDifferenceShown;
        }
        Ok(figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of a service that answers this share of 10,000 datagrams.
    fn sample(answered: u64, cpu_ns: u64, noise: u64) -> ServiceSample {
        ServiceSample {
            seconds: 0.5,
            arrived: answered + noise,
            read: answered + noise,
            sent: answered + noise,
            buffer_drops: 10_000 - answered,
            stage_drops: 0,
            wait_p50_ns: Some(10e3 + noise as f64),
            wait_p99_ns: Some(50e3 + noise as f64),
            reply_p50_ns: Some(20e3 + noise as f64),
            reply_p99_ns: Some(70e3 + noise as f64),
            service_cpu_ns: Some(cpu_ns * answered + noise * 1_000),
            softirq_cpu_ns: 200_000_000 + noise,
            highest_softirq_cpu_ns: 100_000_000 + noise,
        }
    }

    fn window(changed: bool, answered: u64, cpu_ns: u64) -> ServiceWindow {
        let samples = [3, 1, 4, 1, 5, 9, 2, 6].map(|noise| sample(answered, cpu_ns, noise)).to_vec();
        ServiceWindow { changed, samples }
    }

    fn verdict(before: ServiceWindow, after: ServiceWindow) -> (ComparisonVerdict, Vec<String>) {
        let windows = vec![before, after];
        let measurement =
            ChangeMeasurement::new(MeasuredService::default(), WindowOrder::Once, None, windows);
        (measurement.verdict, measurement.caveats)
    }

    #[test]
    fn equal_windows_show_no_difference() {
        let (verdict, caveats) = verdict(window(false, 10_000, 5_000), window(true, 10_000, 5_000));
        assert_eq!((verdict, caveats), (ComparisonVerdict::NoDifferenceShown, Vec::new()));
    }

    #[test]
    fn losses_and_more_cpu_time_are_worse_and_less_cpu_time_is_better() {
        let before = || window(false, 10_000, 5_000);
        assert_eq!(verdict(before(), window(true, 9_800, 5_000)).0, ComparisonVerdict::Worse);
        assert_eq!(verdict(before(), window(true, 10_000, 7_000)).0, ComparisonVerdict::Worse);
        assert_eq!(verdict(before(), window(true, 10_000, 3_000)).0, ComparisonVerdict::Better);
    }

    #[test]
    fn shorter_waits_are_not_better_if_datagrams_are_lost() {
        let mut after = window(true, 10_000, 5_000);
        for (place, sample) in after.samples.iter_mut().enumerate() {
            sample.wait_p99_ns = Some(10e3 + place as f64);
            // Half of the samples lose a tenth, so that no loss is shown.
            let losses = if place % 2 == 0 { 1_000 } else { 0 };
            (sample.sent, sample.buffer_drops) = (sample.sent - losses, losses);
        }
        let mut before = window(false, 10_000, 5_000);
        before.samples.iter_mut().for_each(|sample| sample.wait_p99_ns = Some(5e6));
        let (result, caveats) = verdict(before.clone(), after.clone());
        assert_eq!(result, ComparisonVerdict::NoDifferenceShown);
        assert!(caveats[0].contains("wait_p99_ns: shorter, but"), "{caveats:?}");
        after.samples.iter_mut().for_each(|sample| (sample.sent, sample.buffer_drops) = (10_000, 0));
        assert_eq!(verdict(before, after).0, ComparisonVerdict::Better);
    }

    #[test]
    fn changed_load_limits_the_verdict_to_the_answered_share() {
        let mut half_load = window(true, 10_000, 9_000);
        for sample in &mut half_load.samples {
            (sample.arrived, sample.read, sample.sent) = (5_000, 5_000, 5_000);
        }
        let (verdict, caveats) = verdict(window(false, 10_000, 5_000), half_load);
        assert_eq!(verdict, ComparisonVerdict::NoDifferenceShown);
        assert!(caveats[0].contains("changed by -50 %"), "{caveats:?}");
    }

    #[test]
    fn service_that_nothing_reaches_any_more_is_worse() {
        let mut unreached = window(true, 10_000, 5_000);
        unreached.samples.iter_mut().for_each(|sample| {
            *sample = ServiceSample { seconds: sample.seconds, ..ServiceSample::default() };
        });
        let (result, caveats) = verdict(window(false, 10_000, 5_000), unreached.clone());
        assert_eq!(result, ComparisonVerdict::Worse);
        assert!(caveats.iter().any(|caveat| caveat.starts_with("No datagram arrives")), "{caveats:?}");
        let mut nearly_idle = unreached.clone();
        nearly_idle.changed = false;
        nearly_idle.samples[0].arrived = 9;
        assert_eq!(verdict(nearly_idle, unreached).0, ComparisonVerdict::NoDifferenceShown);
    }

    #[test]
    fn services_without_replies_are_judged_by_datagrams_read() {
        let silent = |changed, answered| {
            let mut window = window(changed, answered, 5_000);
            window.samples.iter_mut().for_each(|sample| sample.sent = 0);
            window
        };
        assert_eq!(
            verdict(silent(false, 10_000), silent(true, 10_000)).0,
            ComparisonVerdict::NoDifferenceShown
        );
        assert_eq!(verdict(silent(false, 10_000), silent(true, 9_000)).0, ComparisonVerdict::Worse);
    }
}
