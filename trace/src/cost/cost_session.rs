//! A measurement that can be read repeatedly.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use linerate_host::stage::irq::IrqState;
use linerate_host::stage::machine::CpuTimes;
use linerate_host::stage::softirq::SoftnetCpu;
use linerate_host::{CpuSet, Host, Known};

use super::account::{AccountInput, KernelCpuTimes};
use super::accounted_times::AccountedTimes;
use super::cgroup;
use super::cost_tables::{CountedCost, CountedSpan, InterruptCounts, ThreadTables};
use super::pace::{LEAD_IN, PERIOD, TracePace};
use super::path::{self, PathNames};
use super::tracer::{CostTracer, TracePoint};
use super::untraced_time::UntracedIrq;
use super::windows::{self, TraceWindow};
use super::{CostReport, WHAT};
use crate::TraceError;
use crate::call::{CallOverhead, RunCounting};
use crate::host_facts::online_cpus;
use crate::window;

// Programs are timed for one in this many parts of the measurement, and no longer than this time,
// because timing costs CPU time.
const TIMED_PART: u32 = 5;
const TIMED_AT_MOST: Duration = Duration::from_millis(250);

// Interval of the check whether programs run too often while they are always attached.
const PATIENCE: Duration = Duration::from_millis(250);

// Consecutive windows with spare budget before programs are attached for more of the time, because
// bursts pause.
const CALM: u32 = 3;

/// Time of an expensive interrupt in a virtual machine outside the tracepoints, ns.
const DEAR_INTERRUPT_NS: f64 = 20e3;

/// Interrupt time outside the tracepoints is measured if it may exceed this share of a CPU.
const WORTH_MEASURING: f64 = 0.005;

const FEW_INTERRUPTS: &str = "so few interrupts came that it does not matter";

// Windows move within their period, so that periodic work is neither always in a window nor never:
// the golden ratio covers all positions evenly.
const NEXT_PLACE: f64 = 0.618_033_988_749_895;

/// Attached until it is dropped.
#[derive(Debug)]
pub struct CostSession {
    tracer: CostTracer,
    timed: Option<RunCounting>,
    overhead: CallOverhead,
    ns_a_run: Known<f64>,
    pace: TracePace,
    is_exact: bool,
    /// Consecutive windows with spare budget.
    calm: u32,
    /// Position of the last window in its period, 0 to 1.
    place: f64,
    /// The start of the open window.
    window: Option<TracePoint>,
    last: TracePoint,
    stretch: TraceWindow,
    // Stretches since the last reading, or since the beginning.
    counted: CountedCost,
    /// At the last reading, or at the beginning.
    events: BTreeMap<u32, i64>,
    process_ns: u64,
    begin: Instant,
    kernel: KernelCpuTimes,
    accounted: AccountedTimes,
    cgroups: BTreeMap<(u32, u64), Known<String>>,
    // Time per packet in parts of the time since the last reading, ns.
    samples: Vec<f64>,
    notes: Vec<String>,
    // Interrupt time outside the tracepoints, measured when it matters.
    untraced: Known<UntracedIrq>,
    by_path: bool,
}

impl CostSession {
    /// Starts to count on these CPUs, or on all CPUs; `by_path` charges time and packets to
    /// [`CostReport::paths`].
    ///
    /// # Errors
    /// [`TraceError::NotPermitted`] without the right to load BPF programs, [`TraceError::NotHere`]
    /// without one of the tracepoints, [`TraceError::Kernel`] if softirqs run in preemptible
    /// threads (`PREEMPT_RT`), and if the list of CPUs cannot be read.
    pub fn start(host: &Host, cpus: Option<&CpuSet>, by_path: bool) -> Result<Self, TraceError> {
        // Only kernels with patches have /sys/kernel/realtime.
        if host.read("/proc/version").is_ok_and(|text| text.contains("PREEMPT_RT")) {
            let why = "this kernel is built with PREEMPT_RT, where softirqs are threads' own work and top shows them";
            return Err(TraceError::Kernel { what: WHAT, source: std::io::Error::other(why) });
        }
        let online = online_cpus(host)?;
        // A CPU may come online later.
        let traced_cpus: Vec<u32> = match cpus {
            Some(selection) => online.iter().filter(|cpu| selection.contains(*cpu)).collect(),
            None => host.read_parsed("/sys/devices/system/cpu/possible", CpuSet::from_list)?.iter().collect(),
        };
        if traced_cpus.is_empty() {
            let why = format!("none of the CPUs asked for is online: these are {online}");
            return Err(TraceError::Kernel { what: WHAT, source: std::io::Error::other(why) });
        }
        let mut notes = Vec::new();
        let nic_irqs = nic_irqs(host);
        let mut tracer = CostTracer::load(&traced_cpus, &nic_irqs, by_path)?;
        let overhead = CallOverhead::measure(&mut tracer.programs)?;
        let (timed, ns_a_run) = match RunCounting::start(WHAT) {
            Ok(counting) => (Some(counting), Known::unknown("it was not timed for long enough")),
            Err(error) => (None, Known::unknown(format!("the kernel does not time programs here: {error}"))),
        };
        tracer.attach()?;
        // During this work the softirqs end that were running when the programs were attached.
        let accounted = AccountedTimes::begin(host, online.iter().all(|cpu| traced_cpus.contains(&cpu)));
        notes.extend(accounted.unknown_reason().map(|why| format!("what top shows is unknown: {why}")));
        let kernel = KernelCpuTimes::observe(host);
        std::thread::sleep(LEAD_IN);
        let point = tracer.begin()?;
        let stretch = TraceWindow::begin(tracer.tables()?);
        Ok(Self {
            tracer,
            timed,
            ns_a_run,
            overhead,
            pace: TracePace::Always,
            is_exact: false,
            calm: 0,
            place: 0.0,
            window: Some(point.clone()),
            events: events(&point),
            last: point,
            stretch,
            counted: CountedCost::default(),
            process_ns: window::thread_ns(),
            begin: Instant::now(),
            kernel,
            accounted,
            cgroups: BTreeMap::new(),
            samples: Vec::new(),
            notes,
            untraced: Known::unknown(FEW_INTERRUPTS),
            by_path,
        })
    }

