//! The processor's time stamp counter.

use std::time::{Duration, Instant};

// Length of the measurement: an error of a microsecond is then 20 millionths.
const WATCHED: Duration = Duration::from_millis(50);

// Number of readings. The fastest counts, because others may be interrupted.
const READINGS: usize = 16;

/// The frequency of the counter in kHz; `None` on a processor other than x86-64.
pub(crate) fn kilohertz() -> Option<u64> {
    let (begin, first) = reading()?;
    std::thread::sleep(WATCHED);
    let (end, last) = reading()?;
    let microseconds = u64::try_from((end - begin).as_micros()).ok()?;
    (last.checked_sub(first)? * 1000).checked_div(microseconds)
}

/// A time and the counter at that time.
fn reading() -> Option<(Instant, u64)> {
    (0..READINGS)
        .filter_map(|_| {
            let before = ticks()?;
            let now = Instant::now();
            Some((ticks()?.checked_sub(before)?, now, before))
        })
        .min_by_key(|(elapsed_ticks, _, _)| *elapsed_ticks)
        .map(|(elapsed_ticks, now, before)| (now, before + elapsed_ticks / 2))
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Option<u64> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn two_tsc_frequency_measurements_agree() {
        let (first, second) =
            (kilohertz().expect("x86-64 has a TSC"), kilohertz().expect("x86-64 has a TSC"));
        assert!(first.abs_diff(second) < first / 100, "{first} kHz and {second} kHz");
    }
}
