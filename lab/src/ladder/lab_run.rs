//! A run in the lab, from its configuration to its report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::ladder::config::{LadderConfig, LadderCpusError};
use crate::ladder::error::TestbedError;
use crate::ladder::lab_testbed::LabTestbed;
use crate::ladder::program_server::ProgramServer;
use crate::ladder::run::{self, LadderEvent, LadderOutcome};

/// Why a run in the lab has no report: one line.
#[derive(Debug, thiserror::Error)]
pub enum LabRunError {
    #[error(transparent)]
    Cpus(#[from] LadderCpusError),
    #[error(transparent)]
    Testbed(#[from] TestbedError),
}

/// Starts a lab, measures in it, removes it, and reports.
///
/// If `cancel` is set, the run ends early and the report has the steps until then.
///
/// # Errors
/// [`LabRunError`], before anything is measured or when the baseline cannot be measured.
pub fn run(
    config: &LadderConfig,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderOutcome, LabRunError> {
    let started = Instant::now();
    let mut config = config.clone();
    config.resolve_cpus()?;
    let program = config.server.as_ref().map(ProgramServer::prepare).transpose()?;
    if let Some(program) = &program {
        config.payload_bytes = program.payload_bytes();
    }
    let mut testbed = LabTestbed::start(&config, program, cancel)?;
    Ok(run::run(&mut testbed, &config, started, observer)?)
}
