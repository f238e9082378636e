//! Load generators, which account for every request.
//!
//! Searches and comparisons drive a [`Generator`]. [`GeneratorOptions::start`] starts a generator:
//! with live XDP frames if the route to the service allows that, otherwise with UDP sockets. Its
//! threads, sockets and BPF programs serve many slots.

mod account;
mod bursts;
mod clock;
mod drain;
mod options;
mod plan;
mod schedule;
mod socket;
mod thread;
mod xdp;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{GeneratorError, invalid};
use crate::outcome::{SlotInterval, SlotOutcome};

pub use options::{GeneratorBackend, GeneratorOptions, LiveFrames};

/// The most outstanding requests a flow may have in window mode.
pub const MAX_WINDOW: u32 = 1 << 16;

/// The most requests sent by one system call.
pub const MAX_BURST: usize = 64;

/// The shortest interval that is accounted for.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// Requests per second and thread that clones reach easily.
pub const CLONES_PER_SECOND: f64 = 750e3;

/// The most intervals of a slot.
pub const MAX_INTERVALS: usize = 8192;

/// The highest rate that can be requested, in requests per second.
pub const MAX_RATE: f64 = 1e9;

/// Offers load slot by slot.
pub trait Generator: Send {
    fn describe(&self) -> GeneratorDescription;

    /// Offers the load of `slot`, waits for stragglers and accounts for every request.
    ///
    /// # Errors
    /// A slot out of range, or a failure that leaves no sound account. Requests that could not be sent
    /// are counted in the outcome and are not errors.
    fn run(&mut self, slot: &LoadSlot) -> Result<SlotOutcome, GeneratorError> {
        self.watch(slot, &mut |_| {})
    }

    /// Like [`Generator::run`], and passes each interval of the slot to `observer` soon after its end if
    /// [`LoadSlot::interval`] is set. The number of answered requests is unknown then.
    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError>;

    /// A caveat about the outcomes so far.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// One period of load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadSlot {
    /// How requests are timed.
    pub mode: PacingMode,
    /// How long requests are sent.
    pub duration: Duration,
    /// The longest wait for stragglers afterwards. It ends early when all requests are answered,
    /// or, if there was a reply and `whole_drain` is false, after a silence of 50 ms, a tenth of
    /// this, or twice the longest latency (at most a quarter of this), whichever is longest.
    pub drain: Duration,
    /// Whether no silence ends the drain, so that every reply within it counts.
    #[serde(default)]
    pub whole_drain: bool,
    /// The length of the reported intervals, at least 10 ms; `None` for no intervals. See
    /// [`LoadSlot::interval_length`].
    pub interval: Option<Duration>,
    /// Whether a paced rate may leave as live frames, of which a thread can send more. Use it for
    /// overload, not for rates that are compared with other rates.
    pub live_frames: bool,
    /// Start in ns of `CLOCK_REALTIME`, so that several generators start together; `None`: at once.
    pub start_at_realtime_ns: Option<u64>,
}

/// How requests are timed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacingMode {
    /// Open loop: a fixed schedule over all flows, independent of the answers.
    Rate {
        /// Requests per second over all flows.
        per_second: f64,
    },
    /// Closed loop: each flow keeps a number of requests outstanding. With live frames and clones, the
    /// flows of a thread share the sum of their windows.
    Window { outstanding: u32 },
    /// As fast as possible, independent of the answers. The intended time of a request is its send time.
    Flood,
}

impl LoadSlot {
    /// Open loop at `per_second` for `duration`, with a drain of 1 s.
    pub fn rate(per_second: f64, duration: Duration) -> Self {
        LoadSlot::new(PacingMode::Rate { per_second }, duration)
    }

    /// Closed loop with `outstanding` requests per flow for `duration`, with a drain of 1 s.
    pub fn window(outstanding: u32, duration: Duration) -> Self {
        LoadSlot::new(PacingMode::Window { outstanding }, duration)
    }

    /// Permits live frames if clones are too slow for `highest_rate`: the highest rate, in requests
    /// per second from all threads, of this slot and all slots that are compared with it.
    #[must_use]
    pub fn permit_live_frames(self, highest_rate: f64, threads: usize) -> Self {
        LoadSlot { live_frames: highest_rate > CLONES_PER_SECOND * threads as f64, ..self }
    }

    /// `mode` for `duration`, at once, with a drain of 1 s and without intervals.
    pub fn new(mode: PacingMode, duration: Duration) -> Self {
        LoadSlot {
            mode,
            duration,
            drain: Duration::from_secs(1),
            whole_drain: false,
            interval: None,
            live_frames: false,
            start_at_realtime_ns: None,
        }
    }

    /// The length of the intervals that a generator reports: longer than requested if there would
    /// be more than [`MAX_INTERVALS`].
    pub fn interval_length(&self) -> Option<Duration> {
        let nanoseconds = clock::whole_ns(self.duration).div_ceil(MAX_INTERVALS as u64);
        self.interval.map(|interval| interval.max(Duration::from_nanos(nanoseconds)))
    }

