//! The assignment of CPUs to sockets.

use std::collections::BTreeMap;

use super::error::SteeringError;

/// Assigns CPUs to sockets. A socket is named by its slot: its position, from 0, in the list passed
/// to [`attach`](super::attach).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuTable {
    slots: BTreeMap<u32, u32>,
}

impl CpuTable {
    /// Slot `i` serves the CPUs in `cpus[i]`, which may be none.
    ///
    /// # Errors
    /// [`SteeringError::Twice`] for a CPU in two slots, [`SteeringError::Empty`] if no slot has a
    /// CPU.
    pub fn new(cpus: &[impl AsRef<[u32]>]) -> Result<Self, SteeringError> {
        let pairs = cpus.iter().enumerate();
        Self::from_pairs(pairs.flat_map(|(slot, cpus)| cpus.as_ref().iter().map(move |cpu| (*cpu, slot))))
    }

    /// From pairs of a CPU's number, as in `/sys/devices/system/cpu`, and the slot that serves it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u32, usize)>) -> Result<Self, SteeringError> {
        let mut table = Self { slots: BTreeMap::new() };
        for (cpu, slot) in pairs {
            table.insert(cpu, slot)?;
        }
        if table.slots.is_empty() { Err(SteeringError::Empty) } else { Ok(table) }
    }

    /// Adds a CPU to a slot. Adding it to the same slot again is no error.
    fn insert(&mut self, cpu: u32, slot: usize) -> Result<(), SteeringError> {
        let previous = self.slots.insert(cpu, slot_number(slot)?);
        match previous.map(|first| first as usize).filter(|first| *first != slot) {
            Some(first) => Err(SteeringError::Twice { cpu, first, second: slot }),
            None => Ok(()),
        }
    }

    /// The CPUs listed for a slot, ascending.
    #[must_use]
    pub fn cpus_of(&self, slot: usize) -> Vec<u32> {
        self.slots.iter().filter(|(_, cpu_slot)| **cpu_slot as usize == slot).map(|(cpu, _)| *cpu).collect()
    }

    pub(super) fn highest_slot(&self) -> Option<usize> {
        self.slots.values().copied().max().map(|slot| slot as usize)
    }

    /// Pairs of CPU and slot, ascending by CPU.
    pub(super) fn pairs(&self) -> Vec<(u32, u32)> {
        self.slots.iter().map(|(cpu, slot)| (*cpu, *slot)).collect()
    }
}

// A reuseport group has at most 65,535 sockets (net/core/sock_reuseport.c, U16_MAX).
fn slot_number(slot: usize) -> Result<u32, SteeringError> {
    match u16::try_from(slot) {
        Ok(slot) => Ok(slot.into()),
        Err(_) => Err(SteeringError::NoSuchSocket { slot, sockets: usize::from(u16::MAX) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_assigned_to_two_sockets_is_an_error() {
        let error = CpuTable::new(&[vec![0, 1], vec![1]]).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("CPU 1") && text.contains("socket 0 and socket 1")));
        assert!(CpuTable::new(&[[4], [4]]).is_err());
        assert!(CpuTable::from_pairs([(4, 1), (4, 1)]).is_ok());
    }

    #[test]
    fn table_without_cpus_is_an_error() {
        assert!(matches!(CpuTable::new(&[[0u32; 0]; 2]), Err(SteeringError::Empty)));
    }
}
