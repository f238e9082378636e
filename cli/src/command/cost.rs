//! `linerate cost`: the CPU time that packet processing takes from each CPU and each process.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use linerate_host::stage::softirq::SoftnetCpu;
use linerate_host::{CpuSet, Host, Known};
use linerate_trace::cost::{CostReport, CostResult, CostSession, VictimGrouping, calibrate};

use super::compare::CompareArgs;
use super::cpus;
use super::netns::NetnsArgs;
use super::results::{ResultArgs, ResultTargets};
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::named_values::{NamedValue, one_of};
use crate::origin::{self, HostSummary, Warning};
use crate::output::{self, CLEAR_SCREEN};
use crate::quantity;
use crate::render::style::TextStyle;
use crate::render::text;
use crate::view::cost::{LIVE_HEADER, interval_document, live_line};

const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// Duration of the search for the CPU with most packets.
const SCOUTING: Duration = Duration::from_millis(300);
/// Interval between two outputs of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

const GROUPINGS: &[NamedValue<VictimGrouping>] = &[
    ("process", "Processes", VictimGrouping::Process),
    ("thread", "Threads", VictimGrouping::Thread),
    ("cgroup", "Control groups: containers, services", VictimGrouping::Cgroup),
];

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    /// Duration, seconds [default: 10; with --watch until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.1..=86_400.0))]
    duration: Option<Duration>,
    /// Only these CPUs, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST", conflicts_with = "interface", value_parser = quantity::parse_cpus)]
    cpus: Option<CpuSet>,
    /// Only the CPUs that process packets of this interface
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    /// Group by process, thread or cgroup
    #[arg(long, value_name = "WHO", default_value = "process", value_parser = one_of(GROUPINGS))]
    by: VictimGrouping,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,
    /// Charge time and packets to paths: the interface where packets come in and the one by which
    /// they leave, with the virtual machine or container at its end
    #[arg(long, conflicts_with_all = ["calibrate", "cpus", "interface"])]
    path: bool,
    /// Print the last second once per second
    #[arg(long, conflicts_with_all = ["calibrate", "json", "html"])]
    watch: bool,
    /// Measure all the time [default: in windows, if measuring would take more than 1 % of a CPU]
    #[arg(long)]
    exact: bool,
    /// Check the result with a user-space loop of known speed, which occupies this CPU [default:
    /// the CPU with most packets]
    #[arg(long, value_name = "CPU", num_args = 0..=1, require_equals = true, default_missing_value = "busiest")]
    calibrate: Option<CalibrationCpu>,
    #[command(flatten)]
    compare: CompareArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// The CPU that the second method occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CalibrationCpu {
    /// The CPU with most packets.
    Busiest,
    Cpu(u32),
}

impl std::str::FromStr for CalibrationCpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "busiest" => Ok(Self::Busiest),
            number => number.parse().map(Self::Cpu).map_err(|_| format!("'{number}' is no number of a CPU")),
        }
    }
}

