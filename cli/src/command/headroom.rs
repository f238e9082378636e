//! `linerate headroom`: how much more a service can take, from its present traffic.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_trace::headroom::HeadroomSession;

use super::netns::NetnsArgs;
use super::results::ResultArgs;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
use crate::output;
use crate::quantity;
use crate::view::headroom::{LIVE_HEADER, live_line};

/// Arguments of `linerate headroom`.
#[derive(Debug, Args)]
pub(crate) struct HeadroomArgs {
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    /// UDP port of the service
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Duration, seconds
    #[arg(long, value_name = "S", default_value = "8", value_parser = quantity::seconds(1.0..=3_600.0))]
    duration: Duration,
    /// Print a line every S seconds until Ctrl-C
    #[arg(long, value_name = "S", value_parser = quantity::seconds(1.0..=3_600.0), conflicts_with_all = ["duration", "json", "html"])]
    watch: Option<Duration>,
    #[command(flatten)]
    results: ResultArgs,
}

impl HeadroomArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let host = Host::live();
        let interrupt = InterruptFlag::install()?;
        // A failed wait ends the measurement early, as a signal does.
        let wait = |time: Duration| {
            let _ = interrupt.wait(Some(time));
        };
        let (started, summary) = (origin::unix_seconds(), HostSummary::observe(&host));
        let mut session = HeadroomSession::start(&host, self.port)?;
        if let Some(every) = self.watch {
            output::print(LIVE_HEADER)?;
            while !interrupt.is_raised() {
                let report = session.measure(every, &wait)?;
                if !interrupt.is_raised() {
                    output::print(&live_line(&report))?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("measuring port {} for {} s", self.port, self.duration.as_secs_f64());
        let report = session.measure(self.duration, &wait)?;
        let refused = report.capacity.value().is_none();
        targets.write(&Envelope::new(summary, started, report))?;
        Ok(ExitCode::from(u8::from(refused)))
    }
}
