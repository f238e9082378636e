//! Counts all of the time, or only parts of it if all of it would use too much CPU.

use std::time::{Duration, Instant};

use linerate_host::{Host, Known};

use super::reading::SocketDrops;
use super::{CountedWindow, LONGEST_REPLY_WAIT};
use crate::TraceError;
use crate::drops::ledger::{PacketEvidence, SampledTime};
use crate::drops::packet_counts::PortSubject;

/// Average share of one CPU for counting.
const BUDGET: f64 = 0.02;

// Without the time for starting and stopping.
const WINDOW: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_millis(1800);

/// Interval of the check of the CPU share.
const CHECK: Duration = Duration::from_millis(250);

/// If every packet is counted: time from the start to the first timing of the programs, and between
/// two timings.
const FIRST_TIMING: Duration = Duration::from_millis(40);
const TIMING_INTERVAL: Duration = Duration::from_millis(490);

/// Observes packets until it is dropped: all the time while that is cheap, and in windows otherwise.
///
/// On a host with many packets per second the programs use a good part of a CPU, which the observed
/// server needs itself.
#[derive(Debug)]
pub struct DropsWatch {
    window: CountedWindow,
    is_exact: bool,
    begun: Instant,
    first_drops: SocketDrops,
    state: SamplingState,
    windows: Option<PacketEvidence>,
    // Ended windows since the last lap.
    lap: Option<PacketEvidence>,
    has_paused: bool,
    // CPU time of counting, s, and its last measured share of one CPU.
    taken_seconds: f64,
    share: f64,
    largest_share: f64,
}

#[derive(Debug, Clone, Copy)]
enum SamplingState {
    Counting { since: Instant, checked: Option<Instant> },
    Paused,
}

impl DropsWatch {
    /// Observes the calling thread's network namespace, which must be that of `host`. `interfaces`:
    /// the interfaces whose counters are read; empty as in [`linerate_host::Scope`].
    ///
    /// # Errors
    /// [`TraceError`] if the programs cannot be loaded. Unreadable counters are part of the
    /// evidence.
    pub fn start(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Result<Self, TraceError> {
        let window = CountedWindow::start(host, subject, interfaces)?;
        Ok(Self {
            begun: Instant::now(),
            first_drops: window.first.after.clone(),
            window,
            is_exact: false,
            state: SamplingState::Counting { since: Instant::now(), checked: None },
            windows: None,
            lap: None,
            has_paused: false,
            taken_seconds: 0.0,
            share: 0.0,
            largest_share: 0.0,
        })
    }

    /// Counts every packet, whatever that costs.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// Times the programs, which takes 10 ms, and pauses or resumes if it is time; returns when to
    /// call this again.
    pub fn turn(&mut self, host: &Host) -> Result<Duration, TraceError> {
        let SamplingState::Counting { since, checked } = self.state else {
            self.window.resume(host)?;
            self.state = SamplingState::Counting { since: Instant::now(), checked: None };
            return Ok(WINDOW);
        };
        let until_first = FIRST_TIMING.saturating_sub(since.elapsed());
        if self.is_exact && !until_first.is_zero() {
            return Ok(until_first);
        }
        self.check()?;
        if self.is_exact {
            return Ok(TIMING_INTERVAL);
        }
        if self.share <= BUDGET {
            return Ok(if checked.is_some() { CHECK } else { WINDOW });
        }
        self.close(host, WINDOW)?;
        self.window.look.pause()?;
        self.state = SamplingState::Paused;
        self.has_paused = true;
        let counted_time = since.elapsed().min(2 * WINDOW);
        Ok(counted_time.mul_f64(self.share / BUDGET - 1.0).min(LONGEST_PAUSE))
    }

    pub fn total(mut self, host: &Host) -> Result<PacketEvidence, TraceError> {
        if matches!(self.state, SamplingState::Counting { .. }) {
            if !self.is_exact {
                self.check()?;
            }
            self.close(host, LONGEST_REPLY_WAIT)?;
        }
        let mut evidence = self.windows.unwrap_or_default();
        if self.has_paused {
            let elapsed_seconds = self.begun.elapsed().as_secs_f64();
            let drops = self.window.socket_drops(host).since(&self.first_drops);
            evidence.sampled = Some(SampledTime {
                of_seconds: elapsed_seconds,
                counting_cpu_share: self.largest_share,
                socket_drops_packets: drops.iter().map(|grown| grown.packets).fold(0, u64::saturating_add),
            });
            if let Known::Value(overhead) = &mut evidence.overhead {
                overhead.cpu_share = self.taken_seconds / elapsed_seconds;
            }
        }
        Ok(evidence)
    }

    /// Everything since the last lap, or the start; `None` if nothing was counted.
    pub fn lap(&mut self, host: &Host) -> Result<Option<PacketEvidence>, TraceError> {
        let open = match self.state {
            SamplingState::Counting { .. } => Some(self.window.lap(host)?),
            SamplingState::Paused => None,
        };
        Ok(joined(self.lap.take(), open))
    }

    fn check(&mut self) -> Result<(), TraceError> {
        let SamplingState::Counting { since, checked } = &mut self.state else { return Ok(()) };
        self.share = self.window.look.time_now()?;
        self.largest_share = self.largest_share.max(self.share);
        self.taken_seconds += self.share * checked.unwrap_or(*since).elapsed().as_secs_f64();
        *checked = Some(Instant::now());
        Ok(())
    }

    // Ends a window; waits up to `longest` for replies.
    fn close(&mut self, host: &Host, longest: Duration) -> Result<(), TraceError> {
        let (window, lap) = self.window.total_and_lap(host, longest)?;
        self.windows = joined(self.windows.take(), Some(window));
        self.lap = joined(self.lap.take(), Some(lap));
        Ok(())
    }
}

fn joined(sum: Option<PacketEvidence>, added: Option<PacketEvidence>) -> Option<PacketEvidence> {
    sum.into_iter().chain(added).reduce(|sum, added| sum.joined(&added))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::skip_unless_permitted;

    #[test]
    fn laps_continue_after_a_pause() {
        let host = Host::live();
        let watch = DropsWatch::start(&host, &PortSubject::default(), &[]);
        let Some(mut watch) = skip_unless_permitted("laps_continue_after_a_pause", watch) else { return };
        // As after a busy moment: a window has ended, and counting goes on without pauses.
        watch.close(&host, WINDOW).unwrap();
        watch.window.look.pause().unwrap();
        (watch.state, watch.has_paused) = (SamplingState::Paused, true);
        assert!(watch.lap(&host).unwrap().is_some(), "the ended window");
        assert!(watch.lap(&host).unwrap().is_none(), "nothing is counted in a pause");
        watch.turn(&host).unwrap();
        let laps = [(); 2].map(|()| watch.lap(&host).unwrap().expect("a lap").seen.seconds);
        let total = watch.total(&host).unwrap();
        assert!(total.sampled.is_some() && laps.iter().sum::<f64>() < total.seen.seconds, "{laps:?}");
    }
}
