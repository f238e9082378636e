//! Interrupts between two readings.

use std::collections::{BTreeMap, BTreeSet};

use super::SnapshotInput;
use crate::live::growth::growth_32;

pub(super) struct InterruptRates {
    // Per interrupt: rate, and the CPU that handled most of its interrupts.
    of_vectors: BTreeMap<u32, (f64, Option<u32>)>,
    // Rate per CPU; `None` without an earlier reading.
    of_cpus: Option<BTreeMap<u32, f64>>,
}

impl InterruptRates {
    pub(super) fn between(readings: &SnapshotInput<'_>) -> Self {
        let unknown_rates = Self { of_vectors: BTreeMap::new(), of_cpus: None };
        let (Some(now), Some(before), Some(seconds)) = (
            readings.now.interrupts.value(),
            readings.before.and_then(|before| before.interrupts.value()),
            readings.seconds,
        ) else {
            return unknown_rates;
        };
        let interfaces = &readings.path.irq.interfaces;
        let mut vectors = interfaces.iter().filter_map(|item| item.vectors.value()).flatten().peekable();
        if vectors.peek().is_none() {
            // Virtual interfaces have no interrupts, and a zero would mean that they have some.
            return unknown_rates;
        }
        let irqs: BTreeSet<u32> = vectors.map(|vector| vector.irq).collect();
        let (mut of_vectors, mut of_cpus) = (BTreeMap::new(), BTreeMap::<u32, f64>::new());
        // The file has only the CPUs that are online. Counts of a CPU that was offline are from before.
        let times = readings.before.and_then(|before| before.cpu_times.value());
        let online = times.map(|times| times.iter().map(|times| times.cpu).collect::<BTreeSet<_>>());
        let was_online = |cpu| online.as_ref().is_none_or(|online| online.contains(&cpu));
        for irq in irqs {
            let Some(handled) = now.get(&irq) else { continue };
            // Both are in CPU order, as the columns of the file.
            let mut before = before.get(&irq).map_or(&[][..], Vec::as_slice).iter().peekable();
            let (mut total_rate, mut busiest) = (0.0, (0, None));
            for (cpu, count) in handled.iter().filter(|(cpu, _)| was_online(*cpu)) {
                while before.next_if(|(other, _)| other < cpu).is_some() {}
                let earlier = before.next_if(|(other, _)| other == cpu).map_or(0, |(_, count)| *count);
                let Some(growth) = growth_32(earlier, *count).filter(|growth| *growth > 0) else { continue };
                let rate = growth as f64 / seconds;
                total_rate += rate;
                *of_cpus.entry(*cpu).or_default() += rate;
                if growth > busiest.0 {
                    busiest = (growth, Some(*cpu));
                }
            }
            of_vectors.insert(irq, (total_rate, busiest.1));
        }
        Self { of_vectors, of_cpus: Some(of_cpus) }
    }

    pub(super) fn irq_rate(&self, irq: u32) -> (Option<f64>, Option<u32>) {
        self.of_vectors.get(&irq).map_or((None, None), |(rate, cpu)| (Some(*rate), *cpu))
    }

    pub(super) fn cpu_rate(&self, cpu: u32) -> Option<f64> {
        self.of_cpus.as_ref().map(|cpus| cpus.get(&cpu).copied().unwrap_or(0.0))
    }
}
