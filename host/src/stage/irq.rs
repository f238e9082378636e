//! Interrupts: which CPU a queue's vector goes to, and who decides that.

mod counters;
pub(crate) mod interrupts;
mod observe;
pub(crate) mod owner;
mod rules;
#[cfg(test)]
pub(in crate::stage) mod sample;
pub(crate) mod served;

pub use observe::names;
use serde::Serialize;

use super::{StageInfo, StageName};
use crate::setting::QueueDirection;
use crate::{CpuSet, Known};

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Irq,
    explain: "Each queue's vector interrupts one of the CPUs of its affinity, and the packets of that queue are then \
              processed there. Drivers hint where, irqbalance and others decide; the interrupts of many queues on few \
              CPUs leave the other CPUs without packets.",
    rules: rules::RULES,
    counters: counters::counters,
};

/// Interrupts of the interfaces looked at.
#[derive(Debug, Clone, Serialize)]
pub struct IrqState {
    /// An item an interface; the vectors unknown where they cannot be told, and empty where it has none.
    pub interfaces: Vec<InterfaceVectors>,
    /// Who sets affinities on this host.
    pub owners: Known<Vec<IrqOwner>>,
    /// CPUs kept from all that is not put there on purpose (`/sys/devices/system/cpu/isolated`); none where the kernel
    /// does not tell.
    pub isolated: Known<Option<CpuSet>>,
}

/// Vectors of an interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceVectors {
    /// The interface.
    pub interface: String,
    /// Its vectors, in order of number.
    pub vectors: Known<Vec<IrqVector>>,
}

/// An interrupt.
#[derive(Debug, Clone, Serialize)]
pub struct IrqVector {
    /// Its number.
    pub irq: u32,
    /// Its name in `/proc/interrupts`, such as `eth0-TxRx-3`.
    pub name: String,
    /// The receive queue it serves.
    pub receive_queue: Option<u32>,
    /// The transmit queue it serves.
    pub transmit_queue: Option<u32>,
    /// The CPUs it may go to (`smp_affinity`).
    pub affinity: Known<CpuSet>,
    /// The CPUs it does go to (`effective_affinity`, Linux 4.15); none where the kernel does not tell.
    pub effective: Known<Option<CpuSet>>,
    /// The CPUs its driver would like (`affinity_hint`); none where it does not say.
    pub hint: Known<Option<CpuSet>>,
    /// How often it was handled on each CPU: pairs of CPU and count, without those that are zero.
    pub handled: Vec<(u32, u64)>,
    /// Whether the kernel manages its affinity, so that nobody may change it; none where it does not tell, as most do not.
    pub managed: Known<Option<bool>>,
}

/// Somebody who sets the affinity of interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IrqOwner {
    /// Who: `irqbalance`, `systemd .link`, `tuned`, `driver-managed`, `google-guest-agent`, ...
    pub name: String,
    /// How it is set: its arguments, policy, bans, or the line of the file.
    pub how: String,
    /// The process, where it is one.
    pub pid: Option<u32>,
    /// Where that was read.
    pub read_from: String,
    /// Interrupts it is told to leave alone.
    pub leaves_alone: Vec<u32>,
    /// The file of its environment, and the arguments it has there; none where it has no such file.
    pub environment: Option<(String, String)>,
}

impl IrqState {
    /// The vectors of an interface, empty where they are unknown.
    #[must_use]
    pub fn vectors(&self, interface: &str) -> &[IrqVector] {
        let found = self.interfaces.iter().find(|item| item.interface == interface);
        found.and_then(|item| item.vectors.value()).map_or(&[], Vec::as_slice)
    }

    /// The vector that serves a receive queue.
    #[must_use]
    pub fn receive_vector(&self, interface: &str, queue: u32) -> Option<&IrqVector> {
        self.vectors(interface).iter().find(|vector| vector.receive_queue == Some(queue))
    }
}

impl IrqVector {
    /// The CPUs it goes to: those in effect where the kernel tells, else those it may go to.
    ///
    /// On x86 without interrupt remapping an affinity takes effect with the vector's next interrupt. Until then
    /// `smp_affinity` is the one to come, and what is in effect lies outside of it (kernel/irq/proc.c,
    /// `show_irq_affinity`, and kernel/irq/migration.c, Linux 6.12): a virtual machine's idle queues seem to share CPUs.
    #[must_use]
    pub fn cpus(&self) -> Option<&CpuSet> {
        let to_come = |effective: &CpuSet| {
            self.affinity.value().is_some_and(|allowed| effective.iter().any(|cpu| !allowed.contains(cpu)))
        };
        match &self.effective {
            Known::Value(Some(cpus)) if !cpus.is_empty() && !to_come(cpus) => Some(cpus),
            _ => self.affinity.value(),
        }
    }

    /// The one CPU it goes to; none where there are several, or where that is not known.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        only(self.cpus()?)
    }

    /// The one CPU its driver would like; none where it would like several, or does not say.
    #[must_use]
    pub fn hinted_cpu(&self) -> Option<u32> {
        only(self.hint.value()?.as_ref()?)
    }

    /// Whether the kernel is known to manage its affinity, so that nobody may change it.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.managed.value().copied().flatten() == Some(true)
    }

    /// Whether it serves a queue of this direction.
    #[must_use]
    pub fn serves(&self, direction: QueueDirection) -> bool {
        match direction {
            QueueDirection::Receive => self.receive_queue.is_some(),
            QueueDirection::Transmit => self.transmit_queue.is_some(),
        }
    }
}

fn only(cpus: &CpuSet) -> Option<u32> {
    cpus.iter().next().filter(|_| cpus.len() == 1)
}
