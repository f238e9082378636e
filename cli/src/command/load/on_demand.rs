//! `linerate load --on-demand`: the remote side of a ladder's generators.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use linerate_lab::ladder::remote;
use linerate_load::generator::GeneratorOptions;

use super::LoadArgs;

impl LoadArgs {
    // Offers load by the orders on standard input. Signals keep their default action, because a
    // result is useless without the side that ordered it.
    pub(super) fn on_demand(&self) -> Result<ExitCode> {
        let cancel = Arc::default();
        let workload = match self.pace.workload_from_stdin {
            true => self.workload.workload_from_stdin()?,
            false => self.workload.workload()?,
        };
        let options = GeneratorOptions { workload, ..self.generator_options(Arc::clone(&cancel))? };
        let mut generator = options.start()?;
        remote::serve(&mut *generator, io::stdin(), io::stdout(), &cancel).context("--on-demand")?;
        Ok(ExitCode::SUCCESS)
    }
}
