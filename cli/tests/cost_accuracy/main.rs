//! Compares the time that `linerate cost` reports as taken from a process with the time that the
//! process really lost. Cargo runs test programs one after another, so no other test disturbs it.

mod scene;
#[path = "../command/schema.rs"]
mod schema;
#[expect(dead_code, reason = "shared with the other tests of the command")]
#[path = "../command/support.rs"]
mod support;
#[path = "../command/turns.rs"]
mod turns;

use serde_json::Value;

use scene::{CostProcess, CostTestHost, FrameSender, OpensslSpeed, openssl};
use support::skip;

/// Largest difference between the two, as a share of wall time.
const ALLOWED: f64 = 0.03;

/// Shares of the CPU that packets should take. Without LINERATE_TEST_LONG, only the first two are
/// tested.
const LOADS: [f64; 3] = [0.8, 0.0, 0.4];

/// Inter-processor interrupts per second.
const INTERRUPTS: f64 = 5e3;

const BUSY: &str = "others keep this machine busy: openssl alone is not equally fast from second to second";

/// Largest difference between attributed and elapsed time, as a share.
const ACCOUNTING_TOLERANCE: f64 = 0.01;

/// First guess of the packets per second that take all of a CPU.
const GUESS: f64 = 5e3;

/// Maximum number of corrections of a rate.
const CORRECTIONS: usize = 6;

/// Largest relative difference between openssl's speeds before and after a sample. If the machine's
/// own speed changed meanwhile, there is no baseline to compare with.
const STEADY: f64 = 0.015;

/// Maximum number of measurements per sample of a series, with or without a steady speed. Other
/// guests of the host may use its CPUs for many seconds.
const ATTEMPTS_PER_SAMPLE: usize = 5;

/// Maximum number of series. If the median difference of one series is too large, the samples of
/// the next series count too. On a busy machine, single samples at a high load differ by up to a
/// tenth in both directions.
const SERIES: usize = 3;

/// How far a load may be below its target, as a share of the CPU.
const SHORT_OF: f64 = 0.15;

/// One measurement of a process under load. Both values are shares of wall time that it lost to
/// packets while it was scheduled.
#[derive(Debug)]
struct CostAccuracySample {
    /// Calculated from the speed of the process.
    lost_share: f64,
    /// Reported by `linerate cost`.
    reported_share: f64,
}

#[test]
fn cost_matches_the_time_that_a_process_loses_to_packets_and_interrupts() {
    let Some(host) = CostTestHost::up() else { return };
    let is_long = std::env::var_os("LINERATE_TEST_LONG").is_some();
    let loads = if is_long { &LOADS[..] } else { &LOADS[..2] };
    for load in loads.iter().copied() {
        let rate = if load > 0.0 { rate_for(&host, load, load * GUESS) } else { 0.0 };
        let frames = || (rate > 0.0).then(|| host.frames(rate, load));
        let label = format!("load {load}: {rate:.0} frames/s");
        let Some(samples) = matching_samples(&label, is_long, &frames) else { return };
        let reached = samples.iter().map(|sample| sample.lost_share).fold(0.0, f64::max);
        if reached < load - SHORT_OF {
            let [reached, load] = [reached, load].map(|share| share * 100.0);
            skip(format!("frames sent here took {reached:.0} % of the CPU where {load:.0} % were wanted"));
        }
    }
    // The time that an interrupt takes outside its tracepoints is largest in VMs with many of them.
    matching_samples(&format!("{INTERRUPTS} interrupts/s"), is_long, &|| {
        Some(host.frames_over_rps(INTERRUPTS))
    });
}

/// Measures series of samples until the shares match. Fails if the last series does not match
/// either. Prints a SKIP line and returns `None` if the machine is too busy.
fn matching_samples<'h>(
    label: &str,
    is_long: bool,
    frames: &dyn Fn() -> Option<FrameSender<'h>>,
) -> Option<Vec<CostAccuracySample>> {
    let (count, seconds) = if is_long { (7, 5) } else { (3, 1) };
    let mut samples = Vec::new();
    for _ in 0..SERIES {
        let series = samples_of(frames, count, seconds);
        if series.len() < count {
            skip(BUSY);
            return None;
        }
        samples.extend(series);
        if median_difference(&mut samples).abs() <= ALLOWED {
            break;
        }
    }
    for sample in &samples {
        eprintln!("{label}: {sample:?}, difference {:+.4}", difference(sample));
    }
    let difference = median_difference(&mut samples);
    assert!(difference.abs() <= ALLOWED, "{label}: the shares differ by {difference:+.4}: {samples:?}");
    Some(samples)
}