impl CostArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        if let Some(paths) = self.compare.paths() {
            return paths.compare_costs(&targets);
        }
        self.measure(&targets)?;
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, targets: &ResultTargets) -> Result<()> {
        let host = Host::live();
        let online = cpus::online(&host)?;
        let (cpus, note) = self.cpus(&host, &online)?;
        let interrupt = InterruptFlag::install()?;
        let stop = || interrupt.is_raised();
        let measured_cpus = cpus.as_ref().unwrap_or(&online);
        if self.watch {
            let mut session = self.start(&host, cpus.as_ref())?;
            print_start(measured_cpus, self.duration);
            return self.print_intervals(&mut session, &host, &interrupt);
        }
        let duration = self.duration.unwrap_or(DEFAULT_DURATION);
        let summary = HostSummary::observe(&host);
        let started_unix_seconds = origin::unix_seconds();
        let (mut cost, calibrations) = match self.calibrated_cpu(&host, measured_cpus, &online, &interrupt)? {
            Some(cpu) => {
                print_start(measured_cpus, Some(duration));
                calibrate::calibrate(&host, &[cpu], duration, &stop)?
            }
            None => {
                let mut session = self.start(&host, cpus.as_ref())?;
                print_start(measured_cpus, Some(duration));
                session.wait(duration, &stop)?;
                (session.finish(&host)?, Vec::new())
            }
        };
        cost.cpus.retain(|cost| measured_cpus.contains(cost.cpu));
        let notes = std::mem::take(&mut cost.notes).into_iter().chain(note).map(Warning::remark);
        let result = CostResult { calibrations, ..self.result(cost) };
        targets.write(&Envelope::new(summary, started_unix_seconds, result).with_warnings(notes))
    }

    fn result(&self, cost: CostReport) -> CostResult {
        CostResult { by: self.by, top: self.top, cost, calibrations: Vec::new() }
    }

    fn start(&self, host: &Host, cpus: Option<&CpuSet>) -> Result<CostSession> {
        let session = CostSession::start(host, cpus, self.path)?;
        Ok(if self.exact { session.exact() } else { session })
    }

    /// The requested CPUs, `None` for all, and a remark about the choice.
    fn cpus(&self, host: &Host, online: &CpuSet) -> Result<(Option<CpuSet>, Option<String>)> {
        match (&self.cpus, &self.interface) {
            (Some(cpus), _) => {
                cpus::check_online("--cpus", cpus, online)?;
                Ok((Some(cpus.clone()), None))
            }
            (None, Some(name)) => {
                let cpus = cpus::of_interface(host, name)?;
                if !cpus.is_empty() {
                    return Ok((Some(cpus), None));
                }
                let note = format!(
                    "{name} has neither queue interrupts nor RPS, as is usual for virtual interfaces: all CPUs are observed"
                );
                Ok((Some(online.clone()), Some(note)))
            }
            (None, None) => Ok((None, None)),
        }
    }

    /// The CPU of `--calibrate`; `None` without it.
    fn calibrated_cpu(
        &self,
        host: &Host,
        candidates: &CpuSet,
        online: &CpuSet,
        interrupt: &InterruptFlag,
    ) -> Result<Option<u32>> {
        match self.calibrate {
            None => Ok(None),
            Some(CalibrationCpu::Cpu(cpu)) => {
                cpus::check_online("--calibrate", &CpuSet::from_iter([cpu]), online)?;
                Ok(Some(cpu))
            }
            Some(CalibrationCpu::Busiest) => {
                let read = || match SoftnetCpu::observe(host) {
                    Known::Value(lines) => Ok(lines),
                    Known::Unknown { why } => bail!("which CPU has most packets is unknown: {why}"),
                };
                let before = read()?;
                interrupt.wait(Some(SCOUTING))?;
                Ok(busiest(&before, &read()?, candidates))
            }
        }
    }

    /// Prints each interval until a signal arrives or the time is over: in place on a terminal,
    /// otherwise one line per interval.
    fn print_intervals(
        &self,
        session: &mut CostSession,
        host: &Host,
        interrupt: &InterruptFlag,
    ) -> Result<()> {
        let terminal = std::io::stdout().is_terminal();
        let begin = Instant::now();
        let mut next = WATCH_INTERVAL;
        let mut header = LIVE_HEADER;
        while !interrupt.is_raised() && self.duration.is_none_or(|time| begin.elapsed() < time) {
            let end = self.duration.map_or(next, |time| time.min(next));
            session.wait(end.saturating_sub(begin.elapsed()), &|| interrupt.is_raised())?;
            if begin.elapsed() < end {
                continue;
            }
            next = begin.elapsed() + WATCH_INTERVAL;
            let result = self.result(session.read(host)?);
            if terminal {
                let interval_text = text::text(&interval_document(&result), TextStyle::stdout());
                output::print_live(&format!("{CLEAR_SCREEN}{interval_text}"))?;
            } else {
                output::print_live(&format!("{header}{}\n", live_line(begin.elapsed(), &result)))?;
                header = "";
            }
        }
        Ok(())
    }
}

/// Reports on standard error that the measurement has begun.
fn print_start(cpus: &CpuSet, duration: Option<Duration>) {
    let noun = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    match duration {
        Some(time) => status_line!("looking at {noun} {cpus} for {} s", time.as_secs_f64()),
        None => status_line!("looking at {noun} {cpus} until Ctrl-C"),
    }
}

/// The CPU that processed most packets between two readings.
fn busiest(before: &[SoftnetCpu], after: &[SoftnetCpu], candidates: &CpuSet) -> Option<u32> {
    let processed = |lines: &[SoftnetCpu], cpu| {
        lines.iter().find(|line| line.cpu == cpu).map_or(0, |line| line.processed)
    };
    // The counters are 32 bits wide and wrap.
    let packets = |cpu: &u32| processed(after, *cpu).wrapping_sub(processed(before, *cpu)) as u32;
    // `max_by_key` returns the last of equal CPUs, not CPU 0, which has most other work.
    candidates.iter().max_by_key(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_cpu_processed_the_most_packets_between_readings() {
        let line = |(cpu, processed)| SoftnetCpu {
            cpu,
            processed,
            dropped: 0,
            time_squeeze: 0,
            received_rps: None,
            flow_limit: None,
            backlog: None,
        };
        // The counter of CPU 2 wraps.
        let [before, after] =
            [[(0, 100), (2, 0xffff_fff0)], [(0, 110), (2, 500)]].map(|lines| lines.map(line));
        let online = CpuSet::from_list("0,2").expect("a list");
        assert_eq!(busiest(&before, &after, &online), Some(2));
        assert_eq!(
            busiest(&after, &after, &online),
            Some(2),
            "of equal CPUs not CPU 0, which has other work"
        );
        assert_eq!(busiest(&before, &after, &CpuSet::from_list("0").expect("a list")), Some(0));
        assert_eq!(busiest(&[], &[], &CpuSet::new()), None);
    }
}