    /// Keeps programs attached all the time, even if they exceed the budget.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// Waits until the time is over or `stop` returns true, with programs attached for as much of
    /// the time as the budget allows. They are timed only in the first part of the first wait.
    /// Without a wait they are timed until the first reading, and stay attached.
    ///
    /// # Errors
    /// [`TraceError::Kernel`] if they cannot be attached again.
    pub fn wait(&mut self, duration: Duration, stop: &dyn Fn() -> bool) -> Result<(), TraceError> {
        let begin = Instant::now();
        let remaining = || duration.saturating_sub(begin.elapsed());
        if self.timed.is_some() {
            window::wait((duration / TIMED_PART).min(TIMED_AT_MOST), stop);
            self.end_timing();
            self.adapt()?;
        }
        while !remaining().is_zero() && !stop() {
            match self.pace {
                TracePace::Always if self.is_exact => drop(window::wait(remaining(), stop)),
                TracePace::Always => {
                    if window::wait(remaining().min(PATIENCE), stop) >= PATIENCE {
                        self.adapt()?;
                    }
                }
                TracePace::Windows { .. } => self.period(remaining(), stop)?,
            }
        }
        Ok(())
    }

    // A window and the pauses around it. If too little time is left for a window, waits only.
    fn period(&mut self, remaining: Duration, stop: &dyn Fn() -> bool) -> Result<(), TraceError> {
        let window_time = self.pace.window() + LEAD_IN;
        let Some(pause_time) = PERIOD.min(remaining).checked_sub(window_time) else {
            window::wait(remaining, stop);
            return Ok(());
        };
        self.place = (self.place + NEXT_PLACE).fract();
        let begin = Instant::now();
        window::wait(pause_time.mul_f64(self.place), stop);
        if stop() {
            return Ok(());
        }
        self.trace_window()?;
        window::wait(PERIOD.min(remaining).saturating_sub(begin.elapsed()), stop);
        Ok(())
    }

    /// One window, which can change the pace.
    fn trace_window(&mut self) -> Result<(), TraceError> {
        self.tracer.attach()?;
        std::thread::sleep(LEAD_IN);
        self.window = Some(self.tracer.begin()?);
        std::thread::sleep(self.pace.window());
        self.adapt()
    }

    /// Ends the open window, and continues at the pace that its rates allow.
    fn adapt(&mut self) -> Result<(), TraceError> {
        let Some(begin) = &self.window else { return Ok(()) };
        if self.is_exact {
            return Ok(());
        }
        let point = self.tracer.read_point()?;
        let ns_a_run = self.ns_a_run.value().copied();
        // While programs are always attached, a window continues from reading to reading, and only
        // its last part counts.
        let window_begin = if self.pace == TracePace::Always { &self.last } else { begin };
        let mut pace = self.pace.for_rates(&windows::rates(window_begin, &point, ns_a_run));
        self.samples.extend(windows::ns_a_packet(window_begin, &point));
        self.last = point;
        self.calm = if pace.part() > self.pace.part() { self.calm + 1 } else { 0 };
        if (1..CALM).contains(&self.calm) {
            pace = self.pace;
        }
        if pace == TracePace::Always && self.pace == TracePace::Always {
            return Ok(());
        }
        self.close()?;
        if pace != self.pace {
            self.end_stretch()?;
        }
        self.pace = pace;
        if pace == TracePace::Always {
            self.tracer.attach()?;
            std::thread::sleep(LEAD_IN);
            self.window = Some(self.tracer.begin()?);
            self.stretch = TraceWindow::begin(self.tracer.tables()?);
        }
        Ok(())
    }