    // Fails unless a generator with `threads` living threads can run the slot now.
    fn check_runnable(&self, threads: usize, cancel: &AtomicBool) -> Result<(), GeneratorError> {
        self.check()?;
        match (threads, cancel.load(Ordering::Relaxed)) {
            (0, _) => Err(GeneratorError::Worker),
            (_, true) => Err(GeneratorError::Cancelled),
            _ => Ok(()),
        }
    }

    /// Fails if the slot is out of range.
    ///
    /// # Errors
    /// A rate that is not positive or over [`MAX_RATE`], a window of zero or over [`MAX_WINDOW`], a
    /// duration below 1 ms, an interval below [`LEAST_INTERVAL`].
    pub fn check(&self) -> Result<(), GeneratorError> {
        match self.mode {
            PacingMode::Rate { per_second } if !(per_second > 0.0 && per_second <= MAX_RATE) => {
                return invalid(format!(
                    "rate of {per_second} requests/s: it must be a positive number of at most {MAX_RATE:e}"
                ));
            }
            PacingMode::Window { outstanding } if !(1..=MAX_WINDOW).contains(&outstanding) => {
                return invalid(format!(
                    "window of {outstanding} outstanding requests per flow: it must be 1 to {MAX_WINDOW}"
                ));
            }
            _ => {}
        }
        check_duration(self.duration)?;
        match self.interval {
            Some(interval) if interval < LEAST_INTERVAL => {
                invalid(format!("interval too short: give it at least {} ms", LEAST_INTERVAL.as_millis()))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn check_duration(duration: Duration) -> Result<(), GeneratorError> {
    if duration < Duration::from_millis(1) {
        return invalid("slot too short: give it at least 1 ms");
    }
    Ok(())
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorDescription {
    /// `xdp` (live frames) or `socket`.
    pub backend: String,
    /// `echo`, `dns`, `ntp`, `radius` or `raw`.
    pub workload: String,
    /// Threads that send and receive.
    pub threads: usize,
    /// Source ports over all threads.
    pub flows: usize,
    /// UDP payload of the longest request.
    pub payload_bytes: usize,
    /// Destinations, which the flows use in turn.
    pub targets: Vec<SocketAddr>,
    /// Source addresses; empty if the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The CPUs of its threads; empty if they are not pinned.
    pub cpus: Vec<u32>,
    /// Whether fragments are forbidden (IP_MTU_DISCOVER = IP_PMTUDISC_DO).
    pub no_fragment: bool,
    /// The niceness set on its threads.
    pub nice: Option<i32>,
    /// The smallest SO_RCVBUF of a flow; 0 without sockets.
    pub receive_buffer_bytes: u64,
    /// One line per requested feature that is not available.
    pub fallbacks: Vec<String>,
}

impl GeneratorDescription {
    /// Describes several generators on different hosts as one: sums threads and flows, and omits CPUs.
    /// `None` if `descriptions` is empty.
    pub fn merge_all(descriptions: &[&GeneratorDescription]) -> Option<GeneratorDescription> {
        let (first, others) = descriptions.split_first()?;
        let mut merged = (*first).clone();
        if !others.is_empty() {
            merged.cpus.clear();
        }
        for other in others {
            if !merged.backend.split('+').any(|backend| backend == other.backend) {
                merged.backend = format!("{}+{}", merged.backend, other.backend);
            }
            merged.threads = merged.threads.saturating_add(other.threads);
            merged.flows = merged.flows.saturating_add(other.flows);
            add_missing(&mut merged.targets, &other.targets);
            add_missing(&mut merged.sources, &other.sources);
            add_missing(&mut merged.fallbacks, &other.fallbacks);
            merged.no_fragment &= other.no_fragment;
            merged.nice = merged.nice.filter(|nice| other.nice == Some(*nice));
            merged.receive_buffer_bytes = merged.receive_buffer_bytes.min(other.receive_buffer_bytes);
        }
        Some(merged)
    }
}

// Added to the sequences of a flow, so that tags are not predictable.
fn tag_salt(run: u64, flow: u32) -> u64 {
    mix(run ^ mix(u64::from(flow) + 1))
}

// Mixes all bits (the finalizer of splitmix64).
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

fn add_missing<T: PartialEq + Clone>(items: &mut Vec<T>, candidates: &[T]) {
    for item in candidates {
        if !items.contains(item) {
            items.push(item.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_at_most_8192_intervals() {
        let length = |seconds: u64, interval_ms: u64| {
            let interval = Some(Duration::from_millis(interval_ms));
            let slot = LoadSlot { interval, ..LoadSlot::rate(1.0, Duration::from_secs(seconds)) };
            slot.interval_length().map(|length| length.as_secs_f64())
        };
        assert_eq!(length(1_000, 1_000), Some(1.0));
        assert_eq!(length(16_384, 1_000), Some(2.0));
        assert!(length(999_999_999, 10).is_some_and(|seconds| seconds > 122_000.0));
        assert_eq!(LoadSlot::rate(1.0, Duration::from_secs(9)).interval_length(), None);
    }
}
