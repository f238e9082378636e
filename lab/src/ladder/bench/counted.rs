//! A generator that counts the machine's cycles and instructions while it runs a slot.

use linerate_host::Known;
use linerate_load::perf::MachineCounters;
use linerate_load::{
    Generator, GeneratorDescription, GeneratorError, LoadSlot, PacingMode, SlotInterval, SlotOutcome,
};

/// What a slot cost.
#[derive(Debug, Clone)]
struct SlotCost {
    asked_per_second: f64,
    cycles_per_transaction: Known<f64>,
    instructions_per_transaction: Known<f64>,
}

/// A generator with the machine's counters running beside it.
pub(crate) struct CountedGenerator<'a> {
    inner: &'a mut dyn Generator,
    counters: Result<MachineCounters, String>,
    costs: Vec<SlotCost>,
}

impl<'a> CountedGenerator<'a> {
    /// Counts beside `inner`, if the machine has counters.
    pub(crate) fn new(inner: &'a mut dyn Generator) -> Self {
        Self { inner, counters: MachineCounters::open(), costs: Vec::new() }
    }

    /// Cycles and instructions a transaction in the slots in which this rate was asked for.
    pub(crate) fn at(&self, asked_per_second: f64) -> (Known<f64>, Known<f64>) {
        if let Err(why) = &self.counters {
            return (Known::unknown(why.clone()), Known::unknown(why.clone()));
        }
        let near: Vec<&SlotCost> =
            self.costs.iter().filter(|cost| cost.asked_per_second == asked_per_second).collect();
        (
            mean(near.iter().map(|cost| &cost.cycles_per_transaction)),
            mean(near.iter().map(|cost| &cost.instructions_per_transaction)),
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
            let each = |count: Known<u64>| match count {
                Known::Value(_) if outcome.answered == 0 => Known::unknown("nothing was answered"),
                known => known.map(|count| count as f64 / outcome.answered as f64),
            };
            self.costs.push(SlotCost {
                asked_per_second: per_second,
                cycles_per_transaction: each(counts.cycles),
                instructions_per_transaction: each(counts.instructions),
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