    /// Ends the open window, and detaches programs.
    fn close(&mut self) -> Result<(), TraceError> {
        if let Some(begin) = self.window.take() {
            self.last = self.tracer.end()?;
            self.stretch.add(&begin, &self.last);
        }
        Ok(self.tracer.detach(matches!(self.pace, TracePace::Windows { with_irqs: true, .. }))?)
    }

    /// Adds the counters of one pace to the other counters.
    fn end_stretch(&mut self) -> Result<(), TraceError> {
        let mut tables = self.tracer.tables()?;
        self.tracer.remove(&tables.take_idle(self.stretch.before()))?;
        let next = TraceWindow::begin(ThreadTables::default());
        let finished = std::mem::replace(&mut self.stretch, next);
        self.stretch = finished.end(tables, self.pace == TracePace::Always, &mut self.counted);
        Ok(())
    }

    /// Counters since the last reading, or since the beginning.
    ///
    /// # Errors
    /// As [`CostSession::start`].
    pub fn read(&mut self, host: &Host) -> Result<CostReport, TraceError> {
        self.read_report(host, false)
    }

    /// The last reading.
    ///
    /// # Errors
    /// As [`CostSession::start`].
    pub fn finish(mut self, host: &Host) -> Result<CostReport, TraceError> {
        self.read_report(host, true)
    }

    fn read_report(&mut self, host: &Host, is_last: bool) -> Result<CostReport, TraceError> {
        if self.pace != TracePace::Always && self.stretch.is_empty() {
            self.trace_window()?;
        }
        if let Some(begin) = self.window.take() {
            self.last = if is_last { self.tracer.end()? } else { self.tracer.read_point()? };
            self.stretch.add(&begin, &self.last);
            self.window = Some(self.last.clone());
        }
        self.end_stretch()?;
        let end = Instant::now();
        self.end_timing();
        let kernel = KernelCpuTimes::observe(host);
        let process_ns = window::thread_ns();
        let untraced = self.measure_untraced(is_last)?;
        let events = events(&self.last);
        let runs = |(cpu, now): (&u32, &i64)| (*cpu, now - self.events.get(cpu).unwrap_or(&0));
        let account = AccountInput {
            runs: &events.iter().map(runs).collect(),
            process_ns: process_ns.saturating_sub(self.process_ns),
            kernel_begin: &self.kernel,
            kernel_end: &kernel,
            ns_a_run: &self.ns_a_run,
            sees_calls_between_cpus: self.tracer.sees_calls_between_cpus(),
            untraced: &self.untraced,
        };
        let counts = std::mem::take(&mut self.counted);
        let mut cost = account.cost(&counts);
        if self.by_path {
            let names = PathNames::observe(host);
            cost.paths = Some(path::paths(&names, &counts.tables.paths, &cost));
        }
        cost.packets_ns_a_packet_samples = std::mem::take(&mut self.samples);
        self.accounted.next(self.begin, end);
        for victim in &mut cost.victims {
            let cgroup = self.cgroups.entry((victim.pid, victim.cgroup_id));
            victim.cgroup = cgroup.or_insert_with(|| cgroup::path(host, victim.pid)).clone();
            victim.accounted_ns = self.accounted.time_of(host, victim.pid, victim.tid);
        }
        // Without those of processes that ended.
        let ran: BTreeSet<_> = cost.victims.iter().map(|victim| (victim.pid, victim.cgroup_id)).collect();
        self.cgroups.retain(|process, _| ran.contains(process));
        cost.notes.extend(windows::note(&cost));
        cost.notes.extend(untraced);
        cost.notes.extend(self.notes.iter().cloned());
        (self.events, self.process_ns, self.kernel, self.begin) = (events, window::thread_ns(), kernel, end);
        Ok(cost)
    }

    /// Measures interrupt time outside the tracepoints once, if there were enough interrupts to
    /// matter. Returns a note for the reader.
    fn measure_untraced(&mut self, is_last: bool) -> Result<Option<String>, TraceError> {
        let Some((cpu, _)) = most_interrupts(&self.counted.cpus, InterruptCounts::sum) else {
            return Ok(None);
        };
        if self.untraced.value().is_none() {
            let reopens = self.window.is_none() || is_last;
            if reopens {
                self.tracer.attach()?;
                std::thread::sleep(LEAD_IN);
                self.tracer.begin()?;
            }
            self.untraced = Known::Value(UntracedIrq::measure(&self.tracer, cpu)?);
            if reopens {
                self.tracer.end()?;
                self.tracer.detach(true)?;
            }
            // The effects of the measurement are not counted.
            if !is_last {
                if let Some(window) = &mut self.window {
                    self.last = self.tracer.read_point()?;
                    *window = self.last.clone();
                }
                self.stretch = TraceWindow::begin(self.tracer.tables()?);
            }
        }
        Ok(self.untraced.value().and_then(|untraced| untraced_note(untraced, &self.counted.cpus)))
    }

