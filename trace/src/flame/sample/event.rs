//! Opens the event of each CPU.

use std::io;
use std::time::{Duration, Instant};

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, ReadFormat, SampleFlag, Sampler};

use super::{WHAT, refusal};
use crate::TraceError;
use crate::flame::profile::SampleEvent;
use crate::gaps::ClockGaps;

// Ring size per CPU in bytes, and the limit of unprivileged users (`kernel.perf_event_mlock_kb`,
// 516 with the ring's first page).
pub(super) const RINGS: [usize; 2] = [2 << 20, 512 << 10];

// Reported instead of cycles.
const NO_CYCLES: &str = "the CPU has no usable cycle counter (a virtual machine without a PMU?)";

/// Duration of the calibration; in its first half the CPU speeds up.
const SPIN: Duration = Duration::from_millis(20);

/// Valid cycles per second of a CPU.
const SPEEDS_HZ: std::ops::Range<f64> = 1e8..2e10;

// The kernel's default of kernel.perf_event_max_sample_rate, which it does not check for a number of
// cycles.
const MOST_HZ: u32 = 100_000;

#[derive(Debug, Clone, Copy)]
enum SamplePace {
    // A number of cycles, not a frequency: with a frequency, samples of mostly idle CPUs would
    // stand for less time than samples of busy CPUs.
    Cycles(u64),
    /// Clock samples per second.
    Clock(u32),
}

/// Opens a disabled sampler per CPU: of cycles, or of the clock without cycles, with the first
/// permitted ring size.
pub(super) fn open(
    cpus: &[u32],
    frequency_hz: u32,
    rings: &[usize],
) -> Result<(SampleEvent, Vec<(u32, Sampler)>), TraceError> {
    let why = match speed() {
        Ok(_) if frequency_hz > MOST_HZ => {
            return Err(kernel_failed(&io::Error::from_raw_os_error(libc::EINVAL)));
        }
        Ok(hz) => match open_all(cpus, SamplePace::Cycles((hz / f64::from(frequency_hz)) as u64), rings) {
            Ok(samplers) => return Ok((SampleEvent::CpuCycles, samplers)),
            Err(error) => explain(&error),
        },
        Err(why) => why,
    };
    let samplers =
        open_all(cpus, SamplePace::Clock(frequency_hz), rings).map_err(|error| kernel_failed(&error))?;
    Ok((SampleEvent::CpuClock { why }, samplers))
}

// Cycles per second of a busy CPU, or why they cannot be counted.
fn speed() -> Result<f64, String> {
    let hz = rate(Hardware::CPU_CYCLES).map_err(|error| explain(&error))?;
    if SPEEDS_HZ.contains(&hz) {
        Ok(hz)
    } else {
        Err("this machine's cycle counter is there and does not count".to_owned())
    }
}

// Time per sample, ns: this thread is sampled at a high rate, and measures the gaps of its clock.
// `None` if the kernel takes no samples of it.
pub(super) fn time_a_sample(event: &SampleEvent) -> io::Result<Option<f64>> {
    const OFTEN_HZ: u64 = 4_999;
    let measure_gaps = || {
        let mut gaps = ClockGaps::default();
        gaps.watch(|elapsed| elapsed < SPIN);
        gaps.ns as f64
    };
    let baseline_ns = measure_gaps();
    let mut builder = match event {
        SampleEvent::CpuCycles => Builder::new(Hardware::CPU_CYCLES),
        SampleEvent::CpuClock { .. } => Builder::new(Software::CPU_CLOCK),
    };
    let [.., ring] = RINGS;
    builder.include_kernel().sample_frequency(OFTEN_HZ).sample(SampleFlag::TID | SampleFlag::CALLCHAIN);
    let mut sampler = builder.wakeup_watermark(ring / 2).build()?.sampled(ring)?;
    sampler.enable()?;
    let sampled_ns = measure_gaps();
    sampler.disable()?;
    let mut samples = 0_u32;
    while sampler.next_record().is_some() {
        samples += 1;
    }
    Ok((samples > 0).then(|| (sampled_ns - baseline_ns).max(0.0) / f64::from(samples)))
}

