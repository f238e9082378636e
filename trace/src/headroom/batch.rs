//! The cost of a datagram as batches grow: a line through the mean times of batches by their size.

use serde::{Deserialize, Serialize};

/// Half of `LONGEST_NS` of bpf/headroom.bpf.c: batches end after that time at the latest.
const HALF_OF_LONGEST_NS: u64 = 5_000_000;

/// Classes of batches in bpf/headroom.bpf.c.
const CLASSES: usize = 56;

// Relative deviation of a single batch, and of a class with many batches from the line: as seen of servers at rest.
const BATCH_DEVIATION: f64 = 0.3;
const CLASS_DEVIATION: f64 = 0.04;

// Classes this far above and below the line do not count. Interruptions only add time, and
// datagrams queue up meanwhile: interruptions by the hypervisor cause large and slow batches,
// without any fault of the server.
const ABOVE: f64 = 0.12;
const BELOW: f64 = 0.3;
const ROUNDS: usize = 8;

/// `struct batches` of bpf/headroom.bpf.c: batches of about the same number of datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub(super) struct BatchClass {
    pub(super) batches: u64,
    pub(super) packets: u64,
    pub(super) ns: u64,
    /// Runs of the measuring programs, whose time is part of `ns`.
    pub(super) runs: u64,
}

/// By size.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct BatchClasses(pub(super) [BatchClass; CLASSES]);

/// The CPU time of batches: `batch_ns + packets * packet_ns`, without the measurement's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchCost {
    /// Per datagram now, the part of each batch included.
    pub now_ns: f64,
    /// Per batch: wake-up, system calls without a datagram, start of a softirq.
    pub batch_ns: f64,
    /// Per datagram in a batch without end, as when the CPU is never idle.
    pub packet_ns: f64,
    /// Standard error of `packet_ns`.
    pub error_ns: f64,
    /// Datagrams per batch now.
    pub packets_per_batch: f64,
}

impl Default for BatchClasses {
    fn default() -> Self {
        Self([BatchClass::default(); CLASSES])
    }
}

impl BatchClasses {
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|class| self.0[class].since(&before.0[class])))
    }

    /// Whether most batches end only because they are too long.
    pub(super) fn are_endless(&self) -> bool {
        let sum = |figure: fn(&BatchClass) -> u64| self.0.iter().map(figure).sum::<u64>();
        sum(|class| class.ns) > sum(|class| class.batches) * HALF_OF_LONGEST_NS
    }
}

impl BatchClass {
    fn since(&self, before: &Self) -> Self {
        Self {
            batches: self.batches.saturating_sub(before.batches),
            packets: self.packets.saturating_sub(before.packets),
            ns: self.ns.saturating_sub(before.ns),
            runs: self.runs.saturating_sub(before.runs),
        }
    }

    fn own_ns(&self, run_ns: f64) -> f64 {
        (self.ns as f64 - self.runs as f64 * run_ns).max(0.0)
    }
}

/// A class as a point: datagrams, mean time, and the weight of a relative deviation.
struct ClassPoint {
    packets: f64,
    ns: f64,
    weight: f64,
    /// Datagrams of all its batches.
    all: f64,
}

impl BatchCost {
    /// The line of least relative deviations; `None` without datagrams. `run_ns` is the time of a run of the programs.
    ///
    /// If all batches have the same size, the two parts cannot be distinguished. Then the part per
    /// batch is assumed to be half of the present time per datagram, plus or minus the same amount.
    pub(super) fn fit(classes: &[BatchClass], run_ns: f64) -> Option<Self> {
        let used_classes: Vec<&BatchClass> = classes.iter().filter(|class| class.packets > 0).collect();
        let sum =
            |figure: &dyn Fn(&BatchClass) -> f64| used_classes.iter().map(|class| figure(class)).sum::<f64>();
        let (packets, batches) = (sum(&|class| class.packets as f64), sum(&|class| class.batches as f64));
        if packets == 0.0 {
            return None;
        }
        let now_ns = sum(&|class| class.own_ns(run_ns)) / packets;
        let points: Vec<ClassPoint> =
            used_classes.iter().map(|class| ClassPoint::from_class(class, run_ns)).collect();
        let median = median_ns(&used_classes, run_ns);
        // Many interrupted classes can draw the line away from most datagrams. A second line starts
        // at the median.
        let lines = [None, Some((0.0, median))].map(|start| settled_line(&points, median, start));
        let near_datagrams = |line: &(f64, f64, f64)| {
            points.iter().filter(|point| point.is_near(line)).map(|near_point| near_point.all).sum::<f64>()
        };
        let [line, median_line] = lines;
        let (batch_ns, packet_ns, error_ns) =
            if near_datagrams(&median_line) > near_datagrams(&line) { median_line } else { line };
        Some(Self { now_ns, batch_ns, packet_ns, error_ns, packets_per_batch: packets / batches })
    }
}

impl ClassPoint {
    fn from_class(class: &BatchClass, run_ns: f64) -> Self {
        let batches = class.batches as f64;
        let variance = BATCH_DEVIATION.powi(2) / batches + CLASS_DEVIATION.powi(2);
        Self {
            packets: class.packets as f64 / batches,
            ns: class.own_ns(run_ns) / batches,
            weight: variance.recip(),
            all: class.packets as f64,
        }
    }

    // Relative distance from the line, from -1 to 1. A point at -1 or 1 does not count.
    fn distance(&self, expected: f64) -> f64 {
        let deviation = (self.ns - expected) / expected;
        (deviation / if deviation > 0.0 { ABOVE } else { BELOW }).clamp(-1.0, 1.0)
    }

