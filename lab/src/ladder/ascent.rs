//! A climb on any bench, from how it is wanted to its report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use linerate_host::Host;
use linerate_host::stage::machine::MachineState;
use linerate_load::wire::{IpVersion, LinkSpeed, WireError, WireFormat};

use crate::ladder::bench::measuring::SampleMethod;
use crate::ladder::bench::{BenchError, PlaceFacts, ReportedTestbed};
use crate::ladder::climb::{KeepPolicy, LadderEvent, LadderResult, StepOptions, climb};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::published;
use crate::ladder::report::{self, GeneratorFacts, HostFacts, LadderMethod, LadderReport};
use crate::ladder::step::LadderStep;

/// How to climb, wherever it is.
#[derive(Debug, Clone)]
pub struct LadderConfig {
    /// The steps, in climbing order.
    pub steps: Vec<&'static LadderStep>,
    /// What stays in place.
    pub policy: KeepPolicy,
    pub budget: Duration,
    /// Length of one probe of a rate.
    pub slot: Duration,
    /// What a probe takes besides: its beginning on other hosts, and the wait for stragglers.
    pub slot_overhead: Duration,
    /// Ratio of a rate that does not hold to one that does at which a search ends.
    pub resolution: f64,
    /// Samples of each configuration in a comparison.
    pub samples: u32,
    /// UDP payload of a request, bytes.
    pub payload: u32,
    /// Source ports of a generator.
    pub flows: u32,
    /// Highest loss ratio at which a rate holds.
    pub max_loss: f64,
}

impl LadderConfig {
    /// How rates are offered and judged.
    pub(crate) fn measuring(
        &self,
        drain: Duration,
        start_per_second: f64,
        cancel: Arc<AtomicBool>,
    ) -> SampleMethod {
        SampleMethod {
            max_loss: self.max_loss,
            slot: self.slot,
            resolution: self.resolution,
            drain,
            start_per_second,
            cancel,
        }
    }
}

/// The link that rates are a share of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLink {
    bits_per_second: u64,
    bits_per_transaction: u64,
}

impl RateLink {
    /// The link as the requests of a climb fill it.
    pub(crate) fn new(terms: &LadderConfig, family: IpVersion, speed: LinkSpeed) -> Result<Self, WireError> {
        let wire = WireFormat::new(terms.payload, family, 0, speed)?;
        Ok(Self { bits_per_second: speed.bits_per_second(), bits_per_transaction: wire.wire_bits() })
    }
}

/// When a climb began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunStart {
    instant: Instant,
    unix_seconds: u64,
}

impl RunStart {
    pub(crate) fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { instant: Instant::now(), unix_seconds: since_1970.map_or(0, |elapsed| elapsed.as_secs()) }
    }
}

/// A climb's report, and what stayed in place.
#[derive(Debug)]
pub struct LadderOutcome {
    pub report: LadderReport,
    /// The configuration that stayed.
    pub kept: ServerConfiguration,
}

/// Slots that a search between two rates close together takes.
const LEAST_SLOTS: u32 = 6;
/// Multiples of the capacity offered for `goodput_at_overload`.
const OVERLOAD: [f64; 2] = [2.0, 5.0];

/// Climbs on a bench that is ready, and reports.
///
/// `privilege` is how the process came to be allowed to, for the report.
pub(crate) fn ascend(
    bench: &mut impl ReportedTestbed,
    terms: &LadderConfig,
    link: &RateLink,
    started: &RunStart,
    privilege: &str,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderOutcome, BenchError> {
    let options = StepOptions {
        policy: terms.policy,
        samples: terms.samples,
        budget: terms.budget.saturating_sub(started.instant.elapsed()),
        least_sample: (terms.slot + terms.slot_overhead) * LEAST_SLOTS,
        overload: OVERLOAD.to_vec(),
        wire_bits_per_transaction: link.bits_per_transaction,
        link_bits_per_second: link.bits_per_second,
    };
    let LadderResult { mut steps, mut warnings, kept } = climb(bench, &terms.steps, &options, observer)?;
    let published = published::ladders();
    for step in &mut steps {
        step.published_ratio = published::step_ratio(&published, &step.id);
    }
    let facts = bench.facts();
    warnings.extend(facts.warnings.iter().cloned());
    let report = LadderReport {
        schema: report::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        argv: Vec::new(),
        started_unix_seconds: started.unix_seconds,
        elapsed_seconds: started.instant.elapsed().as_secs_f64(),
        host: host(&facts, privilege),
        generator: generator(&facts),
        method: method(&facts, terms, &options),
        settings: None,
        steps,
        published,
        warnings,
    };
    Ok(LadderOutcome { report, kept })
}

fn host(facts: &PlaceFacts, privilege: &str) -> HostFacts {
    let machine = MachineState::observe(&Host::live());
    HostFacts {
        kernel: machine.kernel.into_value().unwrap_or_else(|| "unknown".to_owned()),
        architecture: std::env::consts::ARCH.to_owned(),
        cpu_model: machine.cpu_model.into_value(),
        cpus: facts.cpus.clone(),
        numa_nodes: machine.numa_nodes.into_value(),
        hypervisor: machine.hypervisor.into_value(),
        privilege: privilege.to_owned(),
    }
}

fn generator(facts: &PlaceFacts) -> GeneratorFacts {
    let of = facts.generator.as_ref();
    GeneratorFacts {
        backend: of.map_or_else(|| "none".to_owned(), |generator| generator.backend.clone()),
        threads: count(of.map_or(0, |generator| generator.threads)),
        cpus: of.map(|generator| generator.cpus.clone()).unwrap_or_default(),
        flows: count(of.map_or(0, |generator| generator.flows)),
        payload_bytes: count(of.map_or(0, |generator| generator.payload_bytes)),
        shares_cpus_with_server: facts.shares_cpus,
        hosts: facts.generator_hosts.clone(),
    }
}

fn method(facts: &PlaceFacts, terms: &LadderConfig, options: &StepOptions) -> LadderMethod {
    LadderMethod {
        bench: facts.bench.to_owned(),
        server_cpus: facts.server_cpus.clone(),
        workers: count(facts.server_cpus.len()),
        queues: facts.queues,
        server_address: facts.address.to_string(),
        max_loss_ratio: terms.max_loss,
        slot_seconds: terms.slot.as_secs_f64(),
        samples: terms.samples,
        link_bits_per_second: options.link_bits_per_second,
        wire_bits_per_transaction: options.wire_bits_per_transaction,
        policy: terms.policy.name().to_owned(),
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
