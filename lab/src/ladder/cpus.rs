//! The CPUs that a climb may use.

use linerate_host::CpuSet;

/// Why there are none. One line.
#[derive(Debug, thiserror::Error)]
pub enum LadderCpusError {
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
}

/// Those that were wanted, or all that the process may run on.
pub(crate) fn usable(wanted: Option<&CpuSet>) -> Result<Vec<u32>, LadderCpusError> {
    let allowed =
        rustix::thread::sched_getaffinity(None).map_err(|error| LadderCpusError::NoCpu(error.to_string()))?;
    let allowed: CpuSet = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect();
    let Some(wanted) = wanted else {
        return Ok(allowed.iter().collect());
    };
    if let Some(wanted) = wanted.iter().find(|cpu| !allowed.contains(*cpu)) {
        return Err(LadderCpusError::NoSuchCpu { wanted, allowed });
    }
    if wanted.is_empty() {
        return Err(LadderCpusError::NoCpu("the list of CPUs is empty".to_owned()));
    }
    Ok(wanted.iter().collect())
}
