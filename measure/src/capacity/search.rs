//! Finding the highest rate that holds.

use std::time::Instant;

use super::{CapacitySample, Ended, Event, Probe, SearchOptions, Verdict};
use crate::error::Error;
use crate::generator::{Generator, MAX_RATE, Mode, Slot};
use crate::latency::Latency;
use crate::stats;

/// The fewest requests in a slot from which anything is concluded.
const FEWEST_REQUESTS: f64 = 20.0;

/// Without a bracket, from one rate to the next while all hold, or while none does.
const STRIDE: f64 = 2.0;

/// Beyond a bracket that proved wrong: the first step, which doubles (as a logarithm) up to [`STRIDE`].
const FIRST_WIDENING: f64 = 1.2;

/// From one rate to the next while nothing at all is answered.
const SILENT_STRIDE: f64 = 10.0;

/// Searches for the highest paced rate that holds.
///
/// Without a bracket the rate doubles from [`SearchOptions::start_per_second`] until it does not hold; within a
/// bracket, given or found, it halves the distance on a logarithmic scale. A rate that does not hold is tried once
/// more before that is believed, since a machine hiccups. The rate found must then hold again as often as
/// [`SearchOptions::confirm`] says; if it does not, the next lower one is tried.
///
/// # Errors
/// Options out of range, or a generator that cannot run a slot. A service that never answers is no error: its
/// capacity is 0. Being cancelled is none either.
pub fn search(generator: &mut dyn Generator, options: &SearchOptions<'_>) -> Result<CapacitySample, Error> {
    options.check()?;
    let mut search = Search {
        generator,
        options,
        began: Instant::now(),
        slots: Vec::new(),
        holds: None,
        fails: None,
        widening: FIRST_WIDENING,
    };
    let lowest = FEWEST_REQUESTS / options.slot.as_secs_f64();
    let ended = match search.narrow(lowest)? {
        Some(ended) => ended,
        None => search.confirm(lowest)?,
    };
    Ok(search.result(ended))
}

struct Search<'a, 'o> {
    generator: &'a mut dyn Generator,
    options: &'a SearchOptions<'o>,
    began: Instant,
    slots: Vec<Probe>,
    /// The highest rate that held, and the slots in which it did, as indices.
    holds: Option<(f64, Vec<usize>)>,
    /// The lowest rate that did not, and why.
    fails: Option<(f64, Verdict)>,
    widening: f64,
}

impl Search<'_, '_> {
    /// Brings a holding and a failing rate together; tells if the search ends before that.
    fn narrow(&mut self, lowest: f64) -> Result<Option<Ended>, Error> {
        while let Some(rate) = self.next_rate(lowest) {
            if let Some(ended) = self.stop() {
                return Ok(Some(ended));
            }
            match self.try_twice(rate)? {
                Ok(slot) => self.holds = Some((rate, vec![slot])),
                Err(verdict) => self.fails = Some((rate, verdict)),
            }
        }
        Ok(self.holds.is_none().then_some(Ended::NothingHolds))
    }

    /// The rate to try next; none when nothing is left to find out.
    fn next_rate(&mut self, lowest: f64) -> Option<f64> {
        let resolution = self.options.resolution;
        let holds = self.holds.as_ref().map(|(rate, _)| *rate);
        match (holds, self.fails, self.options.bracket) {
            (Some(low), Some((high, _)), _) => (high / low > resolution).then(|| (low * high).sqrt()),
            (None, None, None) => Some(self.options.start_per_second.max(lowest).min(MAX_RATE)),
            (None, None, Some((low, high))) => Some((low * high).sqrt().max(lowest).min(MAX_RATE)),
            (Some(low), None, _) if low >= MAX_RATE => None,
            (Some(low), None, Some((_, high))) if low < high => {
                Some(if high / low > resolution { (low * high).sqrt() } else { high }.min(MAX_RATE))
            }
            (Some(low), None, Some(_)) => Some((low * self.widen()).min(MAX_RATE)),
            (Some(low), None, None) => Some((low * STRIDE).min(MAX_RATE)),
            (None, Some((high, _)), _) if high <= lowest => None,
            (None, Some((high, Verdict::NothingAnswered)), _) => Some((high / SILENT_STRIDE).max(lowest)),
            (None, Some((high, _)), Some((low, _))) if high > low => {
                Some(if high / low > resolution { (low * high).sqrt() } else { low }.max(lowest))
            }
            (None, Some((high, _)), Some(_)) => Some((high / self.widen()).max(lowest)),
            (None, Some((high, _)), None) => Some((high / STRIDE).max(lowest)),
        }
    }

