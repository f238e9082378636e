//! Extrapolates the counters of windows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::Known;

use super::CostReport;
use super::cost_tables::{CountedCost, CountedSpan, Counters, CpuReading, ThreadTables};
use super::pace::ProgramRates;
use super::tracer::TracePoint;

/// Windows required for an uncertainty.
const FEWEST: usize = 4;

// Student's distribution: the true mean is within this many standard errors of a sample mean, 19
// times out of 20. By degrees of freedom less three, from 4 samples on; the last value for more
// samples.
const STUDENT: [f64; 8] = [3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.2];

/// The mean of at least four samples, and half of its 95 % interval.
pub(super) fn mean_and_doubt(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let quantile = STUDENT[samples.len().saturating_sub(FEWEST).min(STUDENT.len() - 1)];
    (mean, quantile * (variance / count).sqrt())
}

/// A stretch of time at one pace, in one window or several.
#[derive(Debug)]
pub(super) struct TraceWindow {
    begin: Instant,
    before: ThreadTables,
    spans: BTreeMap<u32, CountedSpan>,
    windows: usize,
}

impl TraceWindow {
    pub(super) fn begin(tables: ThreadTables) -> Self {
        Self { begin: Instant::now(), before: tables, spans: BTreeMap::new(), windows: 0 }
    }

    pub(super) fn before(&self) -> &ThreadTables {
        &self.before
    }

    pub(super) fn is_empty(&self) -> bool {
        self.windows == 0
    }

    /// Adds a window. A CPU that went offline or online in the window is left out.
    pub(super) fn add(&mut self, begin: &TracePoint, end: &TracePoint) {
        self.windows += 1;
        for (cpu, reading) in window(begin, end) {
            let span = self.spans.entry(cpu).or_default();
            let (Some(from), Some(to)) = (begin.times.get(&cpu), end.times.get(&cpu)) else { continue };
            let traced_ns = from.until(to, u64::try_from(reading.at).unwrap_or(0));
            span.traced_ns += traced_ns;
            span.shares.push(reading.packets_ns() as f64 / traced_ns.max(1) as f64);
            span.reading.add(&reading);
        }
    }

    // Ends the stretch, and adds its counters: as they are if everything was traced, else scaled
    // to the elapsed time. The next stretch starts with these tables.
    pub(super) fn end(self, tables: ThreadTables, all_traced: bool, counted: &mut CountedCost) -> Self {
        let elapsed = nanoseconds(self.begin.elapsed());
        // A CPU that was offline in some windows was online for a part of the time only.
        let online = |windows: usize| u128::from(elapsed) * windows as u128 / self.windows.max(1) as u128;
        let elapsed_of = |span: &CountedSpan| {
            if all_traced { span.traced_ns } else { span.traced_ns.max(online(span.shares.len()) as u64) }
        };
        let scale = |cpu: u32| {
            let span = self.spans.get(&cpu).filter(|span| span.traced_ns > 0);
            span.map_or(1.0, |span| elapsed_of(span) as f64 / span.traced_ns as f64)
        };
        let growth = tables.since(&self.before);
        counted.tables.add(&growth, scale);
        for (cpu, span) in &self.spans {
            let sum = counted.cpus.entry(*cpu).or_default();
            sum.elapsed_ns += elapsed_of(span);
            sum.traced_ns += span.traced_ns;
            sum.reading.add(&span.reading.scaled(scale(*cpu)));
            if !all_traced {
                sum.shares.extend(&span.shares);
            }
        }
        Self::begin(tables)
    }
}

/// Counters of each CPU between two times.
fn window(begin: &TracePoint, end: &TracePoint) -> impl Iterator<Item = (u32, CpuReading)> {
    end.readings.iter().filter_map(|(cpu, reading)| Some((*cpu, reading.since(begin.readings.get(cpu)?))))
}

// Program runs on the CPU where they took most time.
pub(super) fn rates(begin: &TracePoint, end: &TracePoint, ns_a_run: Option<f64>) -> ProgramRates {
    let program_rates = |reading: CpuReading| {
        let seconds = reading.at.max(1) as f64 / 1e9;
        let irqs = reading.irq_events as f64 / seconds;
        ProgramRates { often: reading.events as f64 / seconds - irqs, irqs, ns_a_run }
    };
    let cpu_rates = window(begin, end).map(|(_, reading)| program_rates(reading));
    let highest =
        cpu_rates.max_by(|left, right| (left.often + left.irqs).total_cmp(&(right.often + right.irqs)));
    highest.unwrap_or(ProgramRates { often: 0.0, irqs: 0.0, ns_a_run })
}

