//! Windows of recording that keep the measurement's share of the CPU within a budget.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::stage::softirq::SoftnetCpu;
use linerate_host::{Host, Known};

use super::event::RecordedWindow;
use super::program::{DelayTracer, EVENT_BYTES, possible_cpus};
use super::record::DelayRecord;
use super::stacks::StackSampler;
use super::summary::DelaySummary;
use super::{DelayCost, DelayReport, WHAT};
use crate::TraceError;
use crate::call::RunCounting;
use crate::host_facts::interface_names;
use crate::symbols::KernelSymbols;
use crate::window;

/// Limit of the measurement, programs and analysis together, as a share of one CPU.
pub const DELAY_BUDGET: f64 = 0.02;

// A request that takes longer than its window is not seen.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);
const FIRST: Duration = Duration::from_millis(50);

/// Programs stay attached for shorter pauses.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

// Room for events per CPU: 4 MB, less if there are many CPUs.
const MOST_EVENTS: u64 = 128 * 1024;
const MOST_BYTES: u64 = 128 << 20;

/// Records windows, and adds them up.
#[derive(Debug)]
pub struct DelaySession {
    port: u16,
    budget: f64,
    tracer: DelayTracer,
    begun: Instant,
    next_window: Instant,
    window: Duration,
    run_ns: Known<f64>,
    timed_runs: u64,
    timed: Duration,
    /// Events while programs were timed, with those for which there was no room.
    timed_events: u64,
    summary: DelaySummary,
    /// CPU time of programs and of this thread, s.
    program_seconds: f64,
    process_seconds: f64,
    squeezes: Known<BTreeMap<u32, u64>>,
    sampler: Known<StackSampler>,
    symbols: OnceCell<Known<KernelSymbols>>,
}

impl DelaySession {
    /// Loads the programs for a port of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`TraceError`] if this kernel lacks a tracepoint or the process lacks a privilege.
    pub fn start(host: &Host, port: u16) -> Result<Self, TraceError> {
        let room = MOST_BYTES / EVENT_BYTES / possible_cpus()?;
        Self::with_room(host, port, room.min(MOST_EVENTS))
    }

    fn with_room(host: &Host, port: u16, events_per_cpu: u64) -> Result<Self, TraceError> {
        let tracer = DelayTracer::load(port, events_per_cpu)?;
        Ok(Self {
            port,
            budget: DELAY_BUDGET,
            tracer,
            begun: Instant::now(),
            next_window: Instant::now(),
            window: FIRST,
            run_ns: Known::unknown("no program has run"),
            timed_runs: 0,
            timed: Duration::ZERO,
            timed_events: 0,
            summary: DelaySummary::default(),
            program_seconds: 0.0,
            process_seconds: 0.0,
            squeezes: squeezes(host),
            sampler: StackSampler::open(host),
            symbols: OnceCell::new(),
        })
    }

    /// Uses another limit than [`DELAY_BUDGET`].
    pub fn with_budget(self, budget: f64) -> Self {
        Self { budget, ..self }
    }

    /// Records one window, and returns its requests and the pause until the next window.
    ///
    /// # Errors
    /// [`TraceError`] from the kernel.
    pub fn turn(&mut self, host: &Host) -> Result<(Vec<DelayRecord>, Duration), TraceError> {
        let begin_ns = window::thread_ns();
        let window = self.record(self.window)?;
        let records = self.summary.add(&window, &interface_names(host), |thread| comm(host, thread));
        let events = u64::try_from(window.events.len()).unwrap_or(0);
        let sample_ns = self.sampler.value().map_or(0.0, |sampler| sampler.sample_ns);
        let program_seconds = (events + window.lost) as f64 * self.run_ns.value().copied().unwrap_or(0.0)
            / 1e9
            + window.stacks.len() as f64 * sample_ns / 1e9;
        let process_seconds = window::thread_ns().saturating_sub(begin_ns) as f64 / 1e9;
        self.program_seconds += program_seconds;
        self.process_seconds += process_seconds;
        let elapsed = window.seconds();
        // No pause follows the last window, so the other pauses are longer.
        let pause = ((program_seconds + process_seconds) / (self.budget * 0.7) - elapsed).max(0.0);
        let pause = Duration::from_secs_f64(pause.min(LONGEST_PAUSE.as_secs_f64()));
        // The next window is as long as the room permits, or half as long if the pause would be
        // long.
        let room_factor = self.tracer.events_per_cpu as f64 * 0.7 / window.most_on_a_cpu.max(1) as f64;
        let longest = if pause > LONGEST * 2 { self.window / 2 } else { self.window * 2 };
        self.window = self.window.mul_f64(room_factor.min(64.0)).min(longest).clamp(SHORTEST, LONGEST);
        if pause > SHORT_PAUSE {
            self.tracer.detach()?;
        }
        self.next_window = Instant::now() + pause;
        Ok((records, pause))
    }