    fn is_near(&self, (batch_ns, packet_ns, _): &(f64, f64, f64)) -> bool {
        self.distance((batch_ns + packet_ns * self.packets).max(1.0)).abs() < 1.0
    }
}

fn settled_line(points: &[ClassPoint], median: f64, start: Option<(f64, f64)>) -> (f64, f64, f64) {
    let mut line = least_squares(points, median, start);
    for _ in 1..ROUNDS {
        line = least_squares(points, median, Some((line.0, line.1)));
    }
    line
}

// Time per datagram of the class that contains the middle datagram. An interrupted class does not
// change it.
fn median_ns(classes: &[&BatchClass], run_ns: f64) -> f64 {
    let mut class_times: Vec<(f64, u64)> =
        classes.iter().map(|class| (class.own_ns(run_ns) / class.packets as f64, class.packets)).collect();
    class_times.sort_by(|left, right| left.0.total_cmp(&right.0));
    let half = class_times.iter().map(|(_, packets)| packets).sum::<u64>() / 2;
    let mut datagrams = 0;
    let median_class = class_times.iter().find(|(_, packets)| {
        datagrams += packets;
        datagrams > half
    });
    median_class.or(class_times.last()).map_or(0.0, |(ns, _)| *ns)
}

// Weighted least squares of relative deviations: the part per batch, the part per datagram, and the
// error of the latter. Points far from the previous line do not count (Tukey's biweight).
fn least_squares(points: &[ClassPoint], median: f64, previous_line: Option<(f64, f64)>) -> (f64, f64, f64) {
    // The assumption about the part per batch if sizes do not vary.
    let half = (median / 2.0).max(1.0);
    let (mut ones, mut cross, mut squares) = (half.powi(-2), 0.0, 0.0);
    let (mut times, mut products) = (half * ones, 0.0);
    for point in points.iter().filter(|point| point.ns > 0.0) {
        let expected =
            previous_line.map_or(point.ns, |(batch, packet)| (batch + packet * point.packets).max(1.0));
        let deviation = point.distance(expected);
        let weight = point.weight * (1.0 - deviation * deviation).powi(2) / expected.powi(2);
        ones += weight;
        cross += weight * point.packets;
        squares += weight * point.packets * point.packets;
        times += weight * point.ns;
        products += weight * point.packets * point.ns;
    }
    let determinant = ones * squares - cross * cross;
    if squares == 0.0 || determinant <= 0.0 {
        return (0.0, median, median);
    }
    let batch = (squares * times - cross * products) / determinant;
    // The time of a batch cannot be negative.
    let (batch, packet) = if batch < 0.0 {
        (0.0, products / squares)
    } else {
        (batch, (ones * products - cross * times) / determinant)
    };
    (batch, packet.max(1.0), (ones / determinant).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(batches: u64, size: u64, ns: f64) -> BatchClass {
        let packets = batches * size;
        BatchClass { batches, packets, ns: (batches as f64 * ns) as u64, runs: packets }
    }

    #[test]
    fn fit_ignores_a_batch_interrupted_by_the_hypervisor() {
        let line = |size: u64| 7_000.0 + 3_250.0 * size as f64;
        let sizes = [(19_000, 3), (4_400, 4), (50, 7), (7, 30), (8, 43)];
        let mut classes: Vec<BatchClass> =
            sizes.iter().map(|(n, size)| class(*n, *size, line(*size))).collect();
        classes.push(class(1, 256, 9_400_000.0));
        let cost = BatchCost::fit(&classes, 50.0).expect("a fit");
        assert!(
            (cost.packet_ns - 3_200.0).abs() < 150.0 && (cost.batch_ns - 7_000.0).abs() < 700.0,
            "{cost:?}"
        );
        assert!(cost.error_ns < 300.0, "{cost:?}");
    }

    #[test]
    fn fit_ignores_a_few_classes_far_below_the_line() {
        // Softirqs of an echo server at 140,000 per second: batches of 64, the budget of a poll, are too cheap.
        let measurements = [
            (22_456, 17.4, 1424.0),
            (94, 20.6, 1391.0),
            (45, 35.0, 1725.0),
            (8, 43.9, 1396.0),
            (17, 64.0, 643.0),
            (7, 101.3, 1735.0),
            (5, 285.6, 1612.0),
            (2, 716.0, 1761.0),
        ];
        let classes = measurements.map(|(batches, size, ns): (u64, f64, f64)| {
            let packets = batches as f64 * size;
            BatchClass { batches, packets: packets as u64, ns: (packets * ns) as u64, runs: 0 }
        });
        let cost = BatchCost::fit(&classes, 0.0).expect("a fit");
        assert!((1_300.0..1_450.0).contains(&cost.packet_ns), "{cost:?}");
    }

    #[test]
    fn equal_batch_sizes_leave_a_large_fit_error() {
        let cost = BatchCost::fit(&[class(10_000, 1, 8_050.0)], 50.0).expect("a fit");
        assert_eq!(cost.now_ns, 8_000.0);
        assert!(cost.packet_ns + cost.batch_ns - 8_000.0 < 1.0 && cost.error_ns > 3_900.0, "{cost:?}");
        let larger = BatchCost::fit(&[class(10_000, 10, 80_500.0)], 50.0).expect("a fit");
        assert!(
            larger.error_ns < cost.error_ns / 4.0,
            "a batch of ten has little cost per batch: {larger:?}"
        );
        assert_eq!(BatchCost::fit(&[class(10, 0, 500.0)], 50.0), None, "no packets");
    }
}
