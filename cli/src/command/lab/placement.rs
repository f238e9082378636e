//! `linerate lab placement`: one receiver on different CPUs.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_lab::placement::{self, PlacementConfig};

use super::hosts;
use crate::command::results::ResultArgs;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
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
        ensure!(self.samples.is_multiple_of(2), "--samples {}: an even number is required", self.samples);
        ensure!(
            rustix::process::geteuid().is_root(),
            "lab placement requires root: it loads BPF programs and sets queues of interfaces"
        );
        let interrupt = InterruptFlag::install()?;
        hosts::clean_before()?;
        let started = origin::unix_seconds();
        let config = PlacementConfig { payload_bytes: self.payload, samples: self.samples };
        let report = placement::run(&config, &interrupt.flag(), &mut |placement, packets_per_second| {
            if !self.quiet {
                status_line!("{:<11} {:>8} packets/s", placement.name(), format::rate(packets_per_second));
            }
        })?;
        let envelope = Envelope::new(HostSummary::observe(&Host::live()), started, report);
        super::write_until_interrupted(&targets, envelope, &interrupt)
    }
}
