//! What the rules look at: one reading of a host, or two with time between them.

use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::link::LinkState;
use crate::stage::rss::RssState;
use crate::stage::transmit::TransmitState;

/// One reading of a host, or two.
#[derive(Debug, Clone, Copy)]
pub struct HostView<'a> {
    /// The reading to judge, the later one of two.
    pub now: &'a PacketPath,
    /// The earlier one.
    pub before: Option<&'a PacketPath>,
}

impl<'a> HostView<'a> {
    /// A single reading.
    #[must_use]
    pub fn once(now: &'a PacketPath) -> Self {
        Self { now, before: None }
    }

    /// Two readings of the same host.
    #[must_use]
    pub fn twice(before: &'a PacketPath, now: &'a PacketPath) -> Self {
        Self { now, before: Some(before) }
    }

    /// Seconds between the readings; none where there is one, or where their times are unknown.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        let seconds = self.now.uptime_seconds.value()? - self.before?.uptime_seconds.value()?;
        (seconds > 0.0).then_some(seconds)
    }

    /// By how much a counter grew between the readings, per second. None without two readings, or where it shrank,
    /// which means that its source began anew.
    #[must_use]
    pub fn rate(&self, counter: impl Fn(&PacketPath) -> Option<u64>) -> Option<f64> {
        let grown = counter(self.now)?.checked_sub(counter(self.before?)?)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
        self.seconds().map(|seconds| grown as f64 / seconds)
    }
}

impl PacketPath {
    /// The state of an interface.
    #[must_use]
    pub fn link_of(&self, interface: &str) -> Option<&LinkState> {
        self.link.iter().find(|link| link.interface == interface)
    }

    /// The receive-side scaling of an interface.
    #[must_use]
    pub fn rss_of(&self, interface: &str) -> Option<&RssState> {
        self.rss.iter().find(|rss| rss.interface == interface)
    }

    /// The transmit side of an interface.
    #[must_use]
    pub fn transmit_of(&self, interface: &str) -> Option<&TransmitState> {
        self.transmit.iter().find(|transmit| transmit.interface == interface)
    }

    /// CPUs on which a receive queue's interrupt is handled, and so its NAPI instance polled. None where it is not
    /// known, as for an interface without interrupts.
    #[must_use]
    pub fn napi_cpus(&self, interface: &str, queue: u32) -> Option<CpuSet> {
        self.irq.receive_vector(interface, queue).and_then(|vector| vector.cpus().cloned())
    }

    /// CPUs on which packets of a receive queue meet the network stack: those of RPS where it is set, else those of NAPI.
    #[must_use]
    pub fn stack_cpus(&self, interface: &str, queue: u32) -> Option<CpuSet> {
        match self.softirq.rps_cpus(interface, queue) {
            Some(cpus) if !cpus.is_empty() => Some(cpus.clone()),
            _ => self.napi_cpus(interface, queue),
        }
    }
}
