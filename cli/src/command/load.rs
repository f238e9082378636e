//! `linerate load`: offers requests to a server and accounts for every one.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_host::CpuSet;
use linerate_measure::destination::Net;
use linerate_measure::generator::Builder;
use linerate_measure::{Description, Generator, Mode, Slot, SlotOutcome, SocketGenerator, Workload};
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::render::format;

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Where to send; several destinations are taken in turn by the flows
    #[arg(value_name = "ADDR:PORT", required = true)]
    targets: Vec<String>,
    /// How long to send, seconds
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    duration: f64,
    /// Open loop: requests a second over all flows, whatever the answers do
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "window", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Closed loop: requests each flow keeps outstanding [default: 8]
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// Threads that send and receive
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Flows, that is source ports, over all threads
    #[arg(long, value_name = "N", default_value_t = 16)]
    flows: usize,
    /// CPUs to pin the threads to, as a list such as 0-3
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// UDP payload of a request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,
    /// Refuse to send what would be fragmented
    #[arg(long)]
    no_fragment: bool,
    /// Send to this address or network although it is neither loopback, lab nor private
    #[arg(long, value_name = "NET")]
    allow_destination: Vec<Net>,
    /// Longest wait for answers after the last request, seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    drain: f64,
    /// Write the result as JSON; '-' for standard output instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

const DEFAULT_WINDOW: u32 = 8;

/// The result: schema `linerate.load/1`.
#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    generator: Description,
    #[serde(flatten)]
    outcome: SlotOutcome,
    warnings: Vec<String>,
}

impl Load {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let json = Target::wanted(self.json.as_deref())?;
        let slot = self.slot()?;
        let interrupt = Interrupt::install()?;
        let mut generator = self.generator(&interrupt)?;
        let outcome = generator.run(&slot)?;
        if outcome.sent == 0 {
            bail!(nothing_sent(&outcome, &self.targets));
        }
        let summary = Summary {
            schema: "linerate.load/1",
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            generator: generator.describe(),
            warnings: warnings(&outcome),
            outcome,
        };
        match &json {
            Some(target) => target.json(&summary)?,
            None => output::print(&text(&summary))?,
        }
        Ok(if summary.outcome.answered == 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    fn slot(&self) -> Result<Slot> {
        let mode = match (self.rate, self.window) {
            (Some(per_second), _) => Mode::Rate { per_second },
            (None, window) => Mode::Window { outstanding: window.unwrap_or(DEFAULT_WINDOW) },
        };
        let seconds = |option: &str, value: f64| {
            Duration::try_from_secs_f64(value).with_context(|| format!("--{option} {value}"))
        };
        let slot = Slot {
            drain: seconds("drain", self.drain)?,
            ..Slot::new(mode, seconds("duration", self.duration)?)
        };
        slot.check()?;
        Ok(slot)
    }

    fn generator(&self, interrupt: &Interrupt) -> Result<SocketGenerator> {
        let targets = self.targets.iter().map(|target| resolve(target)).collect::<Result<Vec<_>>>()?;
        let cpus = match &self.cpus {
            Some(list) => Some(CpuSet::from_list(list).context("--cpus")?.iter().collect()),
            None => None,
        };
        let mut builder = Builder::default()
            .targets(targets)
            .threads(self.threads)
            .flows(self.flows)
            .cpus(cpus)
            .workload(Workload::Echo { payload_bytes: self.payload })
            .no_fragment(self.no_fragment)
            .cancel(interrupt.flag());
        for net in &self.allow_destination {
            builder = builder.allow(*net);
        }
        Ok(builder.start_socket()?)
    }
}

fn resolve(target: &str) -> Result<SocketAddr> {
    let mut addresses = target.to_socket_addrs().with_context(|| {
        format!("'{target}' is no destination such as 192.168.0.1:7777 or [fd00::1]:7777")
    })?;
    addresses.next().with_context(|| format!("'{target}' has no address"))
}

fn nothing_sent(outcome: &SlotOutcome, targets: &[String]) -> String {
    let targets = targets.join(", ");
    let errors = &outcome.send_errors;
    if errors.nobody_listens() {
        format!("nobody listens on {targets}: connection refused")
    } else if errors.unreachable > 0 {
        format!("no way to {targets}: network or host unreachable")
    } else {
        format!("nothing could be sent to {targets}: {} requests failed", errors.total())
    }
}

fn warnings(outcome: &SlotOutcome) -> Vec<String> {
    let mut warnings: Vec<String> = outcome
        .self_watch
        .bound_because
        .iter()
        .map(|reason| format!("the generator was the limit, rates are lower bounds: {reason}"))
        .collect();
    if outcome.send_errors.nobody_listens() {
        warnings.push(format!("connection refused {} times: nobody listened", outcome.send_errors.refused));
    }
    if outcome.foreign > 0 {
        warnings.push(format!("{} datagrams were no answers to this run", outcome.foreign));
    }
    warnings
}

fn text(summary: &Summary) -> String {
    let outcome = &summary.outcome;
    let generator = &summary.generator;
    let mut lines = vec![
        format!(
            "{} flows, {} bytes, {} s, {} backend, {} thread{}",
            generator.flows,
            generator.payload_bytes,
            outcome.duration.as_secs_f64(),
            generator.backend,
            generator.threads,
            if generator.threads == 1 { "" } else { "s" },
        ),
        format!(
            "offered  {:>12}/s   answered {}/s",
            format::rate(outcome.offered_per_second),
            format::rate(outcome.answered_per_second)
        ),
        format!(
            "sent     {:>12}     answered {}   lost {} ({})",
            format::grouped(outcome.sent),
            format::grouped(outcome.answered),
            format::grouped(outcome.lost),
            format::percent(outcome.loss_ratio()),
        ),
        format!(
            "apart    duplicate {}   reordered {}   corrupt {}   foreign {}   late {}",
            outcome.duplicate, outcome.reordered, outcome.corrupt, outcome.foreign, outcome.late
        ),
    ];
    let latency = |quantile| {
        outcome
            .latency_ns
            .quantile(quantile)
            .map_or_else(|| "-".to_owned(), |latency| format!("{} us", format::microseconds(latency)))
    };
    lines.push(format!(
        "latency  p50 {}   p90 {}   p99 {}   p99.9 {}   max {}",
        latency(0.5),
        latency(0.9),
        latency(0.99),
        latency(0.999),
        latency(1.0)
    ));
    lines.extend(summary.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.push(String::new());
    lines.join("\n")
}

/// A rate such as `50000`, `50k` or `1.2M`.
fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value * scale),
        _ => Err(format!("'{text}' is no positive rate such as 50000, 50k or 1.2M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_decimal_suffixes() {
        assert_eq!(parse_rate("50k"), Ok(50_000.0));
        assert_eq!(parse_rate("1.2M"), Ok(1_200_000.0));
        assert_eq!(parse_rate("7"), Ok(7.0));
        for wrong in ["0", "-1", "k", "", "1G", "inf"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_destination_needs_a_port() {
        let error = resolve("127.0.0.1").expect_err("no port");
        assert!(error.to_string().starts_with("'127.0.0.1' is no destination such as"));
    }
}
