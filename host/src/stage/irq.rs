//! Interrupts: the CPU of each queue's vector, and the tools that set it.

mod observe;
pub(crate) mod owner;
pub(super) mod rules;
#[cfg(test)]
pub(in crate::stage) mod sample;
pub(crate) mod served_queues;

pub use observe::handler_names;
pub use owner::link_file::{LinkFile, link_files};
pub use owner::tuned::{TunedProfile, TunedSetting};
use serde::Serialize;
pub(crate) use served_queues::contains_word;

use crate::setting::QueueDirection;
use crate::{CpuSet, Known};

#[derive(Debug, Clone, Serialize)]
pub struct IrqState {
    /// Vectors are unknown if they cannot be read, and empty if the interface has none.
    pub interfaces: Vec<InterfaceVectors>,
    /// Tools that set affinities on this host.
    pub owners: Known<Vec<IrqOwner>>,
    /// CPUs that isolcpus= excludes from general scheduling, or nohz_full= from the timer tick
    /// (`/sys/devices/system/cpu/isolated`, `nohz_full`); `None` if the kernel does not report them.
    pub isolated: Known<Option<CpuSet>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct InterfaceVectors {
    pub interface: String,
    pub vectors: Known<Vec<IrqVector>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct IrqVector {
    pub irq: u32,
    /// As in `/proc/interrupts`, such as `eth0-TxRx-3`.
    pub name: String,
    pub receive_queue: Option<u32>,
    pub transmit_queue: Option<u32>,
    /// The allowed CPUs (`smp_affinity`).
    pub affinity: Known<CpuSet>,
    /// The CPUs in use (`effective_affinity`, Linux 4.15); `None` if the kernel does not report
    /// them.
    pub effective: Known<Option<CpuSet>>,
    /// The CPUs the driver suggests (`affinity_hint`); `None` without a hint.
    pub hint: Known<Option<CpuSet>>,
    /// Pairs of CPU and count, without zeros.
    pub handled: Vec<(u32, u64)>,
    /// Whether the kernel manages the affinity, so that it cannot be changed; `None` if it does not
    /// say, as most kernels do not.
    pub managed: Known<Option<bool>>,
}

/// A tool that sets the affinity of interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IrqOwner {
    /// `irqbalance`, `systemd .link`, `tuned`, `driver-managed`, `google-guest-agent`, ...
    pub name: String,
    /// Its arguments, policy, bans, or the line of the file.
    pub how: String,
    pub pid: Option<u32>,
    pub read_from: String,
    /// Interrupts it is configured to leave alone.
    pub leaves_alone: Vec<u32>,
    /// Its environment file with the arguments in it; `None` without a file.
    pub environment: Option<(String, String)>,
}

impl IrqState {
    /// Empty if unknown.
    pub fn vectors(&self, interface: &str) -> &[IrqVector] {
        let found = self.interfaces.iter().find(|item| item.interface == interface);
        found.and_then(|item| item.vectors.value()).map_or(&[], Vec::as_slice)
    }

    pub fn receive_vector(&self, interface: &str, queue: u32) -> Option<&IrqVector> {
        self.vectors(interface).iter().find(|vector| vector.receive_queue == Some(queue))
    }
}

impl IrqVector {
    /// The effective CPUs if the kernel reports them, otherwise the allowed CPUs.
    ///
    /// On x86 without interrupt remapping an affinity takes effect with the vector's next
    /// interrupt. Until then `smp_affinity` is the future affinity, and the effective CPU is
    /// outside of it (kernel/irq/proc.c, `show_irq_affinity`, and kernel/irq/migration.c, Linux
    /// 6.12). Without this check, idle queues of a virtual machine would seem to share CPUs.
    pub fn cpus(&self) -> Option<&CpuSet> {
        let is_pending = |effective: &CpuSet| {
            self.affinity.value().is_some_and(|allowed| effective.iter().any(|cpu| !allowed.contains(cpu)))
        };
        match &self.effective {
            Known::Value(Some(cpus)) if !cpus.is_empty() && !is_pending(cpus) => Some(cpus),
            _ => self.affinity.value(),
        }
    }

    /// `None` if there are several CPUs, or if they are unknown.
    pub fn cpu(&self) -> Option<u32> {
        single_cpu(self.cpus()?)
    }

    /// `None` if the driver suggests several CPUs, or none.
    pub fn hinted_cpu(&self) -> Option<u32> {
        single_cpu(self.hint.value()?.as_ref()?)
    }

    /// Whether it is known that the kernel manages the affinity, so that it cannot be changed.
    pub fn is_managed(&self) -> bool {
        self.managed.value().copied().flatten() == Some(true)
    }

    pub fn serves(&self, direction: QueueDirection) -> bool {
        match direction {
            QueueDirection::Receive => self.receive_queue.is_some(),
            QueueDirection::Transmit => self.transmit_queue.is_some(),
        }
    }
}

fn single_cpu(cpus: &CpuSet) -> Option<u32> {
    cpus.iter().next().filter(|_| cpus.len() == 1)
}
