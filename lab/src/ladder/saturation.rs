//! Saturation probe: adds senders until the receiver is the limit.

use std::net::IpAddr;
use std::time::Duration;

use linerate_load::{Generator, GeneratorDescription, LoadSlot, stats};

use crate::ladder::error::TestbedError;
use crate::ladder::remote::RemoteError;
use crate::ladder::report::{LadderWarning, WarningKind};
use crate::ladder::sampler::Sampler;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderCounts {
    /// Number of hosts, from the start of the list.
    pub hosts: usize,
    /// Threads per host.
    pub threads: usize,
}

/// Length of each slot, and slots per number of senders.
const SLOT: Duration = Duration::from_millis(500);
const REPEATS: usize = 3;
/// Requests that each flow keeps outstanding.
const WINDOW: u32 = 32;
/// The rate must rise by at least this share, or by the noise of the slots, for more senders to be useful.
const LEAST_RISE: f64 = 0.03;

#[derive(Debug, Clone, PartialEq)]
struct SenderStep {
    /// Median of the slots.
    answered_per_second: f64,
    /// Half the distance from the lowest to the highest slot, as a share of the median.
    noise_ratio: f64,
}

/// Starts this many senders.
pub type StartSenders<G> = Box<dyn FnMut(SenderCounts) -> Result<G, RemoteError> + Send>;

/// Generators on several hosts, started with as few senders as saturate the receiver.
pub struct RemoteSenders<G> {
    start: StartSenders<G>,
    counts: Vec<SenderCounts>,
    /// Index of the current number of senders.
    current: usize,
    generator: Option<G>,
    /// Caveats of generators that were replaced.
    earlier_warnings: Vec<String>,
    description: Option<GeneratorDescription>,
    hosts: Vec<String>,
    /// Whether the rate still rose with the last senders.
    generator_bound: bool,
    answered_per_second: f64,
    /// Addresses that the hosts send from.
    pub(crate) sources: Vec<IpAddr>,
}

impl<G: Generator> RemoteSenders<G> {
    /// Senders on `hosts`, which send from `sources`. The number of senders starts with the first of `counts` and grows up
    /// to the last.
    #[must_use]
    pub fn new(
        start: StartSenders<G>,
        hosts: Vec<String>,
        counts: Vec<SenderCounts>,
        sources: Vec<IpAddr>,
    ) -> Self {
        Self {
            start,
            counts,
            current: 0,
            generator: None,
            earlier_warnings: Vec::new(),
            description: None,
            hosts,
            generator_bound: false,
            answered_per_second: 0.0,
            sources,
        }
    }

    /// Starts the current number of senders if none run.
    pub(crate) fn ensure_started(&mut self) -> Result<&mut G, TestbedError> {
        if self.generator.is_none() {
            self.generator = Some(self.start_current()?);
        }
        self.generator()
    }

    fn start_current(&mut self) -> Result<G, TestbedError> {
        let senders = self.counts.get(self.current).copied();
        let senders = senders.ok_or_else(|| generator_lost("no senders to try".to_owned()))?;
        (self.start)(senders).map_err(|error| match error {
            RemoteError::Cancelled => TestbedError::Cancelled,
            error => generator_lost(error.to_string()),
        })
    }

    pub(crate) fn generator(&mut self) -> Result<&mut G, TestbedError> {
        self.generator.as_mut().ok_or_else(|| generator_lost("none is running".to_owned()))
    }

    /// `None` before the first start.
    pub(crate) fn description(&self) -> Option<&GeneratorDescription> {
        self.description.as_ref()
    }

    pub(crate) fn hosts(&self) -> &[String] {
        let count = self.counts.get(self.current).map_or(0, |senders| senders.hosts);
        self.hosts.get(..count).unwrap_or(&self.hosts)
    }

    /// Whether any request of the last senders was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered_per_second > 0.0
    }

    pub(crate) fn can_add(&self) -> bool {
        self.generator.is_none() || self.current + 1 < self.counts.len()
    }

    pub(crate) fn warnings(&self) -> Vec<LadderWarning> {
        let current = self.generator.as_ref().and_then(Generator::warning);
        let details = self.earlier_warnings.iter().cloned().chain(current);
        let warnings = details.map(|detail| LadderWarning::new(WarningKind::GeneratorBound, detail));
        self.saturation_warning().into_iter().chain(warnings).collect()
    }

    fn saturation_warning(&self) -> Option<LadderWarning> {
        let SenderCounts { hosts, threads } = self.counts.get(self.current)?;
        let rate = self.answered_per_second;
        self.generator_bound.then(|| {
            let detail = format!(
                "the receiver answered {rate:.0}/s to {threads} threads on {hosts} host(s), the most there are, and the \
                 rate still rose with the last added threads"
            );
            LadderWarning::new(WarningKind::GeneratorBound, detail)
        })
    }

    /// Adds senders until the rate of replies no longer rises. Requests are sent in windows, which finds the receiver's
    /// limit without overload, or at the highest rate that the run allows.
    pub(crate) fn saturate(&mut self, sampler: &Sampler<'_>) -> Result<(), TestbedError> {
        let mut before: Option<SenderStep> = None;
        loop {
            // The next senders use the same ports and interfaces.
            if let Some(previous) = self.generator.take() {
                self.earlier_warnings.extend(previous.warning());
            }
            let mut generator = self.start_current()?;
            let step = measure(&mut generator, sampler)?;
            let is_rising = before.as_ref().is_none_or(|before| rises(before, &step));
            self.generator_bound = before.is_some() && is_rising;
            self.answered_per_second = step.answered_per_second;
            self.description = Some(generator.describe());
            self.generator = Some(generator);
            if !is_rising || self.current + 1 == self.counts.len() {
                return Ok(());
            }
            before = Some(step);
            self.current += 1;
        }
    }
}

