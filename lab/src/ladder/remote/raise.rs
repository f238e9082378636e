//! How many senders it takes until the receiver is the limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_load::{Generator, GeneratorError, LoadSlot, stats};
use serde::Serialize;

use super::error::RemoteError;
use crate::ladder::report::{LadderWarning, WarningKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SenderCounts {
    /// Hosts, the first ones named.
    pub hosts: usize,
    pub threads: usize,
}

/// How it is found out.
#[derive(Clone, Copy)]
pub struct RaiseOptions<'a> {
    /// How long each slot lasts; 500 ms by default.
    pub slot: Duration,
    /// Slots for each number of senders, at least one; 3 by default.
    pub repeats: usize,
    /// Requests each flow keeps outstanding; 32 by default. More senders must be able to send more, so flows should be as
    /// many a host at any number of threads.
    pub window: u32,
    /// The least share by which the rate must rise for more senders to be worth it; 0.03 by default. Slots that differ by
    /// more than that among themselves ask for as much.
    pub least_rise: f64,
    /// Ends it when set.
    pub cancel: Option<&'a AtomicBool>,
}

impl Default for RaiseOptions<'_> {
    fn default() -> Self {
        RaiseOptions {
            slot: Duration::from_millis(500),
            repeats: 3,
            window: 32,
            least_rise: 0.03,
            cancel: None,
        }
    }
}

/// What so many senders came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SenderStep {
    pub senders: SenderCounts,
    /// What the receiver answered a second: the median of the slots.
    pub answered_per_second: f64,
    /// Half the distance from the lowest to the highest of them, as a share of it.
    pub noise_ratio: f64,
}

/// How many senders it takes.
#[derive(Debug)]
pub struct SaturationResult<G> {
    /// The generator of the last step, ready for more.
    pub generator: G,
    /// How many send: the last that were tried, so that there is some to spare where the receiver was the limit before.
    pub senders: SenderCounts,
    /// Every number tried, in order.
    pub steps: Vec<SenderStep>,
    /// Whether the rate still rose with the last step: then the senders were the limit and not the receiver.
    pub generator_bound: bool,
}

/// Why it could not be found out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaiseError {
    /// Generators could not be started.
    #[error(transparent)]
    Start(#[from] RemoteError),
    /// A slot could not be run.
    #[error(transparent)]
    Slot(#[from] GeneratorError),
    /// There is nobody to send.
    #[error("no senders to try")]
    NoSteps,
}

/// Numbers of senders worth trying: one thread on one host, one on each, then twice as many on each until there are
/// `cpus`, the CPUs of the smallest.
#[must_use]
pub fn steps(hosts: usize, cpus: usize) -> Vec<SenderCounts> {
    let mut all = vec![SenderCounts { hosts: 1, threads: 1 }];
    let hosts = hosts.max(1);
    if hosts > 1 {
        all.push(SenderCounts { hosts, threads: 1 });
    }
    let mut threads = 1;
    while threads < cpus {
        threads = (threads * 2).min(cpus);
        all.push(SenderCounts { hosts, threads });
    }
    all
}

/// Tries more and more senders, each made by `start` when the ones before are gone, until what the receiver answers no
/// longer rises by more than chance. Requests are sent in windows: that finds the receiver's limit without running it over.
///
/// # Errors
/// Senders that cannot be started, a slot that fails, or a cancellation.
pub fn raise<G: Generator>(
    steps: &[SenderCounts],
    options: &RaiseOptions<'_>,
    mut start: impl FnMut(SenderCounts) -> Result<G, RemoteError>,
) -> Result<SaturationResult<G>, RaiseError> {
    let mut tried: Vec<SenderStep> = Vec::new();
    let mut last = None;
    let mut rising = true;
    for senders in steps {
        // Their ports and interfaces are wanted by the next.
        drop(last.take());
        let mut generator = start(*senders)?;
        let step = measure(&mut generator, *senders, options)?;
        rising = tried.last().is_none_or(|before| rises(before, &step, options.least_rise));
        tried.push(step);
        last = Some((generator, *senders));
        if !rising {
            break;
        }
    }
    let (generator, senders) = last.ok_or(RaiseError::NoSteps)?;
    Ok(SaturationResult { generator, senders, steps: tried, generator_bound: rising })
}

fn measure(
    generator: &mut impl Generator,
    senders: SenderCounts,
    options: &RaiseOptions<'_>,
) -> Result<SenderStep, RaiseError> {
    let mut rates = Vec::new();
    for _ in 0..options.repeats.max(1) {
        if options.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(GeneratorError::Cancelled.into());
        }
        let outcome = generator.run(&LoadSlot::window(options.window, options.slot))?;
        rates.push(outcome.answered_per_second);
    }
    let median = stats::median(&rates).unwrap_or(0.0);
    let (low, high) =
        rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    let noise_ratio = if median > 0.0 { (high - low) / 2.0 / median } else { 0.0 };
    Ok(SenderStep { senders, answered_per_second: median, noise_ratio })
}

fn rises(before: &SenderStep, now: &SenderStep, least: f64) -> bool {
    let least = least.max(before.noise_ratio).max(now.noise_ratio);
    now.answered_per_second > before.answered_per_second * (1.0 + least)
}

impl<G> SaturationResult<G> {
    /// What a reader has to know, if the senders were the limit.
    #[must_use]
    pub fn warning(&self) -> Option<LadderWarning> {
        let [.., last] = self.steps.as_slice() else { return None };
        let SenderCounts { hosts, threads } = last.senders;
        self.generator_bound.then(|| LadderWarning {
            kind: WarningKind::GeneratorBound,
            detail: format!(
                "the receiver answered {:.0}/s with {threads} threads on {hosts} host(s), and the rate still rose with the last that were added: there were no more to add",
                last.answered_per_second
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::remote::tests::Pretended;

    fn raised(limit: f64, a_thread: f64, noise: f64) -> SaturationResult<Pretended> {
        let start = |senders: SenderCounts| {
            let able = (senders.hosts * senders.threads) as f64 * a_thread;
            Ok(Pretended::answering(able.min(limit), noise))
        };
        raise(&steps(2, 6), &RaiseOptions::default(), start).expect("raised")
    }

    #[test]
    fn senders_are_added_until_the_receiver_is_the_limit() {
        let found = raised(350_000.0, 100_000.0, 0.005);
        // 100, 200 and 350 thousand, and as many again.
        assert_eq!(found.senders, SenderCounts { hosts: 2, threads: 4 });
        assert_eq!(found.steps.len(), 4);
        assert!(!found.generator_bound && found.warning().is_none());
    }

    #[test]
    fn senders_that_never_suffice_are_told_of() {
        let found = raised(1e9, 100_000.0, 0.005);
        assert_eq!(found.senders, SenderCounts { hosts: 2, threads: 6 });
        assert_eq!(found.warning().map(|warning| warning.kind), Some(WarningKind::GeneratorBound));
    }

    #[test]
    fn a_rise_within_the_noise_is_none() {
        let found = raised(110_000.0, 100_000.0, 0.2);
        assert_eq!((found.steps.len(), found.generator_bound), (2, false));
    }

    #[test]
    fn every_host_sends_before_any_sends_more() {
        let shown = |hosts, cpus| steps(hosts, cpus).iter().map(|s| (s.hosts, s.threads)).collect::<Vec<_>>();
        assert_eq!(shown(1, 1), [(1, 1)]);
        assert_eq!(shown(3, 5), [(1, 1), (3, 1), (3, 2), (3, 4), (3, 5)]);
        assert_eq!(shown(0, 0), [(1, 1)]);
    }
}