    /// Observes for a time or until `stop` returns true. A pause may be longer than the time.
    ///
    /// # Errors
    /// As [`DelaySession::turn`].
    pub fn wait(&mut self, host: &Host, time: Duration, stop: &dyn Fn() -> bool) -> Result<(), TraceError> {
        let end = Instant::now() + time;
        loop {
            let next = self.next_window.min(end);
            window::wait(next.saturating_duration_since(Instant::now()), stop);
            if next == end || stop() {
                return Ok(());
            }
            self.turn(host)?;
        }
    }

    /// The sum of all windows since the start.
    pub fn report(&self, host: &Host) -> DelayReport {
        let summary = &self.summary;
        let seconds = self.begun.elapsed().as_secs_f64();
        let squeezes = self.squeezes.as_ref().zip(squeezes(host)).map(|(before, after)| {
            let growth = |(cpu, count): (u32, u64)| {
                (cpu, count.saturating_sub(before.get(&cpu).copied().unwrap_or(0)))
            };
            after.into_iter().map(growth).collect()
        });
        DelayReport {
            port: self.port,
            seconds,
            longest_softirqs: summary.longest_softirqs(
                |address| self.function(host, address),
                self.sampler.why().unwrap_or("no sample of the timer is in it"),
            ),
            own: DelayCost {
                events: summary.events,
                ns_a_run: self.run_ns.clone(),
                programs_cpu_share: self.program_seconds / seconds,
                process_cpu_share: self.process_seconds / seconds,
            },
            ..summary.report(&squeezes)
        }
    }

    /// Windows since the last report.
    pub fn windows(&self) -> u64 {
        self.summary.windows
    }

    /// Requests of which every stage was seen.
    pub fn requests(&self) -> u64 {
        self.summary.requests()
    }

    /// Returns the sum of the windows since the last call or the start, and resets it.
    pub fn take_report(&mut self, host: &Host) -> DelayReport {
        let report = self.report(host);
        self.summary = DelaySummary::default();
        self.begun = Instant::now();
        self.squeezes = squeezes(host);
        (self.program_seconds, self.process_seconds) = (0.0, 0.0);
        report
    }

    fn record(&mut self, duration: Duration) -> Result<RecordedWindow, TraceError> {
        self.tracer.attach()?;
        // The kernel times programs in the first windows only, because that makes them slower.
        let is_timed = self.timed_runs < 10_000 && self.timed < Duration::from_secs(2);
        if !is_timed {
            return self.record_with_stacks(duration);
        }
        let counting = RunCounting::start(WHAT);
        let window = self.record_with_stacks(duration)?;
        self.timed += duration;
        self.timed_events += u64::try_from(window.events.len()).unwrap_or(0) + window.lost;
        if let Err(why) = counting.map(drop) {
            self.run_ns = Known::unknown(why.to_string());
            return Ok(window);
        }
        let program_runs = self.tracer.runs()?;
        self.timed_runs = program_runs.runs;
        if program_runs.runs > 0 {
            // Per event, including the runs that found nothing to record.
            let runs = program_runs.runs as f64 / self.timed_events.max(1) as f64;
            self.run_ns = Known::Value(self.tracer.overhead.run_ns(program_runs) * runs.max(1.0));
        }
        Ok(window)
    }

    // After a failure of the sampler, windows have no stacks.
    fn record_with_stacks(&mut self, duration: Duration) -> Result<RecordedWindow, TraceError> {
        let enable_result = match &mut self.sampler {
            Known::Value(sampler) => sampler.enable(),
            Known::Unknown { .. } => Ok(()),
        };
        let mut window = self.tracer.record(duration)?;
        let stacks_result = match &mut self.sampler {
            Known::Value(sampler) => sampler.take(),
            Known::Unknown { .. } => Ok(Vec::new()),
        };
        match enable_result.and(stacks_result) {
            Ok(stacks) => window.stacks = stacks,
            Err(error) => self.sampler = Known::unknown(format!("perf events: {error}")),
        }
        Ok(window)
    }

    fn function(&self, host: &Host, address: u64) -> Known<String> {
        let symbols = self.symbols.get_or_init(|| KernelSymbols::kernel(host).into());
        symbols.as_ref().and_then(|symbols| symbols.name(address)).map(|symbol| symbol.name)
    }
}

fn comm(host: &Host, thread: u32) -> Option<String> {
    host.read(&format!("/proc/{thread}/comm")).ok().map(|name| name.trim().to_owned())
}

fn squeezes(host: &Host) -> Known<BTreeMap<u32, u64>> {
    SoftnetCpu::observe(host).map(|cpus| cpus.iter().map(|line| (line.cpu, line.time_squeeze)).collect())
}
