//! Generators compared on one core: the rate of each, and the cost of matching and timing.
//!
//! The same program counts the packets of all generators at the receiving end of the same veth
//! pair, a while after they have started. The generators take turns A B C ... C B A. The receiving
//! end of a veth pair runs in a softirq on the CPU that sends, so one core has the whole cost.

mod bare_loop;
mod contender;
mod own_generators;
mod programs;
mod report;
mod testbed;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use linerate_load::generator::GeneratorBackend;

use bare_loop::BareLoop;
use contender::GeneratorContender;
use own_generators::{OwnFlood, OwnMatching};
use programs::ProgramContender;
use report::{GeneratorLine, GeneratorsReport};
use testbed::GeneratorTestbed;

use crate::machine;

/// Bytes of UDP payload, the same for all generators.
pub(super) const PAYLOAD: usize = 100;

/// Time from a generator's first packet to the first count, after which it has its full speed.
const RUN_UP: Duration = Duration::from_millis(300);

// Maximum number of attempts, because programs may give up.
const ATTEMPTS: u32 = 4;

/// Longest time until a generator's first packet.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct GeneratorsBench {
    /// Length of each measurement, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Number of rounds; each measures every generator twice, in both orders.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Source ports of our own generators.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// The CPU that sends; servers and the bench itself run on another.
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// Measure only these generators, by name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print a JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

struct MeasuredGenerator {
    contender: Box<dyn GeneratorContender>,
    samples: Vec<f64>,
}

impl GeneratorsBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if cfg!(debug_assertions) {
            return super::run_optimized();
        }
        ensure!(self.seconds >= 0.1, "--seconds {}: give 0.1 or more", self.seconds);
        if let Some(skipped) = machine::skip_unless_root("bench generators") {
            return Ok(skipped);
        }
        let mut report = GeneratorsReport::new(self.seconds);
        self.sending(&mut report).context("only sending")?;
        self.matching(&mut report).context("matching and timing")?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{report}");
        }
        Ok(machine::exit_code(report.passes()))
    }

    /// Compares generators that only send, into a sink.
    fn sending(&self, report: &mut GeneratorsReport) -> anyhow::Result<()> {
        let testbed = GeneratorTestbed::sink(self.cpu)?;
        let contenders: Vec<Box<dyn GeneratorContender>> = vec![
            Box::new(OwnFlood::new(GeneratorBackend::Xdp, self.flows)),
            Box::new(BareLoop::default()),
            Box::new(OwnFlood::new(GeneratorBackend::Socket, self.flows)),
            Box::new(ProgramContender::Iperf),
            Box::new(ProgramContender::Trafgen),
            Box::new(ProgramContender::Kxdpgun),
        ];
        let thresholds = [
            (programs::IPERF, 10.0),
            (programs::TRAFGEN, 4.0),
            (programs::KXDPGUN, 4.0),
            (bare_loop::NAME, 0.9),
        ];
        let lines = self.measure(contenders, &testbed, report, &|contender| {
            self.count_with_retries(contender, &testbed)
        })?;
        report.add("only sending", lines, &thresholds)
    }

    /// Compares generators that also receive every reply, with a service that returns everything.
    fn matching(&self, report: &mut GeneratorsReport) -> anyhow::Result<()> {
        let testbed = GeneratorTestbed::reflector(self.cpu)?;
        let contenders: Vec<Box<dyn GeneratorContender>> =
            vec![Box::new(OwnMatching::new(self.flows)), Box::new(BareLoop::with_reply_sink())];
        let time = Duration::from_secs_f64(self.seconds);
        let lines =
            self.measure(contenders, &testbed, report, &|contender| contender.replies(&testbed, time))?;
        report.add("matching and timing every reply", lines, &[(bare_loop::NAME, 0.6)])
    }

    /// Measures all contenders in turns, forwards and backwards.
    fn measure(
        &self,
        contenders: Vec<Box<dyn GeneratorContender>>,
        testbed: &GeneratorTestbed,
        report: &mut GeneratorsReport,
        measure_rate: &dyn Fn(&mut dyn GeneratorContender) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Vec<GeneratorLine>> {
        let mut generators = self.prepare_contenders(contenders, testbed, report)?;
        for round in 0..2 * self.rounds {
            for index in super::alternated(generators.len(), round) {
                let MeasuredGenerator { contender, samples } = &mut generators[index];
                let name = contender.name();
                let rate = measure_rate(contender.as_mut()).with_context(|| name.to_owned())?;
                eprintln!("{name}: {rate:.0}/s");
                samples.push(rate);
            }
        }
        generators
            .into_iter()
            .map(|generator| GeneratorLine::new(generator.contender.as_ref(), &generator.samples))
            .collect()
    }

    /// Leaves out contenders that are not requested or not installed.
    fn prepare_contenders(
        &self,
        contenders: Vec<Box<dyn GeneratorContender>>,
        testbed: &GeneratorTestbed,
        report: &mut GeneratorsReport,
    ) -> anyhow::Result<Vec<MeasuredGenerator>> {
        let mut generators = Vec::new();
        for mut contender in contenders {
            if !self.only.is_empty() && !self.only.iter().any(|name| name == contender.name()) {
                continue;
            }
            match contender.prepare(testbed) {
                Ok(()) => generators.push(MeasuredGenerator { contender, samples: Vec::new() }),
                Err(reason) => {
                    let line = format!("SKIP {}: {reason:#}", contender.name());
                    eprintln!("{line}");
                    report.skip(line);
                }
            }
        }
        ensure!(!generators.is_empty(), "nothing to measure");
        Ok(generators)
    }

    // Packets per second at the receiver. Repeats the count if a program gave up: trafgen does if
    // its ring is full too often.
    fn count_with_retries(
        &self,
        contender: &mut dyn GeneratorContender,
        testbed: &GeneratorTestbed,
    ) -> anyhow::Result<f64> {
        for _ in 1..ATTEMPTS {
            match self.count(contender, testbed) {
                Ok(rate) => return Ok(rate),
                Err(error) => eprintln!("{}: {error:#}; again", contender.name()),
            }
        }
        self.count(contender, testbed)
    }

    /// Packets per second at the receiver.
    fn count(
        &self,
        contender: &mut dyn GeneratorContender,
        testbed: &GeneratorTestbed,
    ) -> anyhow::Result<f64> {
        let before = testbed.received()?;
        let start_time = Instant::now();
        let mut contender_run = contender.start(testbed)?;
        while testbed.received()? == before {
            if let Some(reason) = contender_run.exit_reason()? {
                bail!("it ended before it sent anything: {reason}");
            }
            ensure!(start_time.elapsed() < PATIENCE, "it sent nothing within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(RUN_UP);
        let (first_count, begin) = (testbed.received()?, Instant::now());
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let (last_count, seconds) = (testbed.received()?, begin.elapsed().as_secs_f64());
        if let Some(reason) = contender_run.exit_reason()? {
            bail!("it ended while it was counted: {reason}");
        }
        contender_run.stop()?;
        contender.clear(testbed)?;
        Ok((last_count - first_count) as f64 / seconds)
    }
}
