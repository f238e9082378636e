//! What is exchanged, as the command line says.

use anyhow::Result;
use clap::{Args, ValueEnum};
use linerate_measure::Workload;

/// What is exchanged with the service.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadArguments {
    /// What is exchanged with the service
    #[arg(long, value_enum, default_value_t = Kind::Echo)]
    workload: Kind,
    /// echo: UDP payload of a request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Our own header, which an echo service returns: replies are matched and checked in full
    Echo,
}

impl WorkloadArguments {
    pub(crate) fn workload(&self) -> Result<Workload> {
        match self.workload {
            Kind::Echo => Ok(Workload::Echo { payload_bytes: self.payload }),
        }
    }
}
