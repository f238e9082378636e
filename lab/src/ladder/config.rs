//! The configuration of a run. Arguments become it, testbeds and generators borrow it, and the report contains it.

use std::time::Duration;

use linerate_host::CpuSet;
use linerate_load::generator::GeneratorBackend;
use linerate_load::seconds;
use linerate_load::wire::{IpVersion, LinkSpeed, WireFormat};
use serde::{Deserialize, Serialize};

use crate::ladder::error::TestbedError;
use crate::ladder::step::LadderStep;
use crate::program::ServerRecipe;

/// A run of the ladder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LadderConfig {
    /// The steps in order, the baseline first.
    #[serde(skip)]
    pub steps: Vec<&'static LadderStep>,
    pub policy: KeepPolicy,
    /// Planned duration of the whole run. It takes longer if every search needs its least time.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    #[serde(flatten)]
    pub timing: RunTiming,
    /// UDP payload of a request.
    pub payload_bytes: u32,
    /// Source ports of a generator.
    pub flows: u32,
    /// Highest loss at which a rate holds.
    pub max_loss_ratio: f64,
    /// Highest rate that is offered; `None` for no limit.
    #[serde(default)]
    pub max_rate_per_second: Option<f64>,
    /// Share of their requests that real clients may lose until the run ends; `None`: they are not observed.
    #[serde(default)]
    pub guard_loss_ratio: Option<f64>,
    /// Limit of the 99th percentile of the time that real clients wait for a reply; `None`: not observed.
    #[serde(default)]
    pub guard_p99_ns: Option<u64>,
    /// CPUs to use; empty: all CPUs that the process may use.
    pub cpus: Vec<u32>,
    /// Queues of the lab's receiver; `None`: one per CPU.
    pub queues: Option<u32>,
    /// The server program that is measured; `None`: linerate's own echo server.
    #[serde(default)]
    pub server: Option<ServerRecipe>,
    /// Whether settings of the whole machine may change.
    pub host_wide: bool,
    pub backend: GeneratorBackend,
    pub no_fragment: bool,
    /// Link for the line-rate share; `None`: the interface's speed, 10 Gbit/s in a lab.
    #[serde(skip)]
    pub link: Option<LinkSpeed>,
}

/// How long the parts of a run take.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RunTiming {
    #[serde(skip)]
    pub(crate) per_step: Duration,
    /// Length of one probe of a rate.
    #[serde(rename = "slot_seconds", with = "seconds")]
    pub slot: Duration,
    /// Time per probe in addition to the slot, for its order and its report.
    #[serde(rename = "slot_overhead_seconds", with = "seconds")]
    pub(crate) slot_overhead: Duration,
    /// Longest wait for late replies after a slot.
    #[serde(rename = "drain_seconds", with = "seconds")]
    pub drain: Duration,
    /// First rate of a search without a hint, transactions per second.
    pub start_per_second: f64,
    /// A search ends when the lowest rate that failed is at most this multiple of the highest that held.
    pub resolution_ratio: f64,
    /// Samples of each configuration in a comparison; rounded up to an even number, at least 4.
    pub samples: u32,
}

impl RunTiming {
    /// A generator in this process.
    pub const LAB: Self = Self {
        per_step: Duration::from_secs(23),
        slot: Duration::from_millis(120),
        slot_overhead: Duration::ZERO,
        drain: Duration::from_millis(60),
        start_per_second: 8_000.0,
        resolution_ratio: 1.04,
        samples: 8,
    };
    pub const LAB_QUICK: Self = Self {
        per_step: Duration::from_secs(5),
        slot: Duration::from_millis(80),
        resolution_ratio: 1.06,
        samples: 4,
        ..Self::LAB
    };
    /// Generators on other hosts, which get their orders over ssh.
    pub const REMOTE: Self = Self {
        per_step: Duration::from_secs(60),
        slot: Duration::from_millis(250),
        slot_overhead: Duration::from_millis(250),
        drain: Duration::from_millis(200),
        start_per_second: 10_000.0,
        resolution_ratio: 1.04,
        samples: 8,
    };
    pub const REMOTE_QUICK: Self = Self {
        per_step: Duration::from_secs(24),
        slot: Duration::from_millis(150),
        resolution_ratio: 1.06,
        samples: 4,
        ..Self::REMOTE
    };
}

/// Which settings stay for the following steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum KeepPolicy {
    /// Every step that could be applied.
    KeepAll,
    /// Steps shown to be better than the configuration before.
    KeepBetter,
}

impl KeepPolicy {
    /// The name on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Number of slots for a search between two close rates.
const LEAST_SLOTS: u32 = 6;

impl LadderConfig {
    /// A run of these steps with the defaults of the command line.
    #[must_use]
    pub fn new(steps: Vec<&'static LadderStep>, timing: RunTiming) -> Self {
        let duration = timing.per_step * u32::try_from(steps.len()).unwrap_or(u32::MAX);
        Self {
            steps,
            policy: KeepPolicy::KeepAll,
            duration,
            timing,
            payload_bytes: 100,
            flows: 64,
            max_loss_ratio: 0.001,
            max_rate_per_second: None,
            guard_loss_ratio: None,
            guard_p99_ns: None,
            cpus: Vec::new(),
            queues: None,
            server: None,
            host_wide: false,
            backend: GeneratorBackend::Auto,
            no_fragment: false,
            link: None,
        }
    }

    /// Least time for a sample. With less, a search ends far from the capacity.
    pub(crate) fn least_sample(&self) -> Duration {
        (self.timing.slot + self.timing.slot_overhead) * LEAST_SLOTS
    }

    /// The frame of a request on a link of this speed.
    pub(crate) fn wire(&self, version: IpVersion, speed: LinkSpeed) -> Result<WireFormat, TestbedError> {
        Ok(WireFormat::new(self.payload_bytes, version, 0, speed)?)
    }

    /// Sets the CPUs to those that the process may use, or checks the configured CPUs.
    pub(crate) fn resolve_cpus(&mut self) -> Result<(), TestbedError> {
        let allowed_cpus = rustix::thread::sched_getaffinity(None)
            .map_err(|error| TestbedError::AffinityUnreadable(error.to_string()))?;
        let allowed_cpus: CpuSet = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| allowed_cpus.is_set(*cpu))
            .filter_map(|cpu| u32::try_from(cpu).ok())
            .collect();
        if let Some(missing_cpu) = self.cpus.iter().copied().find(|cpu| !allowed_cpus.contains(*cpu)) {
            return Err(TestbedError::NoSuchCpu { wanted: missing_cpu, allowed: allowed_cpus });
        }
        if self.cpus.is_empty() {
            self.cpus = allowed_cpus.iter().collect();
        }
        Ok(())
    }
}