// Time of packet processing per packet that entered the host; `None` without packets.
pub(super) fn ns_a_packet(begin: &TracePoint, end: &TracePoint) -> Option<f64> {
    let sums = window(begin, end).map(|(_, reading)| (reading.packets_ns(), reading.entered));
    let (ns, packets) = sums.fold((0, 0), |sum, added| (sum.0 + added.0, sum.1 + added.1));
    (ns > 0 && packets > 0).then(|| ns as f64 / packets as f64)
}

/// A note for the reader if not all of the time was counted.
pub(super) fn note(cost: &CostReport) -> Option<String> {
    let total = cost.all_cpus();
    if total.traced_ns >= total.elapsed_ns {
        return None;
    }
    let part = total.traced_ns as f64 / total.elapsed_ns as f64 * 100.0;
    let busiest = cost.cpus.iter().max_by_key(|cpu| cpu.packets_ns())?;
    let doubt_text = match &busiest.packets_share_doubt {
        Known::Value(doubt) => {
            format!(
                "the share of packets on CPU {} is right within {:.1} points, 19 times out of 20",
                busiest.cpu,
                doubt * 100.0
            )
        }
        Known::Unknown { why } => format!("how far shares may be off is not known: {why}"),
    };
    Some(format!(
        "to use less CPU time, {part:.1} % of the time was observed, in windows, and represents the rest: {doubt_text}"
    ))
}

impl CountedSpan {
    // Uncertainty of the share of packets from partial counting, 19 times out of 20, 0 to 1;
    // `None` with too few windows.
    pub(super) fn doubt(&self) -> Option<f64> {
        if self.traced_ns >= self.elapsed_ns {
            return Some(0.0);
        }
        if self.shares.len() < FEWEST {
            return None;
        }
        let (_, doubt) = mean_and_doubt(&self.shares);
        // Only the uncounted time is uncertain.
        let untraced_part = 1.0 - self.traced_ns as f64 / self.elapsed_ns as f64;
        Some(doubt * untraced_part.sqrt())
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::tracer::AskedAt;

    fn span(shares: &[f64]) -> CountedSpan {
        CountedSpan {
            elapsed_ns: 1_000_000,
            traced_ns: 10_000,
            shares: shares.to_vec(),
            ..CountedSpan::default()
        }
    }

    #[test]
    fn a_cpu_that_was_online_in_one_of_four_windows_is_extrapolated_to_a_quarter_of_the_time() {
        let begin = Instant::now().checked_sub(Duration::from_secs(4)).expect("four seconds since boot");
        let mut stretch = TraceWindow { begin, ..TraceWindow::begin(ThreadTables::default()) };
        let point = |cpus: &[u32], at: i64| {
            let time = begin + Duration::from_nanos(at.cast_unsigned());
            let reading = CpuReading { at, tasks: at / 2, ..CpuReading::default() };
            TracePoint {
                readings: cpus.iter().map(|cpu| (*cpu, reading)).collect(),
                times: cpus.iter().map(|cpu| (*cpu, AskedAt { before: time, after: time })).collect(),
            }
        };
        for window in 0..4 {
            let cpus: &[u32] = if window == 2 { &[0, 1] } else { &[0] };
            stretch.add(&point(cpus, window * 1_000_000), &point(cpus, window * 1_000_000 + 10_000));
        }
        let mut counted = CountedCost::default();
        stretch.end(ThreadTables::default(), false, &mut counted);
        let [always, once] = [0, 1].map(|cpu| &counted.cpus[&cpu]);
        assert!(always.elapsed_ns >= 4_000_000_000, "{always:?}");
        // Each is rounded by itself.
        assert!(once.elapsed_ns.abs_diff(always.elapsed_ns / 4) <= 1, "{once:?} {always:?}");
        assert_eq!((always.traced_ns, once.traced_ns), (40_000, 10_000));
        let half = once.elapsed_ns.cast_signed() / 2;
        assert!(once.reading.tasks.abs_diff(half) <= 1, "{once:?}");
    }

    #[test]
    fn doubt_is_zero_for_equal_windows_and_none_for_few() {
        assert_eq!(span(&[0.5; 9]).doubt(), Some(0.0));
        assert_eq!(span(&[0.5; 3]).doubt(), None);
        let whole = CountedSpan { traced_ns: 1_000_000, ..span(&[]) };
        assert_eq!(whole.doubt(), Some(0.0));
    }

    #[test]
    fn doubt_is_the_confidence_interval_of_the_mean() {
        let shares: Vec<f64> = (0..100).map(|at| if at % 2 == 0 { 0.4 } else { 0.6 }).collect();
        let doubt = span(&shares).doubt().expect("a doubt");
        assert!((doubt - 2.2 * 0.1005 / 10.0 * 0.99_f64.sqrt()).abs() < 1e-4, "{doubt}");
    }
}
