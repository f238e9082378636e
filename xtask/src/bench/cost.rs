//! The cost of `linerate cost`: goodput at saturation with and without it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use linerate_lab::Lab;
use linerate_load::{Generator, LoadSlot, PacingMode, stats};
use linerate_testkit::reflector::{Reflector, XdpService};

use super::threshold::interval_text;
use crate::machine;
use crate::programs::{self, BuildProfile};

/// The largest allowed loss of goodput, as a share.
const ALLOWED: f64 = 0.02;

const PAYLOAD: usize = 100;

const PORT: u16 = 7777;

// Shorter datagrams are not requests.
const SHORTEST: u16 = 40;

/// Offered requests per second, more than a server that reads sockets can answer.
const OFFERED: f64 = 400e3;

// At its start, the command times its BPF programs, which makes each run slower. The share of this
// time falls with the duration of the command, and is not measured here.
const TIMED: Duration = Duration::from_millis(400);

// Load before the measurement: in this time the command determines its share of tracing time.
const SETTLED: Duration = Duration::from_millis(700);

/// Time for replies that are still in transit.
const DRAIN: Duration = Duration::from_millis(1);

const FLOWS: usize = 16;

#[derive(Debug, Args)]
pub(crate) struct CostBench {
    /// Length of each turn, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of pairs of turns, with and without the command, in alternating order; must be even.
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// The CPU that sends.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// The CPU that serves.
    #[arg(long, default_value_t = 1)]
    server_cpu: usize,
}

impl CostBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        ensure!(self.seconds >= 0.1, "--seconds {}: give 0.1 or more", self.seconds);
        ensure!(
            self.pairs >= 2 && self.pairs.is_multiple_of(2),
            "--pairs {}: give an even number",
            self.pairs
        );
        if let Some(exit_code) = machine::skip_unless_root("bench cost") {
            return Ok(exit_code);
        }
        let linerate = programs::build(BuildProfile::Release, "linerate")?;
        let is_within_limits = [self.echo(&linerate).context("echo")?, self.sink(&linerate).context("sink")?];
        Ok(machine::exit_code(is_within_limits.into_iter().all(|is_within_limit| is_within_limit)))
    }

    /// Measures transactions with a server that reads sockets.
    fn echo(&self, linerate: &Path) -> anyhow::Result<bool> {
        let lab = Lab::builder().start()?;
        let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], PORT));
        let server = Reflector::builder().address(address).cpu(self.server_cpu);
        let _server = lab.receiver().run(|| server.start())??;
        let mut generator = self.generator(&lab, address)?;
        self.alternate("echo, transactions", linerate, &mut |duration| {
            let outcome = generator.run(&slot(PacingMode::Rate { per_second: OFFERED }, duration))?;
            Ok(outcome.answered as f64 / duration.as_secs_f64())
        })
    }

    /// Measures packets that a program at the interface counts and drops.
    fn sink(&self, linerate: &Path) -> anyhow::Result<bool> {
        let lab = Lab::builder().start()?;
        let end = &lab.links()[0].receiver;
        let attach = || XdpService::sink().shortest_payload(SHORTEST).attach(&end.interface);
        let sink = lab.receiver().run(attach)??;
        let mut generator = self.generator(&lab, (end.ipv4[0], PORT).into())?;
        self.alternate("sink, packets", linerate, &mut |duration| {
            let before = sink.account()?.received;
            let outcome = generator.run(&slot(PacingMode::Flood, duration))?;
            Ok((sink.account()?.received - before) as f64 / outcome.duration.as_secs_f64())
        })
    }

    fn generator(&self, lab: &Lab, target: SocketAddr) -> anyhow::Result<Box<dyn Generator>> {
        let options = super::echo_load(target, self.cpu, FLOWS, PAYLOAD);
        Ok(lab.senders()[0].run(|| options.start())??)
    }

    /// Measures in turns, with and without the command, and judges.
    fn alternate(
        &self,
        label: &str,
        linerate: &Path,
        rate: &mut dyn FnMut(Duration) -> anyhow::Result<f64>,
    ) -> anyhow::Result<bool> {
        let window = Duration::from_secs_f64(self.seconds);
        rate(window).context("the run-up")?;
        let (mut alone_rates, mut watched_rates) = (Vec::new(), Vec::new());
        for pair in 0..self.pairs {
            for is_watched in [pair % 2 == 1, pair % 2 == 0] {
                let watcher = if is_watched { Some(RunningCost::start(linerate)?) } else { None };
                // Also without the command, so that both are measured at the same time after the
                // load began.
                rate(SETTLED)?;
                let rate = rate(window)?;
                drop(watcher);
                eprintln!("  {label}: {rate:.0}/s {}", if is_watched { "looked at" } else { "alone" });
                if is_watched { watched_rates.push(rate) } else { alone_rates.push(rate) }
            }
        }
        let ratio = stats::compare(&alone_rates, &watched_rates)?.ratio;
        let is_allowed = ratio.median >= 1.0 - ALLOWED;
        println!(
            "{}: {label}: {:.0}/s alone, {:.0}/s looked at: {}, {} pairs; allowed {:.2}",
            if is_allowed { "ok" } else { "FAILED" },
            stats::median(&alone_rates).unwrap_or(0.0),
            stats::median(&watched_rates).unwrap_or(0.0),
            interval_text(&ratio, 1.0, 4),
            self.pairs,
            1.0 - ALLOWED,
        );
        Ok(is_allowed)
    }
}

fn slot(mode: PacingMode, duration: Duration) -> LoadSlot {
    LoadSlot { drain: DRAIN, ..LoadSlot::new(mode, duration) }
}

/// A running `linerate cost`, until it is dropped.
struct RunningCost(Child);

impl RunningCost {
    fn start(linerate: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(linerate);
        command.args(["cost", "--duration", "3600"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut watcher = Self(command.spawn().context("starting linerate cost")?);
        let errors = watcher.0.stderr.take().context("no pipe")?;
        let mut line = String::new();
        BufReader::new(errors).read_line(&mut line)?;
        ensure!(line.starts_with("looking at "), "linerate cost: {}", line.trim());
        std::thread::sleep(TIMED);
        Ok(watcher)
    }
}

impl Drop for RunningCost {
    fn drop(&mut self) {
        // The programs of the command end with it in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
