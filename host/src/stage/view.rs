//! The input of rules: one reading of a host, or two with time between them.

use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::link::LinkState;
use crate::stage::rss::RssState;
use crate::stage::transmit::TransmitState;

/// Fewer lost packets than this are a small loss, whatever their share.
const FEWEST_LOST: f64 = 10.0;

/// Whether a sum of lost packets, such as since boot, is so small that its share has no meaning.
pub(in crate::stage) fn is_small_loss_total(packets: u64) -> bool {
    (packets as f64) < FEWEST_LOST
}

#[derive(Debug, Clone, Copy)]
pub struct HostView<'a> {
    /// The reading to check; with two readings, the later one.
    pub now: &'a PacketPath,
    pub before: Option<&'a PacketPath>,
}

impl<'a> HostView<'a> {
    pub fn once(now: &'a PacketPath) -> Self {
        Self { now, before: None }
    }

    pub fn twice(before: &'a PacketPath, now: &'a PacketPath) -> Self {
        Self { now, before: Some(before) }
    }

    /// Seconds between the readings; `None` with one reading, or if their times are unknown.
    pub fn seconds(&self) -> Option<f64> {
        let seconds = self.now.uptime_seconds.value()? - self.before?.uptime_seconds.value()?;
        (seconds > 0.0).then_some(seconds)
    }

    pub(in crate::stage) fn links_up(&self) -> impl Iterator<Item = &'a LinkState> + use<'a> {
        self.now.link.iter().filter(|link| link.is_up())
    }

    /// Growth of a counter per second. `None` without two readings, or if it shrank because its
    /// source was recreated.
    pub fn rate(&self, counter: impl Fn(&PacketPath) -> Option<u64>) -> Option<f64> {
        let growth = counter(self.now)?.checked_sub(counter(self.before?)?)?;
        self.seconds().map(|seconds| growth as f64 / seconds)
    }

    /// Whether so few packets were lost that their share has no meaning. `lost` is packets per second
    /// with two readings, otherwise packets.
    pub(in crate::stage) fn is_small_loss(&self, lost: f64) -> bool {
        let seconds = if self.before.is_some() { self.seconds() } else { Some(1.0) };
        seconds.is_some_and(|seconds| (lost * seconds).round() < FEWEST_LOST)
    }
}

impl PacketPath {
    pub fn link_of(&self, interface: &str) -> Option<&LinkState> {
        self.link.iter().find(|link| link.interface == interface)
    }

    pub fn rss_of(&self, interface: &str) -> Option<&RssState> {
        self.rss.iter().find(|rss| rss.interface == interface)
    }

    pub fn transmit_of(&self, interface: &str) -> Option<&TransmitState> {
        self.transmit.iter().find(|transmit| transmit.interface == interface)
    }

    /// CPUs that handle a receive queue's interrupt and poll its NAPI instance. `None` if unknown,
    /// for example for an interface without interrupts.
    pub fn napi_cpus(&self, interface: &str, queue: u32) -> Option<CpuSet> {
        self.irq.receive_vector(interface, queue).and_then(|vector| vector.cpus().cloned())
    }

    /// CPUs on which packets of a receive queue enter the network stack: the CPUs of RPS if set,
    /// otherwise the CPUs of NAPI.
    pub fn stack_cpus(&self, interface: &str, queue: u32) -> Option<CpuSet> {
        match self.softirq.rps_cpus(interface, queue) {
            Some(cpus) if !cpus.is_empty() => Some(cpus.clone()),
            _ => self.napi_cpus(interface, queue),
        }
    }

    /// CPUs on which packets of an interface are processed in softirqs. `None` with threaded NAPI, or
    /// if the CPUs of a queue are unknown.
    pub fn softirq_cpus(&self, interface: &str) -> Option<CpuSet> {
        let rps = self.softirq.rps.iter().find(|item| item.interface == interface)?;
        if *rps.threaded.value()? == Some(true) {
            return None;
        }
        let queues = rps.queues.value().filter(|queues| !queues.is_empty())?;
        let cpus = queues.iter().map(|queue| self.stack_cpus(interface, queue.queue));
        Some(cpus.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
    }
}
