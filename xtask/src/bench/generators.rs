//! Generators compared on one core: the rate of each, and the cost of matching and timing.
//!
//! The same program counts the packets of all generators at the receiving end of the same veth
//! pair, a while after they have started. The generators take turns A B C ... C B A. The receiving
//! end of a veth pair runs in a softirq on the CPU that sends, so one core has the whole cost.

mod bare_loop;
mod programs;
mod testbed;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use linerate_load::stats;
use linerate_testkit::reflector::XdpService;

pub(crate) use bare_loop::BareLoop;
use programs::{BARE_LOOP, GeneratorProgram, XDP};
use testbed::GeneratorTestbed;

use super::threshold::{JudgedThreshold, ThresholdVerdict, interval_text, none_missed};
use crate::machine;

/// Bytes of UDP payload, the same for all generators.
const PAYLOAD: usize = 100;

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
    /// The program whose `load` is measured, instead of a release build.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

struct MeasuredGenerator {
    program: GeneratorProgram,
    samples: Vec<f64>,
}

impl GeneratorsBench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        ensure!(self.seconds >= 0.1, "--seconds {}: give 0.1 or more", self.seconds);
        super::check_selection(&self.only, programs::SENDING.iter().map(|program| program.name))?;
        if let Some(skipped) = machine::skip_unless_root("bench generators") {
            return Ok(skipped);
        }
        let linerate = crate::programs::given_or_release(self.program.as_deref())?;
        let load = machine::load_average().unwrap_or(f64::NAN);
        println!(
            "one core, UDP payload {PAYLOAD} bytes, {} s each, load average before {load:.1}; median and 95 % interval",
            self.seconds
        );
        let sink = GeneratorTestbed::new(self.cpu, XdpService::sink())?;
        let mut thresholds = self
            .compare("only sending", programs::SENDING.into(), &sink, &linerate)
            .context("only sending")?;
        drop(sink);
        let reflector = GeneratorTestbed::new(self.cpu, XdpService::reflector())?;
        let title = "matching and timing every reply";
        thresholds
            .extend(self.compare(title, programs::MATCHING.into(), &reflector, &linerate).context(title)?);
        Ok(machine::exit_code(none_missed(&thresholds)))
    }

    /// Measures generators in turns, forwards and backwards, and judges them.
    fn compare(
        &self,
        title: &str,
        programs: Vec<GeneratorProgram>,
        testbed: &GeneratorTestbed,
        linerate: &Path,
    ) -> anyhow::Result<Vec<JudgedThreshold>> {
        let mut generators = Vec::new();
        for program in programs {
            match program.check_installed() {
                _ if !super::is_selected(&self.only, program.name) => {}
                Ok(()) => generators.push(MeasuredGenerator { program, samples: Vec::new() }),
                Err(reason) => println!("SKIP {}: {reason:#}", program.name),
            }
        }
        if generators.is_empty() {
            return Ok(Vec::new());
        }
        for round in 0..2 * self.rounds {
            for index in super::alternated(generators.len(), round) {
                let MeasuredGenerator { program, samples } = &mut generators[index];
                let rate = self.count_with_retries(program, testbed, linerate).context(program.name)?;
                eprintln!("{}: {rate:.0}/s", program.name);
                samples.push(rate);
            }
        }
        println!("\n{title}, packets a second:");
        for MeasuredGenerator { program, samples } in &generators {
            let interval = stats::interval(samples)?;
            println!("  {:16} {} of {}", program.name, interval_text(&interval, 1.0, 0), samples.len());
        }
        for MeasuredGenerator { program, .. } in &generators {
            println!("  {}: {}", program.name, program.command);
        }
        let thresholds = thresholds(&generators)?;
        thresholds.iter().for_each(|threshold| println!("  {threshold}"));
        Ok(thresholds)
    }

    // Packets per second at the receiver. Repeats the count if a program gave up: trafgen does if
    // its ring is full too often.
    fn count_with_retries(
        &self,
        program: &GeneratorProgram,
        testbed: &GeneratorTestbed,
        linerate: &Path,
    ) -> anyhow::Result<f64> {
        for _ in 1..ATTEMPTS {
            match self.count(program, testbed, linerate) {
                Ok(rate) => return Ok(rate),
                Err(error) => eprintln!("{}: {error:#}; again", program.name),
            }
        }
        self.count(program, testbed, linerate)
    }

    /// Packets per second at the receiver.
    fn count(
        &self,
        program: &GeneratorProgram,
        testbed: &GeneratorTestbed,
        linerate: &Path,
    ) -> anyhow::Result<f64> {
        let directory = tempfile::tempdir()?;
        let before = testbed.received()?;
        let start_time = Instant::now();
        let mut sender = program.start(self, linerate, testbed, directory.path())?;
        while testbed.received()? == before {
            if let Some(reason) = sender.exit_reason()? {
                bail!("it ended before it sent anything: {reason}");
            }
            ensure!(start_time.elapsed() < PATIENCE, "it sent nothing within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(RUN_UP);
        let (first_count, begin) = (testbed.received()?, Instant::now());
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let (last_count, seconds) = (testbed.received()?, begin.elapsed().as_secs_f64());
        if let Some(reason) = sender.exit_reason()? {
            bail!("it ended while it was counted: {reason}");
        }
        sender.end()?;
        program.clear(testbed)?;
        program.check_matched(directory.path(), testbed.received()? - before)?;
        Ok((last_count - first_count) as f64 / seconds)
    }
}

/// The ratios of our XDP generator to the others that have a threshold.
fn thresholds(generators: &[MeasuredGenerator]) -> anyhow::Result<Vec<JudgedThreshold>> {
    let find = |name| generators.iter().find(|generator| generator.program.name == name);
    let Some(xdp) = find(XDP) else { return Ok(Vec::new()) };
    let mut thresholds = Vec::new();
    for other in generators {
        let Some(min_ratio) = other.program.min_ratio else { continue };
        let name = other.program.name;
        let compare_with = |generator: &MeasuredGenerator| stats::compare(&other.samples, &generator.samples);
        let ratio = compare_with(xdp)?.ratio;
        let bare_loop = find(BARE_LOOP).filter(|_| name != BARE_LOOP);
        let bare_ratio = bare_loop.map(compare_with).transpose()?.map(|comparison| comparison.ratio.median);
        let verdict = judge(ratio.median, min_ratio, bare_ratio);
        let remark = "the bare loop is below it, too".to_owned();
        thresholds.push(JudgedThreshold {
            what: format!("{XDP} has at least {min_ratio} times the rate of {name}"),
            verdict,
            ratio: Some(ratio),
            remarks: (verdict == ThresholdVerdict::NotHere).then_some(remark).into_iter().collect(),
        });
    }
    Ok(thresholds)
}

// A ratio that a bare loop of the same run (`bare_ratio`, if one ran) misses too is not counted as
// missed.
fn judge(ratio: f64, min_ratio: f64, bare_ratio: Option<f64>) -> ThresholdVerdict {
    if ratio >= min_ratio {
        ThresholdVerdict::Pass
    } else if bare_ratio.is_some_and(|ratio_of_bare| ratio_of_bare < min_ratio) {
        ThresholdVerdict::NotHere
    } else {
        ThresholdVerdict::Miss
    }
}

#[cfg(test)]
mod tests {
    use super::{ThresholdVerdict, judge};

    #[test]
    fn threshold_is_not_judged_if_the_bare_loop_misses_it() {
        assert_eq!(judge(3.6, 4.0, Some(3.5)), ThresholdVerdict::NotHere);
        assert_eq!(judge(3.6, 4.0, Some(4.2)), ThresholdVerdict::Miss);
        assert_eq!(judge(3.6, 4.0, None), ThresholdVerdict::Miss);
        assert_eq!(judge(4.1, 4.0, Some(3.5)), ThresholdVerdict::Pass);
    }
}