fn measure(generator: &mut dyn Generator, sampler: &Sampler<'_>) -> Result<SenderStep, TestbedError> {
    let slot = match sampler.config.max_rate_per_second {
        Some(max_rate) => LoadSlot::rate(max_rate, SLOT),
        None => LoadSlot::window(WINDOW, SLOT),
    };
    let mut rates = Vec::new();
    for _ in 0..REPEATS {
        sampler.check_cancelled()?;
        rates.push(generator.run(&slot)?.answered_per_second);
    }
    let median = stats::median(&rates).unwrap_or(0.0);
    let (low, high) =
        rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    let noise_ratio = if median > 0.0 { (high - low) / 2.0 / median } else { 0.0 };
    Ok(SenderStep { answered_per_second: median, noise_ratio })
}

fn generator_lost(why: String) -> TestbedError {
    TestbedError::GeneratorLost(why)
}

fn rises(before: &SenderStep, now: &SenderStep) -> bool {
    let least = LEAST_RISE.max(before.noise_ratio).max(now.noise_ratio);
    now.answered_per_second > before.answered_per_second * (1.0 + least)
}

/// Numbers of senders to try: one thread on one host, one thread on each host, then twice as many threads per host up to
/// `cpus`, the CPUs of the smallest host.
#[must_use]
pub fn sender_counts(hosts: usize, cpus: usize) -> Vec<SenderCounts> {
    let mut counts = vec![SenderCounts { hosts: 1, threads: 1 }];
    let hosts = hosts.max(1);
    if hosts > 1 {
        counts.push(SenderCounts { hosts, threads: 1 });
    }
    let mut threads = 1;
    while threads < cpus {
        threads = (threads * 2).min(cpus);
        counts.push(SenderCounts { hosts, threads });
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::config::{LadderConfig, RunTiming};
    use crate::ladder::remote::tests::FakeGenerator;

    #[test]
    fn senders_are_added_until_the_receiver_is_the_limit() {
        // The rates of the first case are 100, 200 and 350 thousand, then 350 thousand again.
        for (case, counts, limit, noise, reached, is_too_few, can_add) in [
            ("a limit", sender_counts(2, 6), 350_000.0, 0.005, (2, 4), false, true),
            ("too few senders", sender_counts(2, 6), 1e9, 0.005, (2, 6), true, false),
            ("one count to compare with nothing", sender_counts(1, 1), 1e9, 0.005, (1, 1), false, false),
            ("a rise within noise", sender_counts(2, 6), 110_000.0, 0.2, (2, 1), false, true),
        ] {
            let start = move |senders: SenderCounts| {
                let capacity = (senders.hosts * senders.threads) as f64 * 100_000.0;
                Ok(FakeGenerator::answering(capacity.min(limit), noise))
            };
            let hosts = vec!["a".to_owned(), "b".to_owned()];
            let mut senders = RemoteSenders::new(Box::new(start), hosts, counts, Vec::new());
            let config = LadderConfig::new(Vec::new(), RunTiming::REMOTE);
            let sampler = Sampler { config: &config, cancel: std::sync::Arc::default() };
            senders.saturate(&sampler).expect("saturated");
            let SenderCounts { hosts, threads } = senders.counts[senders.current];
            assert_eq!((hosts, threads), reached, "{case}");
            let warning = senders.saturation_warning().map(|warning| warning.kind);
            assert_eq!(warning, is_too_few.then_some(WarningKind::GeneratorBound), "{case}");
            assert_eq!((senders.is_answered(), senders.can_add()), (true, can_add), "{case}");
        }
    }

    #[test]
    fn sender_counts_add_hosts_before_threads() {
        let counts =
            |hosts, cpus| sender_counts(hosts, cpus).iter().map(|s| (s.hosts, s.threads)).collect::<Vec<_>>();
        assert_eq!(counts(1, 1), [(1, 1)]);
        assert_eq!(counts(3, 5), [(1, 1), (3, 1), (3, 2), (3, 4), (3, 5)]);
        assert_eq!(counts(0, 0), [(1, 1)]);
    }
}
