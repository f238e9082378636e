//! `linerate headroom`: how much more a service can take, from its present traffic.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_trace::headroom::{HeadroomSession, Remedy};

use super::netns::{NetnsArgs, check_port_is_open};
use super::results::ResultArgs;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::named_values::{NamedValue, one_of};
use crate::origin::{self, HostSummary};
use crate::output;
use crate::quantity;
use crate::view::headroom::{LIVE_HEADER, live_line};

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
    /// Also print the limits after these changes, each alone
    #[arg(long, value_name = "CHANGE", value_delimiter = ',', value_parser = one_of(CHANGES), conflicts_with = "watch")]
    what_if: Vec<Remedy>,
    #[command(flatten)]
    results: ResultArgs,
}

const CHANGES: &[NamedValue<Remedy>] = &[
    ("boost", "A worker on each CPU that reads the packets which arrive there", Remedy::Boost),
    ("spread-softirqs", "Packets over all CPUs (RSS or RPS); threads as they are", Remedy::SpreadSoftirqs),
    ("separate-threads", "The threads on other CPUs than the packets", Remedy::SeparateThreads),
    ("larger-buffer", "A receive buffer that never overflows", Remedy::LargerBuffer),
];

impl HeadroomArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let host = Host::live();
        check_port_is_open(&host, "headroom", self.port)?;
        let interrupt = InterruptFlag::install()?;
        // A failed wait ends the measurement early, as a signal does.
        let wait = |time: Duration| {
            let _ = interrupt.wait(Some(time));
        };
        let (started_unix_seconds, summary) = (origin::unix_seconds(), HostSummary::observe(&host));
        let mut session = HeadroomSession::start(&host, self.port)?;
        if let Some(watch_interval) = self.watch {
            output::print_live(LIVE_HEADER)?;
            let mut has_note = false;
            while !interrupt.is_raised() {
                let report = session.measure(watch_interval, &wait)?;
                if interrupt.is_raised() {
                    break;
                }
                output::print_live(&live_line(&report))?;
                if let (Some(why), false) = (report.demand.buffer.why(), has_note) {
                    status_line!("the receive buffer is not among the limits: {why}");
                    has_note = true;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        status_line!("measuring port {} for {} s", self.port, self.duration.as_secs_f64());
        let mut report = session.measure(self.duration, &wait)?;
        let is_refused = report.capacity.value().is_none();
        if !is_refused {
            report.what_if = report.demand.what_if(&self.what_if);
        }
        targets.write(&Envelope::new(summary, started_unix_seconds, report))?;
        Ok(ExitCode::from(u8::from(is_refused)))
    }
}