    fn end_timing(&mut self) {
        if self.timed.take().is_none() {
            return;
        }
        self.ns_a_run = match self.tracer.runs() {
            Ok(_) if self.overhead.clock_ns.is_none() => {
                Known::unknown("the time of a clock read could not be measured")
            }
            Ok(program_runs) if program_runs.runs > 0 => Known::Value(self.overhead.run_ns(program_runs)),
            Ok(_) => Known::unknown("no program ran while they were timed"),
            Err(error) => Known::unknown(error.to_string()),
        };
    }
}

/// The CPU with most of the interrupts that `count` counts, and their number per second, if they may matter.
fn most_interrupts(
    cpus: &BTreeMap<u32, CountedSpan>,
    count: impl Fn(InterruptCounts) -> i64,
) -> Option<(u32, f64)> {
    let counts = cpus.iter().map(|(cpu, span)| {
        let totals = &span.reading.totals;
        (*cpu, span.elapsed_ns, count(totals.packet_irqs) + count(totals.other_irqs))
    });
    let (cpu, elapsed_ns, count) = counts.max_by_key(|(.., count)| *count)?;
    let per_ns = count as f64 / elapsed_ns.max(1) as f64;
    (per_ns * DEAR_INTERRUPT_NS > WORTH_MEASURING).then_some((cpu, per_ns * 1e9))
}

/// A note about interrupts of unknown time.
fn untraced_note(untraced: &UntracedIrq, cpus: &BTreeMap<u32, CountedSpan>) -> Option<String> {
    let Known::Unknown { why } = &untraced.by_cpu else { return None };
    let (origin, (cpu, rate)) = match untraced.by_timer.value() {
        Some(_) => {
            (" from other CPUs and devices", most_interrupts(cpus, |irqs| irqs.by_cpu + irqs.by_device)?)
        }
        None => ("", most_interrupts(cpus, InterruptCounts::sum)?),
    };
    Some(format!(
        "up to {rate:.0} interrupts per second{origin} came to CPU {cpu}: the time of each outside its tracepoints, which in \
         a virtual machine is up to 20 us, is not in these figures and could not be measured: {why}"
    ))
}

fn events(point: &TracePoint) -> BTreeMap<u32, i64> {
    point.readings.iter().map(|(cpu, reading)| (*cpu, reading.events)).collect()
}

/// Interrupts of all visible network devices. Interrupts of other devices, for example in other
/// network namespaces, are recognized by the NET_RX that follows.
fn nic_irqs(host: &Host) -> Vec<u32> {
    let names = host.list("/sys/class/net").unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let irq = IrqState::observe(host, &names);
    let vectors = irq.interfaces.iter().filter_map(|item| item.vectors.value()).flatten();
    vectors.map(|vector| vector.irq).collect()
}

impl KernelCpuTimes {
    fn observe(host: &Host) -> Self {
        Self { times: CpuTimes::observe(host), softnet: SoftnetCpu::observe(host) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UntracedEstimate;
    use super::*;

    #[test]
    fn interrupts_whose_time_is_in_the_figures_are_not_noted_as_unknown() {
        let untraced =
            |by_timer| UntracedIrq { cpu: 0, by_timer, by_cpu: Known::unknown("it varied too much") };
        let estimate =
            || Known::Value(UntracedEstimate { ns: 3e3, low_ns: 3e3, high_ns: 3e3, interrupts: 9 });
        let cpus = |by_timer, by_device| {
            let mut span = CountedSpan { elapsed_ns: 1_000_000_000, ..Default::default() };
            span.reading.totals.other_irqs = InterruptCounts { by_timer, by_cpu: 0, by_device };
            BTreeMap::from([(1, span)])
        };
        assert_eq!(untraced_note(&untraced(estimate()), &cpus(2_885, 0)), None);
        let note = untraced_note(&untraced(estimate()), &cpus(2_885, 900)).expect("a note");
        assert!(
            note.starts_with("up to 900 interrupts per second from other CPUs and devices came to CPU 1: ")
        );
        let note = untraced_note(&untraced(Known::unknown("no timer")), &cpus(2_885, 900)).expect("a note");
        assert!(note.starts_with("up to 3785 interrupts per second came to CPU 1: "), "{note}");
    }
}