/// Events per second of CPU time in this thread.
fn rate(event: impl perf_event::events::Event) -> io::Result<f64> {
    let mut builder = Builder::new(event);
    builder.include_kernel().read_format(ReadFormat::TOTAL_TIME_RUNNING);
    let mut counter = builder.build()?;
    let mut count = || -> io::Result<(u64, Duration)> {
        let begin = Instant::now();
        counter.reset()?;
        counter.enable()?;
        while begin.elapsed() < SPIN / 2 {
            std::hint::spin_loop();
        }
        counter.disable()?;
        let data = counter.read_full()?;
        Ok((data.count(), data.time_running().unwrap_or_default()))
    };
    // A reset does not restart the time.
    let (_, before) = count()?;
    let (events, after) = count()?;
    Ok(events as f64 / after.saturating_sub(before).as_secs_f64())
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => NO_CYCLES.to_owned(),
        Some(libc::EBUSY) => "another program uses the cycle counter".to_owned(),
        _ => format!("the cycle counter is not available ({error})"),
    }
}

fn open_all(cpus: &[u32], pace: SamplePace, rings: &[usize]) -> io::Result<Vec<(u32, Sampler)>> {
    cpus.iter().map(|cpu| Ok((*cpu, open_on(*cpu, pace, rings)?))).collect()
}

fn open_on(cpu: u32, pace: SamplePace, rings: &[usize]) -> io::Result<Sampler> {
    let mut last_error = io::Error::from_raw_os_error(libc::ENOMEM);
    for ring in rings.iter().copied() {
        let mut builder = builder(cpu, pace, ring);
        let counter = match builder.read_format(ReadFormat::LOST).build() {
            // The loss counter exists since Linux 6.0; loss records are older.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                builder.read_format(ReadFormat::empty()).build()?
            }
            result => result?,
        };
        match counter.sampled(ring) {
            Ok(sampler) => return Ok(sampler),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn builder(cpu: u32, pace: SamplePace, ring: usize) -> Builder<'static> {
    let mut builder = match pace {
        SamplePace::Cycles(_) => Builder::new(Hardware::CPU_CYCLES),
        SamplePace::Clock(_) => Builder::new(Software::CPU_CLOCK),
    };
    match pace {
        SamplePace::Cycles(period) => builder.sample_period(period).exclude_guest(true),
        SamplePace::Clock(frequency_hz) => builder.sample_frequency(u64::from(frequency_hz)),
    };
    builder
        .any_pid()
        .one_cpu(cpu as usize)
        .include_kernel()
        .sample(SampleFlag::TID | SampleFlag::CALLCHAIN)
        // No process waits for a wakeup: rings are polled.
        .wakeup_watermark(ring / 2);
    builder
}

pub(crate) fn kernel_failed(error: &io::Error) -> TraceError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            TraceError::NotPermitted { what: WHAT, capabilities: "CAP_PERFMON" }
        }
        Some(libc::ENOSYS) => TraceError::NotHere {
            what: WHAT,
            feature: "perf events".to_owned(),
            since: "come with CONFIG_PERF_EVENTS",
        },
        Some(libc::EINVAL) => refusal(
            "the kernel does not sample this often: ask for less, or raise kernel.perf_event_max_sample_rate"
                .to_owned(),
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            refusal("too few open files for an event a CPU: raise RLIMIT_NOFILE (ulimit -n)".to_owned())
        }
        _ => refusal(format!("perf_event_open: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_clock_rate_is_one_second_per_second() {
        match rate(Software::TASK_CLOCK) {
            Ok(ns) => assert!((ns / 1e9 - 1.0).abs() < 0.1, "{ns} ns per second"),
            Err(error) => {
                super::super::tests::skip("task_clock_rate_is_one_second_per_second", error.to_string());
            }
        }
    }
}
