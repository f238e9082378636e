//! A run in the lab, from its configuration to its report.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::ladder::config::LadderConfig;
use crate::ladder::error::TestbedError;
use crate::ladder::lab_testbed::LabTestbed;
use crate::ladder::program_server::ProgramServer;
use crate::ladder::run::{self, LadderEvent, LadderOutcome};

/// Starts a lab, measures in it, removes it, and reports.
///
/// If `cancel` is set, the run ends early and the report has the steps until then.
///
/// # Errors
/// Before anything is measured, or if the baseline cannot be measured.
pub fn run(
    config: &LadderConfig,
    cancel: Arc<AtomicBool>,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderOutcome, TestbedError> {
    let started = Instant::now();
    let mut config = config.clone();
    config.resolve_cpus()?;
    let program = config.server.as_ref().map(ProgramServer::prepare).transpose()?;
    if let Some(program) = &program {
        config.payload_bytes = program.payload_bytes();
    }
    let mut testbed = LabTestbed::start(&config, program, cancel)?;
    run::run(&mut testbed, &config, started, observer)
}
