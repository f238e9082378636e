//! Waiting times of datagrams in their sockets, and reply times, in classes.

use std::io;
use std::ops::Range;

use aya::maps::{MapData, PerCpuArray};

use crate::bpf::{self, BpfPrograms};

/// `WAIT_CLASSES` in bpf/kernel.h.
const CLASSES: usize = 256;
/// The unit of a wait in the BPF program.
const UNIT_NS: u64 = 1 << 10;
/// Classes per octave.
const PARTS: usize = 8;

/// Counts of waits. The width of a class is at most an eighth of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitCounts {
    classes: Vec<u64>,
}

impl WaitCounts {
    /// From a table with one entry per class.
    pub(super) fn read(programs: &BpfPrograms, table: &str) -> io::Result<Self> {
        let table: PerCpuArray<&MapData, u64> = programs.map(table)?;
        let class = |class: usize| {
            let counts = table.get(&u32::try_from(class).unwrap_or(u32::MAX), 0).map_err(bpf::error)?;
            Ok(counts.iter().sum())
        };
        let classes = (0..CLASSES).map(class).collect::<io::Result<_>>()?;
        Ok(Self { classes })
    }

    /// Waits that were counted after `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let counts = self.classes.iter().zip(&before.classes);
        Self { classes: counts.map(|(now, before)| now.saturating_sub(*before)).collect() }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The wait in ns that this share of the datagrams did not exceed; `None` without datagrams.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        let target_count = (self.count() as f64 * share).max(f64::MIN_POSITIVE);
        let mut below = 0.0;
        for (class, count) in self.classes.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= target_count {
                let Range { start, end } = units(class);
                // Waits are spread evenly within a class.
                let fraction = (target_count - below) / count;
                return Some((start as f64 + fraction * (end - start) as f64) * UNIT_NS as f64);
            }
            below += count;
        }
        None
    }
}

/// The waits of a class, in units. The first two octaves have one unit per class.
fn units(class: usize) -> Range<u64> {
    let octave = (class / PARTS).saturating_sub(1);
    let offset = (class - octave * PARTS) as u64;
    offset << octave..(offset + 1) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_classes_are_contiguous() {
        for class in 0..CLASSES - 32 {
            assert_eq!(units(class).end, units(class + 1).start, "class {class}");
        }
        assert_eq!((units(0), units(15), units(16), units(24)), (0..1, 15..16, 16..18, 32..36));
    }

    #[test]
    fn wait_quantiles_are_within_their_histogram_class() {
        let mut classes = vec![0; CLASSES];
        (classes[2], classes[40]) = (98, 2);
        let waits = WaitCounts { classes: classes.clone() };
        let within = |share: f64, class: usize| {
            let ns = waits.quantile_ns(share).expect("a wait") / UNIT_NS as f64;
            let Range { start, end } = units(class);
            (start as f64..=end as f64).contains(&ns)
        };
        assert!(within(0.5, 2) && within(0.98, 2) && within(0.99, 40) && within(1.0, 40));
        classes[2] = 0;
        assert_eq!(waits.since(&WaitCounts { classes }).count(), 98);
        assert_eq!(WaitCounts { classes: vec![0; CLASSES] }.quantile_ns(0.5), None);
    }
}