    fn widen(&mut self) -> f64 {
        let step = self.widening;
        self.widening = (step * step).min(STRIDE);
        step
    }

    /// Lets the rate found hold again, stepping down while it does not.
    fn confirm(&mut self, lowest: f64) -> Result<Ended, Error> {
        while let Some((rate, mut slots)) = self.holds.take() {
            let mut failed = None;
            for _ in 0..self.options.confirm {
                if let Some(ended) = self.stop() {
                    self.holds = Some((rate, slots));
                    return Ok(ended);
                }
                match self.try_twice(rate)? {
                    Ok(slot) => slots.push(slot),
                    Err(verdict) => {
                        failed = Some(verdict);
                        break;
                    }
                }
            }
            let Some(verdict) = failed else {
                self.holds = Some((rate, slots));
                return Ok(Ended::Confirmed);
            };
            self.fails = Some((rate, verdict));
            let mut lower = rate / self.options.resolution;
            while lower >= lowest {
                if let Some(ended) = self.stop() {
                    return Ok(ended);
                }
                match self.try_twice(lower)? {
                    Ok(slot) => {
                        self.holds = Some((lower, vec![slot]));
                        break;
                    }
                    Err(verdict) => self.fails = Some((lower, verdict)),
                }
                lower /= self.options.resolution;
            }
        }
        Ok(Ended::NothingHolds)
    }

    /// Offers a rate, and once more if it did not hold; the slot in which it held, or why it did not.
    fn try_twice(&mut self, rate: f64) -> Result<Result<usize, Verdict>, Error> {
        let mut verdict = self.offer(rate)?;
        if verdict != Verdict::Holds && self.stop().is_none() {
            verdict = self.offer(rate)?;
        }
        Ok(if verdict == Verdict::Holds { Ok(self.slots.len() - 1) } else { Err(verdict) })
    }

    fn offer(&mut self, per_second: f64) -> Result<Verdict, Error> {
        let options = self.options;
        options.tell(Event::Offering { per_second, slot: options.slot });
        let slot = Slot { mode: Mode::Rate { per_second }, duration: options.slot, drain: options.drain };
        let outcome = self.generator.run(&slot)?;
        let probe = Probe::new(per_second, outcome, options);
        options.tell(Event::Offered(&probe));
        let verdict = probe.verdict;
        self.slots.push(probe);
        Ok(verdict)
    }

    fn stop(&self) -> Option<Ended> {
        if self.options.cancelled() {
            Some(Ended::Cancelled)
        } else if self.began.elapsed() >= self.options.budget {
            Some(Ended::OutOfTime)
        } else {
            None
        }
    }

    fn result(self, ended: Ended) -> CapacitySample {
        // Until a rate fails, the generator's reach is the only limit known; a bound one failed by the generator.
        let generator_bound = matches!(self.fails, Some((_, Verdict::GeneratorBound)));
        let (offered, held) = self.holds.unwrap_or_default();
        let held: Vec<&Probe> = held.iter().filter_map(|index| self.slots.get(*index)).collect();
        // The slot that found a rate was chosen for holding; those that confirmed it were not.
        let held = if held.len() > 1 { &held[1..] } else { &held[..] };
        let mut latency_ns = Latency::new();
        let (mut sent, mut answered) = (0, 0);
        for probe in held {
            latency_ns.merge(&probe.latency_ns);
            sent += probe.sent;
            answered += probe.answered;
        }
        let rates: Vec<f64> = held.iter().map(|probe| probe.answered_per_second).collect();
        CapacitySample {
            transactions_per_second: stats::median(&rates).unwrap_or(0.0),
            offered_per_second: offered,
            loss_ratio: if sent == 0 { 1.0 } else { (sent - answered) as f64 / sent as f64 },
            latency_ns,
            generator_bound,
            ended,
            slots: self.slots,
        }
    }
}
