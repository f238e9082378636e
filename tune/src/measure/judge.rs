//! Compares the windows of a measurement.

use linerate_host::stats::{self, ComparisonVerdict, ConfidenceInterval, RunFigure};

use super::{ChangeMeasurement, MeasuredService, ServiceSample, ServiceWindow, WindowOrder};

// With a greater change of the offered load, figures that depend on it are not judged.
const STEADY: f64 = 0.1;
// A service with fewer replies per datagram does not reply, as a syslog server.
const REPLIES: f64 = 0.1;

// Softirqs of a sample without a tick of 10 ms took some time, too. As zero, it would be an outlier on the logarithms
// that ratios are made of.
const HALF_TICK_NS: u64 = 5_000_000;

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
    value: fn(&ServiceSample, bool) -> Option<f64>,
}

const RULES: [FigureRule; 7] = [
    FigureRule {
        key: "answered_per_second",
        less_is_better: false,
        tolerance_ratio: 0.05,
        least_difference: 0.0,
        depends_on_load: true,
        value: |sample, replies| Some(sample.answered(replies) as f64 / sample.seconds),
    },
    FigureRule {
        key: "answered_ratio",
        less_is_better: false,
        tolerance_ratio: 0.005,
        least_difference: 0.0,
        depends_on_load: false,
        value: |sample, replies| {
            // Replies to datagrams of the sample before are no gain.
            (sample.offered() > 0)
                .then(|| sample.answered(replies) as f64 / sample.offered() as f64)
                .map(|ratio| ratio.min(1.0))
        },
    },
    FigureRule {
        key: "wait_p50_ns",
        less_is_better: true,
        tolerance_ratio: 0.25,
        least_difference: 50e3,
        depends_on_load: true,
        value: |sample, _| sample.wait_p50_ns,
    },
    FigureRule {
        key: "wait_p99_ns",
        less_is_better: true,
        tolerance_ratio: 0.5,
        least_difference: 500e3,
        depends_on_load: true,
        value: |sample, _| sample.wait_p99_ns,
    },
    FigureRule {
        key: "service_cpu_ns_per_transaction",
        less_is_better: true,
        tolerance_ratio: 0.15,
        least_difference: 0.0,
        depends_on_load: true,
        value: |sample, replies| sample.per_transaction(sample.service_cpu_ns?, replies),
    },
    FigureRule {
        key: "softirq_cpu_ns_per_transaction",
        less_is_better: true,
        tolerance_ratio: 0.5,
        least_difference: 0.0,
        depends_on_load: true,
        value: |sample, replies| sample.per_transaction(sample.softirq_cpu_ns?.max(HALF_TICK_NS), replies),
    },
    FigureRule {
        key: "highest_softirq_cpu_ns_per_transaction",
        less_is_better: true,
        tolerance_ratio: 0.5,
        least_difference: 0.0,
        depends_on_load: true,
        value: |sample, replies| {
            sample.per_transaction(sample.highest_softirq_cpu_ns?.max(HALF_TICK_NS), replies)
        },
    },
];

impl ServiceSample {
    /// Datagrams that came, lost ones included.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.arrived + self.buffer_drops + self.stage_drops
    }

    fn answered(&self, replies: bool) -> u64 {
        if replies { self.sent } else { self.read }
    }

    fn per_transaction(&self, ns: u64, replies: bool) -> Option<f64> {
        let answered = self.answered(replies);
        (answered > 0).then(|| ns as f64 / answered as f64)
    }
}

impl ChangeMeasurement {
    /// Judges windows in the order of time. Samples of the same configuration are taken together.
    #[must_use]
    pub fn new(service: MeasuredService, order: WindowOrder, windows: Vec<ServiceWindow>) -> Self {
        let samples = [false, true].map(|changed| {
            let same = windows.iter().filter(|window| window.changed == changed);
            same.flat_map(|window| &window.samples).collect::<Vec<_>>()
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
        let change = after / before.max(f64::MIN_POSITIVE) - 1.0;
        let mut caveats = Vec::new();
        // Alternated windows share slow changes between both configurations, so a change of the
        // load is an effect.
        let is_steady = order == WindowOrder::Alternate || change.abs() <= STEADY;
        if !is_steady {
            caveats.push(format!(
                "The offered load changed by {:+.0} %, so only the answered share is judged. Clients that wait for \
                 replies send less to a slower service; --measure=alternate separates that from other changes.",
                change * 100.0
            ));
        }
        let mut figures = Vec::new();
        for rule in &RULES {
            let values = samples.each_ref().map(|samples| {
                samples.iter().filter_map(|sample| (rule.value)(sample, replies)).collect::<Vec<_>>()
            });
            match rule.compare(&values) {
                Ok(mut figure) => {
                    let load_is_the_result = rule.key == "answered_per_second" && order == WindowOrder::Once;
                    if load_is_the_result || (rule.depends_on_load && !is_steady) {
                        figure.verdict = ComparisonVerdict::NoDifferenceShown;
                    }
                    figures.push(figure);
                }
                Err(why) => caveats.push(format!("{} could not be compared: {why}", rule.key)),
            }
        }
        let verdict = RunFigure::verdict_of(&figures);
        let answered_per_second = rate(&|sample| sample.answered(replies));
        Self { service, order, windows, offered_per_second, answered_per_second, figures, verdict, caveats }
    }

    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.verdict == ComparisonVerdict::Worse
    }
}

impl FigureRule {
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
            service_cpu_ns: Some(cpu_ns * answered + noise * 1_000),
            softirq_cpu_ns: Some(200_000_000 + noise),
            highest_softirq_cpu_ns: Some(100_000_000 + noise),
        }
    }

    fn window(changed: bool, answered: u64, cpu_ns: u64) -> ServiceWindow {
        let samples = [3, 1, 4, 1, 5, 9, 2, 6].map(|noise| sample(answered, cpu_ns, noise)).to_vec();
        ServiceWindow { changed, samples }
    }

    fn verdict(before: ServiceWindow, after: ServiceWindow) -> (ComparisonVerdict, Vec<String>) {
        let windows = vec![before, after];
        let measured = ChangeMeasurement::new(MeasuredService::default(), WindowOrder::Once, windows);
        (measured.verdict, measured.caveats)
    }

    #[test]
    fn the_same_windows_show_no_difference() {
        let (verdict, caveats) = verdict(window(false, 10_000, 5_000), window(true, 10_000, 5_000));
        assert_eq!((verdict, caveats), (ComparisonVerdict::NoDifferenceShown, Vec::new()));
    }

    #[test]
    fn losses_and_cpu_time_are_worse_and_less_cpu_time_is_better() {
        let before = || window(false, 10_000, 5_000);
        assert_eq!(verdict(before(), window(true, 9_800, 5_000)).0, ComparisonVerdict::Worse);
        assert_eq!(verdict(before(), window(true, 10_000, 7_000)).0, ComparisonVerdict::Worse);
        assert_eq!(verdict(before(), window(true, 10_000, 3_000)).0, ComparisonVerdict::Better);
    }

    #[test]
    fn with_another_load_only_the_answered_share_is_judged() {
        let mut halved = window(true, 10_000, 9_000);
        for sample in &mut halved.samples {
            (sample.arrived, sample.read, sample.sent) = (5_000, 5_000, 5_000);
        }
        let (verdict, caveats) = verdict(window(false, 10_000, 5_000), halved);
        assert_eq!(verdict, ComparisonVerdict::NoDifferenceShown);
        assert!(caveats[0].contains("changed by -50 %"), "{caveats:?}");
    }

    #[test]
    fn a_service_without_replies_is_judged_by_what_it_reads() {
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
