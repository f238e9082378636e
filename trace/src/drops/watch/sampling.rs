//! Counting for parts of the time, where all of the time would take too much from the CPUs.

use std::time::{Duration, Instant};

use linerate_host::{Host, Known};

use super::DropsWatch;
use super::reading::SocketDrops;
use crate::TraceError;
use crate::drops::ledger::{PacketEvidence, SampledTime};
use crate::drops::seen::PortSubject;

/// What counting may take on average, as a share of one CPU.
const BUDGET: f64 = 0.02;

/// How long packets are counted at a time, without what beginning and ending take.
const WINDOW: Duration = Duration::from_millis(100);

/// The longest pause between two windows.
const LONGEST_PAUSE: Duration = Duration::from_millis(1800);

/// How often it is checked what counting takes while it goes on.
const CHECK: Duration = Duration::from_millis(250);

/// A watch that counts all the time while that is cheap, and in windows otherwise.
///
/// On a host with many packets per second the programs take a good part of a CPU, which the server looked at needs itself.
#[derive(Debug)]
pub struct SampledWatch {
    watch: DropsWatch,
    begun: Instant,
    first_drops: SocketDrops,
    state: SamplingState,
    /// The windows that ended.
    windows: Option<PacketEvidence>,
    /// Those since the last lap.
    lap: Option<PacketEvidence>,
    has_paused: bool,
    /// CPU time that counting took, s, and what it took when last looked at, as a share of one CPU.
    taken_seconds: f64,
    share: f64,
    /// The largest share seen.
    largest_share: f64,
}

#[derive(Debug, Clone, Copy)]
enum SamplingState {
    Counting {
        since: Instant,
        /// When it was last checked what counting takes.
        checked: Option<Instant>,
    },
    Paused,
}

impl SampledWatch {
    /// Begins to count; see [`DropsWatch::start`].
    ///
    /// # Errors
    /// As [`DropsWatch::start`].
    pub fn start(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Result<Self, TraceError> {
        let mut watch = DropsWatch::start(host, subject, interfaces)?;
        watch.look.end_timing_thread();
        Ok(Self {
            begun: Instant::now(),
            first_drops: watch.first.after.clone(),
            watch,
            state: SamplingState::Counting { since: Instant::now(), checked: None },
            windows: None,
            lap: None,
            has_paused: false,
            taken_seconds: 0.0,
            share: 0.0,
            largest_share: 0.0,
        })
    }

    /// Pauses, or goes on, if it is time; returns when to call this again.
    ///
    /// # Errors
    /// [`TraceError`] when the kernel's tables cannot be read or programs cannot be attached.
    pub fn turn(&mut self, host: &Host) -> Result<Duration, TraceError> {
        let SamplingState::Counting { since, checked } = self.state else {
            self.watch.resume(host)?;
            self.state = SamplingState::Counting { since: Instant::now(), checked: None };
            return Ok(WINDOW);
        };
        self.check();
        if self.share <= BUDGET {
            return Ok(if checked.is_some() { CHECK } else { WINDOW });
        }
        self.close(host)?;
        self.watch.pause()?;
        self.state = SamplingState::Paused;
        self.has_paused = true;
        let counted = since.elapsed().min(2 * WINDOW);
        Ok(counted.mul_f64(self.share / BUDGET - 1.0).min(LONGEST_PAUSE))
    }

    /// All windows since it began.
    ///
    /// # Errors
    /// [`TraceError`] when the kernel's tables cannot be read.
    pub fn total(mut self, host: &Host) -> Result<PacketEvidence, TraceError> {
        if matches!(self.state, SamplingState::Counting { .. }) {
            self.check();
            self.close(host)?;
        }
        let mut evidence = self.windows.unwrap_or_default();
        if self.has_paused {
            let of_seconds = self.begun.elapsed().as_secs_f64();
            let drops = self.watch.socket_drops(host).since(&self.first_drops);
            evidence.sampled = Some(SampledTime {
                of_seconds,
                counting_cpu_share: self.largest_share,
                socket_drops_packets: drops.iter().map(|grown| grown.packets).fold(0, u64::saturating_add),
            });
            if let Known::Value(overhead) = &mut evidence.overhead {
                overhead.cpu_share = self.taken_seconds / of_seconds;
            }
        }
        Ok(evidence)
    }

    /// What came since the last lap, or the beginning; `None` if nothing was counted since.
    ///
    /// # Errors
    /// [`TraceError`] when the kernel's tables cannot be read.
    pub fn lap(&mut self, host: &Host) -> Result<Option<PacketEvidence>, TraceError> {
        if !self.has_paused {
            return self.watch.lap(host).map(Some);
        }
        Ok(self.lap.take())
    }

    /// Sees what counting takes.
    fn check(&mut self) {
        let SamplingState::Counting { since, checked } = &mut self.state else { return };
        self.share = self.watch.look.time_now().unwrap_or(self.share);
        self.largest_share = self.largest_share.max(self.share);
        self.taken_seconds += self.share * checked.unwrap_or(*since).elapsed().as_secs_f64();
        *checked = Some(Instant::now());
    }

    fn close(&mut self, host: &Host) -> Result<(), TraceError> {
        let (window, lap) = self.watch.total_and_lap(host)?;
        let joined = |sum: Option<PacketEvidence>, new: PacketEvidence| match sum {
            Some(sum) => sum.joined(&new),
            None => new,
        };
        self.windows = Some(joined(self.windows.take(), window));
        self.lap = Some(joined(self.lap.take(), lap));
        Ok(())
    }
}