/// The median difference of the samples. Sorts the samples by difference.
fn median_difference(samples: &mut [CostAccuracySample]) -> f64 {
    samples.sort_by(|one, other| difference(one).total_cmp(&difference(other)));
    difference(&samples[samples.len() / 2])
}

fn difference(sample: &CostAccuracySample) -> f64 {
    sample.reported_share - sample.lost_share
}

/// Measures under load, with a measurement without packets before and after each sample. Returns
/// the samples with a steady speed.
fn samples_of<'h>(
    frames: &dyn Fn() -> Option<FrameSender<'h>>,
    count: usize,
    seconds: u32,
) -> Vec<CostAccuracySample> {
    let mut samples = Vec::new();
    let (mut before, ()) = openssl(seconds, || ());
    for _ in 0..count * ATTEMPTS_PER_SAMPLE {
        if samples.len() == count {
            break;
        }
        let (loaded, taken_ns) = measure(frames, seconds);
        let (after, ()) = openssl(seconds, || ());
        if (pace(after) / pace(before) - 1.0).abs() <= STEADY {
            let idle = f64::midpoint(pace(before), pace(after));
            let wall_ns = f64::from(seconds) * 1e9;
            let lost_share = lost_ns(loaded, idle) / wall_ns;
            samples.push(CostAccuracySample { lost_share, reported_share: taken_ns / wall_ns });
        }
        before = after;
    }
    samples
}

/// Bytes per second that openssl encrypts, per ns of its CPU time. All runs are equally long.
fn pace(idle: OpensslSpeed) -> f64 {
    idle.bytes_per_second / idle.ran_ns
}

/// Time that openssl was scheduled without doing work, in ns.
fn lost_ns(loaded: OpensslSpeed, idle: f64) -> f64 {
    loaded.ran_ns - loaded.bytes_per_second / idle
}

/// openssl's speed under load, and the time that cost reports as taken from it, in ns.
fn measure<'h>(frames: &dyn Fn() -> Option<FrameSender<'h>>, seconds: u32) -> (OpensslSpeed, f64) {
    let frames = frames();
    let cost = CostProcess::start(&["--by", "thread", "--top", "1000", "--json", "-"]);
    let (loaded, document) = openssl(seconds, || cost.document());
    drop(frames);
    accounting_balances(&document);
    (loaded, taken_from_process_ns(&document, loaded.pid))
}

/// Time that was taken from a process, in ns.
fn taken_from_process_ns(document: &Value, pid: u32) -> f64 {
    let victims = document["result"]["victims"].as_array().expect("victims");
    let of_process = victims.iter().filter(|victim| victim["pid"] == pid);
    of_process.map(|victim| ns(victim, "taken_ns")).sum()
}

fn ns(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no '{key}' in {value}"))
}

/// All of a CPU's time has to be attributed, and only once.
fn accounting_balances(document: &Value) {
    let cpus = document["result"]["cpus"].as_array().expect("CPUs");
    assert!(!cpus.is_empty());
    for cpu in cpus {
        let parts = PARTS.iter().map(|part| ns(cpu, part)).sum::<f64>();
        let elapsed = ns(cpu, "elapsed_ns");
        assert!(
            (parts / elapsed - 1.0).abs() <= ACCOUNTING_TOLERANCE,
            "{parts} of {elapsed} ns are attributed: {cpu}"
        );
    }
}

/// The parts of a CPU's time.
const PARTS: [&str; 7] =
    ["idle_ns", "tasks_ns", "net_rx_ns", "net_tx_ns", "other_softirq_ns", "nic_irq_ns", "other_irq_ns"];

/// Finds the packets per second that take this share of the CPU, starting from a guess: the time
/// per packet depends on the batch size.
fn rate_for(host: &CostTestHost, load: f64, guess: f64) -> f64 {
    let (idle, ()) = openssl(1, || ());
    let mut rate = guess;
    for _ in 0..CORRECTIONS {
        let frames = host.frames(rate, load);
        let (loaded, ()) = openssl(1, || ());
        drop(frames);
        let lost_share = (lost_ns(loaded, pace(idle)) / 1e9).max(0.05);
        if (lost_share - load).abs() < SHORT_OF / 2.0 {
            break;
        }
        rate *= (load / lost_share).clamp(0.7, 1.3);
    }
    rate
}
