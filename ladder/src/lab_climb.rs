//! A climb in the lab, from its options to its report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use linerate_host::stage::machine::Machine;
use linerate_host::{CpuSet, Host};
use linerate_measure::generator::Backend;
use linerate_measure::wire::{self, Family, LinkSpeed, Wire};

use crate::bench::BenchError;
use crate::climb::{Climbed, Event, Options, Policy, climb};
use crate::lab_bench::{LabBench, LabBenchOptions};
use crate::published;
use crate::report::{self, GeneratorFacts, HostFacts, Method, Report, Warning, WarningKind};
use crate::rung::Rung;

/// What to climb and how.
#[derive(Debug, Clone)]
pub struct LabClimb {
    /// The rungs, in climbing order.
    pub rungs: Vec<&'static Rung>,
    /// What stays in place.
    pub policy: Policy,
    /// Time to take.
    pub budget: Duration,
    /// Length of one probe of a rate.
    pub slot: Duration,
    /// Ratio of a rate that does not hold to one that does at which a search ends.
    pub resolution: f64,
    /// Samples of each configuration in a comparison.
    pub samples: u32,
    /// Whether settings of the whole machine may be changed.
    pub host_wide: bool,
    /// UDP payload of a request, bytes.
    pub payload: u32,
    /// The generator's way into the kernel.
    pub backend: Backend,
    /// Source ports of the generator.
    pub flows: u32,
    /// Whether to refuse what would be fragmented.
    pub no_fragment: bool,
    /// Highest loss ratio at which a rate holds.
    pub max_loss: f64,
    /// Speed of the link that rates are a share of.
    pub link: LinkSpeed,
    /// CPUs to use; all the process may run on if none are named.
    pub cpus: Option<CpuSet>,
    /// Queues of the receiver, if not as many as CPUs.
    pub queues: Option<u32>,
}

/// Slots that a search between two rates close together takes.
const LEAST_SLOTS: u32 = 6;
/// Multiples of the capacity offered for `goodput_at_overload`.
const OVERLOAD: [f64; 2] = [2.0, 5.0];

/// Why a climb could not be made: one line.
#[derive(Debug, thiserror::Error)]
pub enum LabClimbError {
    /// CPUs were named that the process may not use.
    #[error("CPU {wanted} is not among those this process may run on ({allowed})")]
    NoSuchCpu {
        /// The first such CPU.
        wanted: u32,
        /// Those it may run on.
        allowed: CpuSet,
    },
    /// No CPUs were named, or none could be read.
    #[error("no CPU to run on: {0}")]
    NoCpu(String),
    /// The payload does not fit a datagram.
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    /// Lab, server or generator failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

/// Makes a lab, climbs in it, removes it, and reports.
///
/// `privilege` is how the process came to be allowed to, for the report. The climb ends early
/// when `cancel` is raised; what was measured by then is reported.
///
/// # Errors
/// [`LabClimbError`], before anything is measured or when the baseline cannot be.
pub fn run(
    wanted: &LabClimb,
    privilege: &str,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<Report, LabClimbError> {
    let started = Instant::now();
    let started_unix_seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let cpus = cpus(wanted.cpus.as_ref())?;
    let wire = Wire::new(wanted.payload, Family::V4, 0, wanted.link)?;
    let mut bench = LabBench::start(LabBenchOptions {
        cpus: cpus.clone(),
        queues: wanted.queues,
        flows: wanted.flows,
        payload: wanted.payload,
        backend: wanted.backend,
        no_fragment: wanted.no_fragment,
        max_loss: wanted.max_loss,
        slot: wanted.slot,
        resolution: wanted.resolution,
        host_wide: wanted.host_wide,
        cancel,
    })?;
    let options = Options {
        policy: wanted.policy,
        samples: wanted.samples,
        budget: wanted.budget.saturating_sub(started.elapsed()),
        least_sample: wanted.slot * LEAST_SLOTS,
        overload: OVERLOAD.to_vec(),
        wire_bits_per_transaction: wire.wire_bits(),
        link_bits_per_second: wanted.link.bits_per_second(),
    };
    let Climbed { mut rungs, mut warnings } = climb(&mut bench, &wanted.rungs, &options, observer)?;
    let published = published::ladders();
    for rung in &mut rungs {
        rung.published_ratio = published::step_ratio(&published, &rung.id);
    }
    warnings.extend(shared_cpus(&bench));
    warnings.extend(fallbacks(&bench));
    Ok(Report {
        schema: report::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        argv: Vec::new(),
        started_unix_seconds,
        elapsed_seconds: started.elapsed().as_secs_f64(),
        host: host_facts(cpus, privilege),
        generator: generator_facts(&bench),
        method: method(&bench, wanted, &options),
        rungs,
        published,
        warnings,
    })
}

fn cpus(wanted: Option<&CpuSet>) -> Result<Vec<u32>, LabClimbError> {
    let allowed =
        rustix::thread::sched_getaffinity(None).map_err(|error| LabClimbError::NoCpu(error.to_string()))?;
    let allowed: CpuSet = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect();
    let Some(wanted) = wanted else {
        return Ok(allowed.iter().collect());
    };
    if let Some(wanted) = wanted.iter().find(|cpu| !allowed.contains(*cpu)) {
        return Err(LabClimbError::NoSuchCpu { wanted, allowed });
    }
    if wanted.is_empty() {
        return Err(LabClimbError::NoCpu("the list of CPUs is empty".to_owned()));
    }
    Ok(wanted.iter().collect())
}

fn host_facts(cpus: Vec<u32>, privilege: &str) -> HostFacts {
    let machine = Machine::observe(&Host::live());
    HostFacts {
        kernel: machine.kernel.into_value().unwrap_or_else(|| "unknown".to_owned()),
        architecture: std::env::consts::ARCH.to_owned(),
        cpu_model: machine.cpu_model.into_value(),
        cpus,
        numa_nodes: machine.numa_nodes.into_value(),
        hypervisor: machine.hypervisor.into_value(),
        privilege: privilege.to_owned(),
    }
}

fn generator_facts(bench: &LabBench) -> GeneratorFacts {
    let description = bench.generator();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    GeneratorFacts {
        backend: description.backend,
        threads: count(description.threads),
        cpus: description.cpus,
        flows: count(description.flows),
        payload_bytes: count(description.payload_bytes),
        shares_cpus_with_server: bench.placement().shared,
    }
}

fn method(bench: &LabBench, wanted: &LabClimb, options: &Options) -> Method {
    Method {
        bench: "lab".to_owned(),
        server_cpus: bench.placement().server.clone(),
        workers: u32::try_from(bench.placement().server.len()).unwrap_or(u32::MAX),
        queues: bench.queues(),
        server_address: bench.address().to_string(),
        max_loss_ratio: wanted.max_loss,
        slot_seconds: wanted.slot.as_secs_f64(),
        samples: wanted.samples,
        link_bits_per_second: options.link_bits_per_second,
        wire_bits_per_transaction: options.wire_bits_per_transaction,
        policy: wanted.policy.name().to_owned(),
    }
}

fn fallbacks(bench: &LabBench) -> Vec<Warning> {
    let fallbacks = bench.generator().fallbacks.into_iter();
    fallbacks
        .map(|fallback| Warning { kind: WarningKind::Fallback, detail: format!("generator: {fallback}") })
        .collect()
}

fn shared_cpus(bench: &LabBench) -> Option<Warning> {
    bench.placement().shared.then(|| Warning {
        kind: WarningKind::SharedCpus,
        detail: "generator and server ran on the same CPUs: rates are what the machine does for both, \
                 not what the server could do alone"
            .to_owned(),
    })
}
