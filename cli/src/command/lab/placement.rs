//! `linerate lab placement`: one receiver on different CPUs.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_lab::placement::{self, PlacementConfig};

use crate::command::results::ResultArgs;
use crate::render::format;

/// Measure how many packets per second one thread receives on the CPU that processes the packets, on the other hardware
/// thread of its core, on another core, and on another NUMA node.
#[derive(Debug, Args)]
#[command(after_help = "Example: linerate lab placement --html placement.html")]
pub(super) struct LabPlacementArgs {
    /// Samples per placement, an even number from 4; each has one of the first placement next to it
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(4..=100))]
    samples: u32,
    /// UDP payload of a packet, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    payload: u32,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    results: ResultArgs,
}

impl LabPlacementArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let config = PlacementConfig { payload_bytes: self.payload, samples: self.samples };
        super::compare("placement", self.samples, &targets, |cancel| {
            Ok(placement::run(&config, cancel, &mut |placement, packets_per_second| {
                if !self.quiet {
                    let rate = format::rate(packets_per_second);
                    status_line!("{:<11} {rate:>8} packets/s", placement.name());
                }
            })?)
        })
    }
}
