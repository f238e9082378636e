//! Measures the capacity and the overload of a server, the same on every testbed.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_host::Known;
use linerate_load::capacity::{self, OverloadResult, SearchEnd, SearchEvent, SearchOptions};
use linerate_load::generator::MAX_RATE;
use linerate_load::perf::MachineCounters;
use linerate_load::{
    Generator, GeneratorDescription, GeneratorError, LoadSlot, PacingMode, SlotInterval, SlotOutcome,
};

use crate::ladder::config::LadderConfig;
use crate::ladder::error::TestbedError;
use crate::ladder::testbed::{SampleRequest, StepSample};

/// Offers and judges rates according to a run's configuration.
#[derive(Debug, Clone)]
pub(crate) struct Sampler<'a> {
    pub(crate) config: &'a LadderConfig,
    pub(crate) cancel: Arc<AtomicBool>,
}

impl Sampler<'_> {
    /// # Errors
    /// [`TestbedError::Cancelled`] once the run is cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<(), TestbedError> {
        if self.cancel.load(Ordering::Relaxed) { Err(TestbedError::Cancelled) } else { Ok(()) }
    }

    /// Searches for the capacity. `fallbacks` are the options that the server had to replace.
    pub(crate) fn sample(
        &self,
        generator: &mut dyn Generator,
        request: &mut SampleRequest<'_>,
        fallbacks: Vec<String>,
    ) -> Result<StepSample, TestbedError> {
        let on_probe = RefCell::new(&mut *request.on_probe);
        let observer = |event: SearchEvent<'_>| {
            if let SearchEvent::Offering { per_second, .. } = event {
                (on_probe.borrow_mut())(per_second);
            }
        };
        let timing = &self.config.timing;
        let max_rate = self.config.max_rate_per_second;
        let options = SearchOptions {
            max_loss: self.config.max_loss_ratio,
            slot: timing.slot,
            drain: timing.drain,
            start_per_second: timing.start_per_second,
            most_per_second: max_rate.unwrap_or(MAX_RATE),
            bracket: request.hint,
            resolution: timing.resolution_ratio,
            confirm: 1,
            budget: request.budget,
            cancel: Some(&self.cancel),
            observer: Some(&observer),
            ..SearchOptions::default()
        };
        let mut counted_generator = CountedGenerator::new(generator);
        let result =
            capacity::search(&mut counted_generator, &options).map_err(|error| self.failure(error))?;
        if result.ended == SearchEnd::Cancelled {
            return Err(TestbedError::Cancelled);
        }
        let (cycles_per_transaction, instructions_per_transaction) =
            counted_generator.mean_costs(result.offered_per_second);
        let generator_bound = result.generator_bound.then(|| {
            let reason = result.bound_because.last();
            reason.map_or_else(|| "it could not offer more".to_owned(), ToString::to_string)
        });
        let rate_limit = max_rate.filter(|limit| result.offered_per_second >= *limit);
        let rate_limit = rate_limit.map(|limit| format!("--max-rate allows {limit:.0} requests per second"));
        Ok(StepSample {
            transactions_per_second: result.transactions_per_second,
            loss_ratio: result.loss_ratio,
            latency: result.latency_ns,
            cycles_per_transaction,
            instructions_per_transaction,
            generator_bound: rate_limit.or(generator_bound),
            unconfirmed: result.ended == SearchEnd::OutOfTime,
            fallbacks,
        })
    }

    pub(crate) fn overload(
        &self,
        generator: &mut dyn Generator,
        capacity: f64,
        factors: &[f64],
    ) -> Result<Vec<OverloadResult>, TestbedError> {
        self.check_cancelled()?;
        let max_rate = self.config.max_rate_per_second.unwrap_or(MAX_RATE);
        let factors: Vec<f64> =
            factors.iter().copied().filter(|factor| capacity * factor <= max_rate).collect();
        let (slot, drain) = (self.config.timing.slot, Duration::from_secs(1));
        capacity::overload(generator, capacity, &factors, slot, drain).map_err(|error| self.failure(error))
    }

    /// A cancellation can make the generator fail.
    fn failure(&self, error: GeneratorError) -> TestbedError {
        self.check_cancelled().err().unwrap_or_else(|| error.into())
    }
}

/// Offers a whole slot of load.
///
/// # Errors
/// [`TestbedError::Cancelled`] also if the slot was ended early, which has an outcome, too.
pub(crate) fn run_whole_slot(
    generator: &mut dyn Generator,
    slot: &LoadSlot,
) -> Result<SlotOutcome, TestbedError> {
    let outcome = generator.run(slot)?;
    if outcome.duration < slot.duration { Err(TestbedError::Cancelled) } else { Ok(outcome) }
}

/// Runs `observe` while the load is offered. The function that it receives returns true from the end
/// of the load on.
pub(crate) fn under_load<T>(
    generator: &mut dyn Generator,
    slot: &LoadSlot,
    observe: impl FnOnce(&dyn Fn() -> bool) -> T,
) -> Result<(SlotOutcome, T), TestbedError> {
    let begin = Instant::now();
    let (outcome, observation) = std::thread::scope(|scope| {
        let load_thread = scope.spawn(|| run_whole_slot(generator, slot));
        let observation = observe(&|| load_thread.is_finished() || begin.elapsed() >= slot.duration);
        (load_thread.join(), observation)
    });
    let outcome = outcome.map_err(|_| TestbedError::GeneratorLost("its thread panicked".to_owned()))?;
    Ok((outcome?, observation))
}

