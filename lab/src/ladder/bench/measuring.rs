//! Capacity and overload of whatever a generator sends to, the same on every bench.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_load::Generator;
use linerate_load::capacity::{self, SearchEnd, SearchEvent, SearchOptions};

use super::counted::CountedGenerator;
use super::{BenchError, OverloadGoodput, SampleRequest, StepSample};

/// How rates are offered and judged.
#[derive(Debug, Clone)]
pub struct SampleMethod {
    /// Highest loss ratio at which a rate holds.
    pub max_loss: f64,
    /// Length of one probe of a rate.
    pub slot: Duration,
    /// Ratio of a rate that does not hold to one that does at which a search ends.
    pub resolution: f64,
    /// Longest wait for stragglers after a slot.
    pub drain: Duration,
    /// Where a search without a hint starts, transactions a second.
    pub start_per_second: f64,
    pub cancel: Arc<AtomicBool>,
}

impl SampleMethod {
    /// Refuses to go on once it was told to stop.
    ///
    /// # Errors
    /// [`BenchError::Cancelled`].
    pub fn go_on(&self) -> Result<(), BenchError> {
        if self.cancel.load(Ordering::Relaxed) { Err(BenchError::Cancelled) } else { Ok(()) }
    }

    /// Searches the capacity; `fallbacks` are the server's.
    ///
    /// # Errors
    /// When it is told to stop, or the generator fails.
    pub fn sample(
        &self,
        generator: &mut dyn Generator,
        request: &mut SampleRequest<'_>,
        fallbacks: Vec<String>,
    ) -> Result<StepSample, BenchError> {
        let probing = RefCell::new(&mut *request.probing);
        let observer = |event: SearchEvent<'_>| {
            if let SearchEvent::Offering { per_second, .. } = event {
                (probing.borrow_mut())(per_second);
            }
        };
        let options = SearchOptions {
            max_loss: self.max_loss,
            slot: self.slot,
            drain: self.drain,
            start_per_second: self.start_per_second,
            bracket: request.hint,
            resolution: self.resolution,
            confirm: 1,
            budget: request.budget,
            cancel: Some(&self.cancel),
            observer: Some(&observer),
            ..SearchOptions::default()
        };
        let mut counted = CountedGenerator::new(generator);
        let found = capacity::search(&mut counted, &options).map_err(|error| self.failed(&error))?;
        if found.ended == SearchEnd::Cancelled {
            return Err(BenchError::Cancelled);
        }
        let (cycles_per_transaction, instructions_per_transaction) = counted.at(found.offered_per_second);
        let generator_bound = found.generator_bound.then(|| {
            found
                .bound_because
                .last()
                .map_or_else(|| "it could not offer more".to_owned(), ToString::to_string)
        });
        Ok(StepSample {
            transactions_per_second: found.transactions_per_second,
            loss_ratio: found.loss_ratio,
            latency: found.latency_ns,
            cycles_per_transaction,
            instructions_per_transaction,
            generator_bound,
            unconfirmed: found.ended == SearchEnd::OutOfTime,
            fallbacks,
        })
    }

    /// Offers multiples of a capacity and tells which share of it is still answered.
    ///
    /// # Errors
    /// When it is told to stop, or the generator fails.
    pub fn overload(
        &self,
        generator: &mut dyn Generator,
        capacity: f64,
        factors: &[f64],
    ) -> Result<Vec<OverloadGoodput>, BenchError> {
        self.go_on()?;
        let measured = capacity::overload(generator, capacity, factors, self.slot)
            .map_err(|error| self.failed(&error))?;
        Ok(measured
            .into_iter()
            .map(|overload| OverloadGoodput { factor: overload.factor, ratio: overload.goodput_ratio })
            .collect())
    }

    /// A generator that was told to stop may fail over it.
    fn failed(&self, error: &linerate_load::GeneratorError) -> BenchError {
        match self.go_on() {
            Err(cancelled) => cancelled,
            Ok(()) => BenchError::Generator(error.to_string()),
        }
    }
}
