//! A climb in the lab, from its options to its report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_host::CpuSet;
use linerate_load::generator::GeneratorBackend;
use linerate_load::wire::{self, IpVersion, LinkSpeed};

use crate::ladder::ascent::{self, LadderConfig, RateLink, RunStart};
use crate::ladder::bench::BenchError;
use crate::ladder::climb::LadderEvent;
use crate::ladder::cpus::{self, LadderCpusError};
use crate::ladder::lab_bench::{self, LabBench, LabBenchOptions};
use crate::ladder::report::LadderReport;

/// What to climb and how.
#[derive(Debug, Clone)]
pub struct LabClimb {
    pub terms: LadderConfig,
    /// Whether settings of the whole machine may be changed.
    pub host_wide: bool,
    /// The generator's way into the kernel.
    pub backend: GeneratorBackend,
    /// Whether to refuse what would be fragmented.
    pub no_fragment: bool,
    /// Speed of the link that rates are a share of.
    pub link: LinkSpeed,
    /// CPUs to use; all the process may run on if none are named.
    pub cpus: Option<CpuSet>,
    /// Queues of the receiver, if not as many as CPUs.
    pub queues: Option<u32>,
}

/// Why a climb could not be made: one line.
#[derive(Debug, thiserror::Error)]
pub enum LabClimbError {
    /// The CPUs cannot be had.
    #[error(transparent)]
    Cpus(#[from] LadderCpusError),
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
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderReport, LabClimbError> {
    let started = RunStart::now();
    let cpus = cpus::usable(wanted.cpus.as_ref())?;
    let link = RateLink::new(&wanted.terms, IpVersion::V4, wanted.link)?;
    let mut bench = LabBench::start(LabBenchOptions {
        cpus,
        queues: wanted.queues,
        flows: wanted.terms.flows,
        payload: wanted.terms.payload,
        backend: wanted.backend,
        no_fragment: wanted.no_fragment,
        measuring: wanted.terms.measuring(lab_bench::DRAIN, lab_bench::START, cancel),
        host_wide: wanted.host_wide,
    })?;
    Ok(ascent::ascend(&mut bench, &wanted.terms, &link, &started, privilege, observer)?.report)
}
