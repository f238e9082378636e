//! `--from`: other hosts generate the load under which a change is measured.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_lab::ladder::remote::{RemoteGenerators, RemoteLoad, SshHost};
use linerate_load::workload::{WorkloadOptions, WorkloadSource};
use linerate_load::{Generator, LatencyQuantiles, LoadSlot};

use crate::command::remote_args::RemoteArgs;
use crate::interrupt::InterruptFlag;
use crate::quantity;

/// Interval of latency reports, so that each sample of a measurement contains some.
const INTERVAL: Duration = Duration::from_millis(250);
/// Length of a slot. Slots follow each other until the measurement ends.
const SLOT: Duration = Duration::from_secs(600);
/// Longest time until the first report.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Args)]
pub(crate) struct GeneratedLoadArgs {
    /// Comma-separated hosts that generate load while the service is measured; reached by ssh, with linerate installed
    #[arg(long, value_name = "ssh://HOST,..", value_delimiter = ',', requires = "target", requires = "rate")]
    from: Vec<SshHost>,
    /// Address of the service, as those hosts reach it
    #[arg(long, value_name = "ADDR:PORT", requires = "from")]
    target: Option<SocketAddr>,
    /// Requests per second, of all hosts together, such as 20k
    #[arg(long, value_name = "RATE", requires = "from", value_parser = quantity::parse_rate)]
    rate: Option<f64>,
    /// Requests that those hosts send: dns:FILE, ntp, radius:FILE, raw:FILE or echo
    #[arg(long, value_name = "PROTOCOL[:FILE]", requires = "from", default_value_t = WorkloadSource::Echo)]
    workload: WorkloadSource,
    #[command(flatten)]
    reaching: RemoteArgs,
}

/// Load that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct GeneratedLoad {
    pub(crate) per_second: f64,
    cancel: Arc<AtomicBool>,
    report: Arc<Mutex<LoadProgress>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct LoadProgress {
    latest: Option<LatencyQuantiles>,
    failure: Option<String>,
}

impl GeneratedLoadArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.from.is_empty()
    }

    /// Starts the load and waits for its first report; `None` without `--from`.
    pub(crate) fn start(&self, interrupt: &InterruptFlag) -> Result<Option<GeneratedLoad>> {
        let (Some(target), Some(per_second)) = (self.target, self.rate) else { return Ok(None) };
        let contents = self.workload.contents()?;
        // Reports a mistake in the file before anything is connected.
        contents.requests(&WorkloadOptions::default())?;
        let workload = (self.workload != WorkloadSource::Echo).then_some(contents);
        let load = RemoteLoad { targets: vec![target], workload, ..RemoteLoad::default() };
        let mut options = self.reaching.options(&self.from, load)?;
        let cancel = Arc::new(AtomicBool::new(false));
        options.cancel = Arc::clone(&cancel);
        let mut generators = RemoteGenerators::start(options).context("--from")?;
        for warning in generators.warnings() {
            status_line!("{warning}");
        }
        let slot = LoadSlot { interval: Some(INTERVAL), ..LoadSlot::rate(per_second, SLOT) };
        slot.check()?;
        let report = Arc::<Mutex<LoadProgress>>::default();
        let (progress, is_cancelled) = (Arc::clone(&report), Arc::clone(&cancel));
        let thread = std::thread::spawn(move || {
            let mut run = || {
                let progress = &progress;
                generators.watch(&slot, &mut |interval| locked(progress).latest = Some(interval.latency_ns))
            };
            while !is_cancelled.load(Ordering::Relaxed) {
                if let Err(error) = run() {
                    locked(&progress).failure = Some(error.to_string());
                    return;
                }
            }
        });
        let load = GeneratedLoad { per_second, cancel, report, thread: Some(thread) };
        load.await_first_report(interrupt)?;
        Ok(Some(load))
    }
}

impl GeneratedLoad {
    fn await_first_report(&self, interrupt: &InterruptFlag) -> Result<()> {
        let steps = PATIENCE.as_millis() / INTERVAL.as_millis();
        for _ in 0..steps {
            interrupt.wait(Some(INTERVAL))?;
            if interrupt.is_raised() {
                bail!("interrupted; nothing was changed");
            }
            match self.latest() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(reason) => bail!("--from: {reason}; nothing was changed"),
            }
        }
        bail!("--from: no load came within {} s; nothing was changed", PATIENCE.as_secs())
    }

    /// The latency of the latest interval, or why the load has ended.
    pub(crate) fn latest(&self) -> Result<Option<LatencyQuantiles>, String> {
        let report = locked(&self.report);
        match &report.failure {
            Some(reason) => Err(reason.clone()),
            None => Ok(report.latest),
        }
    }
}

impl Drop for GeneratedLoad {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked(report: &Mutex<LoadProgress>) -> std::sync::MutexGuard<'_, LoadProgress> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
