//! Options of a reflector.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::thread::CpuSet;

use crate::reflector::faults::{FaultCounter, FaultRates};

/// A UDP service of known behaviour.
#[derive(Debug)]
pub struct Reflector;

impl Reflector {
    /// Default: an echo on loopback at a free port.
    pub fn builder() -> ReflectorBuilder {
        ReflectorBuilder {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            cpu: None,
            faults: FaultRates::default(),
            swap: FaultCounter::default(),
            delay: Duration::ZERO,
            busy: false,
            bucket: None,
            freeze: None,
        }
    }
}

/// Options of a reflector. Faults can be combined and apply in this order: token bucket, drop,
/// damage, duplicate. Each fault counts the requests that the earlier ones left unchanged. Only
/// intact replies are swapped.
#[derive(Debug, Clone)]
pub struct ReflectorBuilder {
    pub(crate) address: SocketAddr,
    pub(crate) cpu: Option<usize>,
    pub(crate) faults: FaultRates,
    pub(crate) swap: FaultCounter,
    pub(crate) delay: Duration,
    pub(crate) busy: bool,
    pub(crate) bucket: Option<(f64, u32)>,
    pub(crate) freeze: Option<(Duration, Duration)>,
}

impl ReflectorBuilder {
    /// The address to serve, in the network namespace of the thread that starts the reflector. Port
    /// 0 selects a free port.
    #[must_use]
    pub fn address(mut self, address: impl Into<SocketAddr>) -> Self {
        self.address = address.into();
        self
    }

    /// The CPU of the reflector's thread; without it, any CPU.
    #[must_use]
    pub fn cpu(mut self, cpu: usize) -> Self {
        assert!(cpu < CpuSet::MAX_CPU, "no machine has CPU {cpu}");
        self.cpu = Some(cpu);
        self
    }

    /// Does not answer every `nth` request.
    #[must_use]
    pub fn drop_every(mut self, nth: u64) -> Self {
        self.faults.drop = FaultCounter::nth(nth);
        self
    }

    /// Changes one byte in the answer to every `nth` request; its position differs per request.
    #[must_use]
    pub fn corrupt_every(mut self, nth: u64) -> Self {
        self.faults.corrupt = FaultCounter::nth(nth);
        self
    }

    /// Answers every `nth` request twice.
    #[must_use]
    pub fn duplicate_every(mut self, nth: u64) -> Self {
        self.faults.duplicate = FaultCounter::nth(nth);
        self
    }

    /// Answers every `nth` pair of requests of one source in reverse order. The first reply waits
    /// at most 100 ms for the second.
    #[must_use]
    pub fn swap_every(mut self, nth: u64) -> Self {
        self.swap = FaultCounter::nth(nth);
        self
    }

    /// Delays each answer until this time after the request arrived in the kernel, with a busy wait
    /// near the end. The default is no delay.
    /// [`Account::reply_delay_ns`](crate::reflector::ReflectorAccount::reply_delay_ns) returns the
    /// measured times.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Never sleeps while it waits for a request. Without this option, a service without delay has
    /// to wake up before it answers, but a service with delay is awake, so they differ in more than
    /// the delay.
    #[must_use]
    pub fn busy(mut self) -> Self {
        self.busy = true;
        self
    }

    /// Answers `per_second` requests and drops requests above this rate: a token bucket of `depth`,
    /// full at first, that uses the arrival times in the kernel.
    #[must_use]
    pub fn token_bucket(mut self, per_second: f64, depth: u32) -> Self {
        assert!(per_second > 0.0 && depth > 0, "a token bucket of {depth} at {per_second}/s answers nothing");
        self.bucket = Some((per_second, depth));
        self
    }

    /// Receives and answers nothing in the last `lasting` of every period `every`, counted from the
    /// first request. Afterwards it answers the requests queued in the meantime.
    #[must_use]
    pub fn freeze(mut self, every: Duration, lasting: Duration) -> Self {
        assert!(!lasting.is_zero() && lasting < every, "a freeze of {lasting:?} in {every:?}");
        self.freeze = Some((every, lasting));
        self
    }
}

// A duration in whole nanoseconds.
pub(crate) fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}