/// An error if the observation was much shorter than `wanted`, because the load ended before, or much
/// longer, so that it may include a time without load.
pub(crate) fn check_observed(seconds: f64, wanted: Duration) -> Result<(), String> {
    let wanted = wanted.as_secs_f64();
    if (wanted * 0.5..=wanted * 1.25).contains(&seconds) {
        return Ok(());
    }
    Err(format!(
        "observed for {seconds:.1} s instead of {wanted:.1} s of the load: other programs had the CPUs"
    ))
}

struct SlotCost {
    requested_per_second: f64,
    cycles_per_transaction: Known<f64>,
    instructions_per_transaction: Known<f64>,
}

/// A generator that counts the machine's cycles and instructions in each slot.
struct CountedGenerator<'a> {
    inner: &'a mut dyn Generator,
    counters: Result<MachineCounters, String>,
    costs: Vec<SlotCost>,
}

impl<'a> CountedGenerator<'a> {
    fn new(inner: &'a mut dyn Generator) -> Self {
        Self { inner, counters: MachineCounters::open(), costs: Vec::new() }
    }

    /// Mean cycles and instructions per transaction of the slots at this rate.
    fn mean_costs(&self, requested_per_second: f64) -> (Known<f64>, Known<f64>) {
        if let Err(why) = &self.counters {
            return (Known::unknown(why.clone()), Known::unknown(why.clone()));
        }
        let slots = || self.costs.iter().filter(|cost| cost.requested_per_second == requested_per_second);
        (
            mean(slots().map(|cost| &cost.cycles_per_transaction)),
            mean(slots().map(|cost| &cost.instructions_per_transaction)),
        )
    }
}

impl Generator for CountedGenerator<'_> {
    fn describe(&self) -> GeneratorDescription {
        self.inner.describe()
    }

    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        let counting = match &mut self.counters {
            Ok(counters) => counters.start().is_ok(),
            Err(_) => false,
        };
        let outcome = self.inner.watch(slot, observer)?;
        if let (true, Ok(counters), PacingMode::Rate { per_second }) =
            (counting, &mut self.counters, slot.mode)
        {
            let counts = counters.stop();
            let per_transaction = |count: Known<u64>| match count {
                Known::Value(_) if outcome.answered == 0 => Known::unknown("nothing was answered"),
                measured_count => measured_count.map(|count| count as f64 / outcome.answered as f64),
            };
            self.costs.push(SlotCost {
                requested_per_second: per_second,
                cycles_per_transaction: per_transaction(counts.cycles),
                instructions_per_transaction: per_transaction(counts.instructions),
            });
        }
        Ok(outcome)
    }
}

fn mean<'a>(values: impl Iterator<Item = &'a Known<f64>>) -> Known<f64> {
    let (mut sum, mut count, mut reason) = (0.0, 0_u32, None);
    for value in values {
        match value {
            Known::Value(value) => {
                sum += value;
                count += 1;
            }
            Known::Unknown { why } => reason = Some(why.clone()),
        }
    }
    if count > 0 {
        Known::Value(sum / f64::from(count))
    } else {
        Known::unknown(reason.unwrap_or_else(|| "the counters did not run at the rate found".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator whose slots are ended after this share of their time.
    struct EndingGenerator(f64);

    impl Generator for EndingGenerator {
        fn describe(&self) -> GeneratorDescription {
            GeneratorDescription::default()
        }

        fn watch(
            &mut self,
            slot: &LoadSlot,
            _: &mut dyn FnMut(&SlotInterval),
        ) -> Result<SlotOutcome, GeneratorError> {
            Ok(SlotOutcome { duration: slot.duration.mul_f64(self.0), ..SlotOutcome::default() })
        }
    }

    #[test]
    fn a_slot_that_was_ended_early_is_an_interruption() {
        let begin = Instant::now();
        let slot = LoadSlot::rate(1_000.0, Duration::from_secs(600));
        let wait = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                std::thread::yield_now();
            }
            5
        };
        let observed = |share| under_load(&mut EndingGenerator(share), &slot, wait);
        assert!(observed(1.0).is_ok_and(|(_, observation)| observation == 5));
        assert!(matches!(observed(0.9), Err(TestbedError::Cancelled)));
        assert!(begin.elapsed() < slot.duration, "the load is over when the generator has ended");
    }

    #[test]
    fn observations_outside_of_the_load_are_refused() {
        let check = |seconds| check_observed(seconds, Duration::from_millis(800));
        assert_eq!((check(0.5), check(0.8)), (Ok(()), Ok(())));
        for seconds in [0.0, 0.3, 1.5] {
            let why = check(seconds).expect_err("not the load");
            assert!(why.contains("instead of 0.8 s"), "{why}");
        }
    }
}
