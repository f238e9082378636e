//! A look, and its result in every form that was asked for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use linerate_host::{CpuSet, Host};
use linerate_trace::cost::{CostSession, calibrate};

use super::document::{CostDocument, CostHostSummary};
use super::{CalibrationCpu, CostArgs, DEFAULT, live, scope};
use crate::command::results::ResultTargets;
use crate::interrupt::InterruptFlag;
use crate::output;
use crate::render::style::TextStyle;
use crate::render::{cost_html, cost_text};

/// How long is looked for the CPU that has most packets.
const SCOUTING: Duration = Duration::from_millis(300);

/// Looks, and shows what was seen.
pub(super) fn look(asked: &CostArgs, targets: &ResultTargets) -> Result<()> {
    let host = Host::live();
    let online = scope::online(&host)?;
    let (cpus, note) = cpus(asked, &host, &online)?;
    let interrupt = InterruptFlag::install()?;
    let stop = || interrupt.is_raised();
    let shown = cpus.as_ref().unwrap_or(&online);
    if asked.watch {
        let mut look = begin(asked, &host, cpus.as_ref())?;
        tell(shown, asked.duration);
        return live::follow(&mut look, &host, asked, &interrupt);
    }
    let duration = asked.duration.unwrap_or(DEFAULT);
    let summary = CostHostSummary::of(&host);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs());
    let (mut cost, calibrations) = match calibrated(asked, &host, shown, &online, &interrupt)? {
        Some(cpu) => {
            tell(shown, Some(duration));
            calibrate::calibrate(&host, &[cpu], duration, &stop)?
        }
        None => {
            let mut look = begin(asked, &host, cpus.as_ref())?;
            tell(shown, Some(duration));
            look.wait(duration, &stop)?;
            (look.finish(&host)?, Vec::new())
        }
    };
    cost.cpus.retain(|cost| shown.contains(cost.cpu));
    cost.notes.extend(note);
    show(&CostDocument::new(summary, started, (asked.by, asked.top), cost, calibrations), targets)
}

fn begin(asked: &CostArgs, host: &Host, cpus: Option<&CpuSet>) -> Result<CostSession> {
    let look = CostSession::start(host, cpus)?;
    Ok(if asked.exact { look.exact() } else { look })
}

/// The CPUs asked for, none where all are, and what a reader should know of the choice.
fn cpus(asked: &CostArgs, host: &Host, online: &CpuSet) -> Result<(Option<CpuSet>, Option<String>)> {
    match (&asked.cpus, &asked.interface) {
        (Some(list), _) => Ok((Some(scope::listed(list, online)?), None)),
        (None, Some(name)) => scope::of_interface(host, name, online).map(|(cpus, note)| (Some(cpus), note)),
        (None, None) => Ok((None, None)),
    }
}

/// The CPU that the inference method takes, if it is wanted.
fn calibrated(
    asked: &CostArgs,
    host: &Host,
    among: &CpuSet,
    online: &CpuSet,
    interrupt: &InterruptFlag,
) -> Result<Option<u32>> {
    match asked.calibrate {
        None => Ok(None),
        Some(CalibrationCpu::Cpu(cpu)) => Ok(Some(scope::known(cpu, online)?)),
        Some(CalibrationCpu::Busiest) => {
            let before = host.read("/proc/softirqs")?;
            interrupt.wait(Some(SCOUTING))?;
            Ok(scope::busiest(&before, &host.read("/proc/softirqs")?, among))
        }
    }
}

/// Says that it began, and what is looked at.
fn tell(cpus: &CpuSet, duration: Option<Duration>) {
    let which = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    match duration {
        Some(time) => eprintln!("looking at {which} {cpus} for {} s", time.as_secs_f64()),
        None => eprintln!("looking at {which} {cpus} until Ctrl-C"),
    }
}

fn show(document: &CostDocument, targets: &ResultTargets) -> Result<()> {
    if let Some(target) = &targets.json {
        target.write_json(document)?;
    }
    if let Some(target) = &targets.html {
        target.write(&cost_html::cost(document)?)?;
    }
    if targets.text {
        output::print(&cost_text::cost(document, TextStyle::stdout()))?;
    }
    Ok(())
}
