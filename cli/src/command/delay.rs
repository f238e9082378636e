//! `linerate delay`: where requests wait, and why the slowest are slow.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use linerate_host::Host;
use linerate_trace::delay::{DelaySession, DelayTrace};

use super::netns::{NetnsArgs, check_port_is_open};
use super::results::ResultArgs;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
use crate::output::{self, CLEAR_SCREEN, OutputTarget};
use crate::quantity;
use crate::render::format::{grouped, time_span};
use crate::render::style::TextStyle;
use crate::render::text;

const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// A timeline of at least this part of its length is complete.
const COMPLETE: f64 = 0.95;

#[derive(Debug, Args)]
pub(crate) struct DelayArgs {
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    /// UDP port of the server
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Duration, seconds [default: 10; with --watch until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.1..=86_400.0))]
    duration: Option<Duration>,
    /// Print the result of the last two seconds again and again
    #[arg(long, conflicts_with_all = ["json", "html"])]
    watch: bool,
    /// Record a timeline of this length for ui.perfetto.dev, such as 50ms
    #[arg(long, value_name = "TIME", value_parser = window, requires = "out", conflicts_with_all = ["watch", "duration", "json", "html"])]
    trace: Option<Duration>,
    /// File for the timeline; - is standard output
    #[arg(long, value_name = "FILE", requires = "trace", conflicts_with_all = ["watch", "duration", "json", "html"])]
    out: Option<String>,
    #[command(flatten)]
    results: ResultArgs,
}

impl DelayArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let host = Host::live();
        check_port_is_open(&host, "delay", self.port)?;
        if let (Some(window), Some(output)) = (self.trace, &self.out) {
            self.record(&host, window, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        let interrupt = InterruptFlag::install()?;
        if self.watch {
            self.print_intervals(&host, &interrupt)?;
            return Ok(ExitCode::SUCCESS);
        }
        let duration = self.duration.unwrap_or(DEFAULT_DURATION);
        let started_unix_seconds = origin::unix_seconds();
        let mut session = DelaySession::start(&host, self.port)?;
        status_line!("timing requests of port {} for {} s", self.port, duration.as_secs_f64());
        session.wait(&host, duration, &|| interrupt.is_raised())?;
        let report = session.report(&host);
        targets.write(&Envelope::new(HostSummary::observe(&host), started_unix_seconds, report))?;
        Ok(ExitCode::SUCCESS)
    }

    fn record(&self, host: &Host, window: Duration, output_path: &str) -> Result<()> {
        let target = OutputTarget::from_option(Some(output_path))?;
        let trace = DelayTrace::record(host, self.port, window)?;
        let mut document = Vec::new();
        trace.write(&mut document)?;
        if let Some(target) = target {
            target.write(&String::from_utf8(document)?)?;
        }
        let (requests, events) = (grouped(trace.requests() as u64), grouped(trace.events() as u64));
        let recorded = time_span(trace.recorded().as_nanos() as f64);
        status_line!(
            "{requests} requests and {events} events of {recorded} written to {output_path}: open it on \
             ui.perfetto.dev"
        );
        ensure!(
            trace.lost_events() == 0 && trace.recorded() >= window.mul_f64(COMPLETE),
            "the timeline ends after {recorded}, because the rate of events rose and later events had no \
             room: try again"
        );
        Ok(())
    }

    /// Prints each interval until a signal arrives or the time is over: in place on a terminal.
    fn print_intervals(&self, host: &Host, interrupt: &InterruptFlag) -> Result<()> {
        let is_terminal = std::io::stdout().is_terminal();
        let mut session = DelaySession::start(host, self.port)?;
        // Loading the programs may take longer than a short duration.
        let begin = Instant::now();
        while !interrupt.is_raised() && self.duration.is_none_or(|time| begin.elapsed() < time) {
            let remaining = self.duration.map_or(WATCH_INTERVAL, |time| time.saturating_sub(begin.elapsed()));
            session.wait(host, remaining.min(WATCH_INTERVAL), &|| interrupt.is_raised())?;
            // Pauses between windows may be longer than the interval.
            if session.windows() == 0 {
                continue;
            }
            let envelope = Envelope::new(HostSummary::default(), None, session.take_report(host));
            let interval_text = text::text(&envelope.document(), TextStyle::stdout());
            let clear_prefix = if is_terminal { CLEAR_SCREEN } else { "" };
            output::print_live(&format!("{clear_prefix}{interval_text}"))?;
        }
        Ok(())
    }
}

/// Parses a window such as `50ms` or `2s`.
fn window(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    let window = quantity::parse_duration(text).ok().filter(|window| range.contains(window));
    window.ok_or_else(|| format!("'{text}' is not a time from 1ms to 3600s, such as 50ms"))
}
