//! A look that goes on, and can be read again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::stage::irq::IrqState;
use linerate_host::stage::machine::CpuTimes;
use linerate_host::stage::softirq::SoftnetCpu;
use linerate_host::{CpuSet, Host, HostError, Known};

use super::account::{AccountInput, KernelCpuTimes};
use super::accounted::AccountedTimes;
use super::call::CallCost;
use super::cgroup;
use super::counted::{CountedCost, ThreadTables};
use super::pace::{LEAD_IN, PERIOD, TracePace};
use super::tracer::{CostTracer, TracePoint};
use super::untraced::UntracedIrq;
use super::windows::{self, TraceWindow};
use super::{CostOptions, CostReport, WHAT};
use crate::TraceError;
use crate::programs::RunCounting;
use crate::window;

/// For how long a look has its own programs timed, which costs something: this part of the time, and no longer than that.
const TIMED_PART: u32 = 5;
const TIMED_AT_MOST: Duration = Duration::from_millis(250);

/// How often it is looked whether programs run too often, while they are attached always.
const PATIENCE: Duration = Duration::from_millis(250);

/// So many windows in a row must leave room before programs are attached more of the time: what comes in bursts pauses.
const CALM: u32 = 3;

/// What an interrupt takes in a virtual machine where it is dear, beside what is traced, ns.
const DEAR_INTERRUPT_NS: f64 = 20e3;

/// The share of a CPU from which it is measured what it is on this one.
const WORTH_MEASURING: f64 = 0.005;

const FEW_INTERRUPTS: &str = "so few interrupts came that it does not matter";

/// Windows come at another place in each period, so that nothing that comes as often is always in them or never: the golden
/// ratio covers all places evenly.
const NEXT_PLACE: f64 = 0.618_033_988_749_895;

/// Programs that count. They go with this, or with the process.
#[derive(Debug)]
pub struct CostSession {
    tracer: CostTracer,
    timed: Option<RunCounting>,
    /// The way to a program and back, and what the kernel's clock adds, ns.
    call: Result<(CallCost, f64), String>,
    ns_a_run: Known<f64>,
    pace: TracePace,
    is_exact: bool,
    /// Windows in a row that left room.
    calm: u32,
    /// Where in its period the last window was, 0 to 1.
    place: f64,
    /// When the window began that is open.
    window: Option<TracePoint>,
    /// The last that was told.
    last: TracePoint,
    stretch: TraceWindow,
    /// Stretches since the last reading, or since the beginning.
    counted: CountedCost,
    /// As of the last reading, or of the beginning.
    events: BTreeMap<u32, i64>,
    process_ns: u64,
    begin: Instant,
    kernel: KernelCpuTimes,
    accounted: AccountedTimes,
    cgroups: BTreeMap<(u32, u64), Known<String>>,
    notes: Vec<String>,
    /// What interrupts take that is not traced, once that mattered.
    untraced: Known<UntracedIrq>,
}

impl CostReport {
    /// Looks for the time asked for, or until `stop` says so.
    ///
    /// # Errors
    /// [`TraceError::NotPermitted`] without the right to load BPF programs, [`TraceError::NotHere`] where the kernel lacks
    /// one of the tracepoints, [`TraceError::Kernel`] where softirqs are run by threads that can be interrupted by others
    /// (`PREEMPT_RT`).
    pub fn observe(host: &Host, asked: &CostOptions, stop: &dyn Fn() -> bool) -> Result<Self, TraceError> {
        let mut look = CostSession::start(host, asked.cpus.as_ref())?;
        look.wait(asked.duration, stop)?;
        look.finish(host)
    }
}

impl CostSession {
    /// Begins to count, on these CPUs, or on all that are online.
    ///
    /// # Errors
    /// As [`CostReport::observe`], and where the files of the host cannot be read that say which CPUs there are.
    pub fn start(host: &Host, cpus: Option<&CpuSet>) -> Result<Self, TraceError> {
        if host.read("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1") {
            let why = "this kernel is built with PREEMPT_RT, where softirqs are threads' own work and top shows them";
            return Err(TraceError::Kernel { what: WHAT, source: std::io::Error::other(why) });
        }
        let online = online(host)?;
        let watched: Vec<u32> =
            online.iter().filter(|cpu| cpus.is_none_or(|asked| asked.contains(*cpu))).collect();
        if watched.is_empty() {
            let why = format!("none of the CPUs asked for is online: these are {online}");
            return Err(TraceError::Kernel { what: WHAT, source: std::io::Error::other(why) });
        }
        let mut notes = Vec::new();
        let nic_irqs = nic_irqs(host);
        let mut tracer = CostTracer::load(&watched, &nic_irqs)?;
        let way = CallCost::time(&mut tracer)?;
        let (timed, call) = match RunCounting::start(WHAT) {
            Ok(counting) => {
                let clock = CallCost::clock_ns(&mut tracer)?;
                (Some(counting), clock.map(|clock| (way, clock)).ok_or_else(|| "no program ran".to_owned()))
            }
            Err(error) => (None, Err(format!("the kernel does not time programs here: {error}"))),
        };
        tracer.attach()?;
        // In which softirqs end that began before, too.
        let accounted = AccountedTimes::begin(host);
        notes.extend(accounted.why().map(|why| format!("what top says is not known: {why}")));
        let kernel = KernelCpuTimes::observe(host);
        std::thread::sleep(LEAD_IN);
        let point = tracer.begin()?;
        let stretch = TraceWindow::begin(tracer.tables()?);
        Ok(Self {
            tracer,
            timed,
            ns_a_run: Known::unknown(
                call.as_ref().err().map_or("it was not timed for long enough", String::as_str),
            ),
            call,
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
            notes,
            untraced: Known::unknown(FEW_INTERRUPTS),
        })
    }

    /// Has programs attached all the time, whatever that takes.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// Waits for this long, or until `stop` says so, and has programs attached for as much of the time as they may be.
    /// They are timed in the first part of the first wait only; without this, until the first reading, and they stay attached.
    ///
    /// # Errors
    /// [`TraceError::Kernel`] where they cannot be attached again.
    pub fn wait(&mut self, duration: Duration, stop: &dyn Fn() -> bool) -> Result<(), TraceError> {
        let begin = Instant::now();
        let left = || duration.saturating_sub(begin.elapsed());
        if self.timed.is_some() {
            window::wait((duration / TIMED_PART).min(TIMED_AT_MOST), stop);
            self.end_timing();
            self.adapt()?;
        }
        while !left().is_zero() && !stop() {
            match self.pace {
                TracePace::Always if self.is_exact => drop(window::wait(left(), stop)),
                TracePace::Always => {
                    if window::wait(left().min(PATIENCE), stop) >= PATIENCE {
                        self.adapt()?;
                    }
                }
                TracePace::Windows { .. } => self.period(left(), stop)?,
            }
        }
        Ok(())
    }

    /// A window and what lies around it; none where too little time is left.
    fn period(&mut self, left: Duration, stop: &dyn Fn() -> bool) -> Result<(), TraceError> {
        let takes = self.pace.window() + LEAD_IN;
        let Some(around) = PERIOD.min(left).checked_sub(takes) else {
            window::wait(left, stop);
            return Ok(());
        };
        self.place = (self.place + NEXT_PLACE).fract();
        let begin = Instant::now();
        window::wait(around.mul_f64(self.place), stop);
        if stop() {
            return Ok(());
        }
        self.look_once()?;
        window::wait(PERIOD.min(left).saturating_sub(begin.elapsed()), stop);
        Ok(())
    }

    /// One window, after which the pace may be another.
    fn look_once(&mut self) -> Result<(), TraceError> {
        self.tracer.attach()?;
        std::thread::sleep(LEAD_IN);
        self.window = Some(self.tracer.begin()?);
        std::thread::sleep(self.pace.window());
        self.adapt()
    }

    /// Ends the window that is open, and goes on at the pace that its rates allow.
    fn adapt(&mut self) -> Result<(), TraceError> {
        let Some(begin) = &self.window else { return Ok(()) };
        if self.is_exact {
            return Ok(());
        }
        let point = self.tracer.tell()?;
        let ns_a_run = self.ns_a_run.value().copied();
        // While they are attached always, a window goes on from reading to reading, and it is the last part that counts.
        let from = if self.pace == TracePace::Always { &self.last } else { begin };
        let mut pace = self.pace.for_rates(&windows::rates(from, &point, ns_a_run));
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

    /// Ends the window that is open, and detaches programs.
    fn close(&mut self) -> Result<(), TraceError> {
        if let Some(begin) = self.window.take() {
            self.last = self.tracer.end()?;
            self.stretch.add(&begin, &self.last);
        }
        self.tracer.detach(matches!(self.pace, TracePace::Windows { with_irqs: true, .. }))
    }

    /// What was counted at one pace goes to the rest.
    fn end_stretch(&mut self) -> Result<(), TraceError> {
        let tables = self.tracer.tables()?;
        let next = TraceWindow::begin(ThreadTables::default());
        let ended = std::mem::replace(&mut self.stretch, next);
        self.stretch = ended.end(tables, self.pace == TracePace::Always, &mut self.counted);
        Ok(())
    }

    /// What was counted since the last reading, or since the beginning.
    ///
    /// # Errors
    /// As [`CostReport::observe`].
    pub fn read(&mut self, host: &Host) -> Result<CostReport, TraceError> {
        self.read_on(host, false)
    }

    /// The same, and nothing is counted any more.
    ///
    /// # Errors
    /// As [`CostReport::observe`].
    pub fn finish(mut self, host: &Host) -> Result<CostReport, TraceError> {
        self.read_on(host, true)
    }

    fn read_on(&mut self, host: &Host, is_last: bool) -> Result<CostReport, TraceError> {
        if self.pace != TracePace::Always && self.stretch.is_empty() {
            self.look_once()?;
        }
        if let Some(begin) = self.window.take() {
            self.last = if is_last { self.tracer.end()? } else { self.tracer.tell()? };
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
        let mut cost = account.cost(&std::mem::take(&mut self.counted));
        self.accounted.next(self.begin, end);
        for victim in &mut cost.victims {
            let cgroup = self.cgroups.entry((victim.pid, victim.cgroup_id));
            victim.cgroup = cgroup.or_insert_with(|| cgroup::path(host, victim.pid)).clone();
            victim.accounted_ns = self.accounted.of(host, victim.pid, victim.tid);
        }
        cost.notes.extend(windows::note(&cost));
        cost.notes.extend(untraced);
        cost.notes.extend(self.notes.iter().cloned());
        (self.events, self.process_ns, self.kernel, self.begin) = (events, window::thread_ns(), kernel, end);
        Ok(cost)
    }

    /// Measures what is not traced of interrupts, where so many came that it matters, once. Returns what a reader should
    /// know of it.
    fn measure_untraced(&mut self, is_last: bool) -> Result<Option<String>, TraceError> {
        let mut counts = BTreeMap::<u32, i64>::new();
        for (key, turns) in &self.counted.tables.threads {
            let interrupts = turns.taken.packet_irqs.plus(turns.taken.other_irqs);
            *counts.entry(key.cpu).or_default() += interrupts.sum();
        }
        let Some((&cpu, &count)) = counts.iter().max_by_key(|(_, count)| **count) else { return Ok(None) };
        let elapsed = self.counted.cpus.get(&cpu).map_or(1, |span| span.elapsed_ns.max(1));
        if (count as f64 * DEAR_INTERRUPT_NS) / elapsed as f64 <= WORTH_MEASURING {
            return Ok(None);
        }
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
            // What was seen of the measurement is nobody's.
            if !is_last {
                if let Some(window) = &mut self.window {
                    self.last = self.tracer.tell()?;
                    *window = self.last.clone();
                }
                self.stretch = TraceWindow::begin(self.tracer.tables()?);
            }
        }
        let Some(Known::Unknown { why }) = self.untraced.value().map(|untraced| &untraced.by_cpu) else {
            return Ok(None);
        };
        let rate = count as f64 / (elapsed as f64 / 1e9);
        Ok(Some(format!(
            "up to {rate:.0} interrupts per second came to CPU {cpu}: what each takes beside its tracepoints, which in a \
             virtual machine is up to 20 us, is not in these figures and could not be measured: {why}"
        )))
    }

    /// Programs are no longer timed, once they were for a while.
    fn end_timing(&mut self) {
        if self.timed.take().is_none() {
            return;
        }
        self.ns_a_run = match (self.tracer.runs(), &self.call) {
            (Ok(ran), Ok((call, clock_ns))) if ran.runs > 0 => {
                let timed = ran.time.as_nanos() as f64 / ran.runs as f64;
                Known::Value(call.way_ns + (timed - clock_ns).max(0.0))
            }
            (Ok(_), Ok(_)) => Known::unknown("no program ran while they were timed"),
            (Ok(_), Err(why)) => Known::unknown(why.clone()),
            (Err(error), _) => Known::unknown(error.to_string()),
        };
    }
}

/// How often programs ran until then.
fn events(point: &TracePoint) -> BTreeMap<u32, i64> {
    point.told.iter().map(|(cpu, told)| (*cpu, told.events)).collect()
}

fn online(host: &Host) -> Result<CpuSet, TraceError> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let text = host.read(PATH)?;
    let garbled = |reason: String| HostError::Garbled { path: PATH.to_owned(), reason };
    Ok(CpuSet::from_list(&text).map_err(|error| garbled(error.to_string()))?)
}

/// Interrupts of all network devices in sight. Those that are not, as in other network namespaces, are told by the NET_RX
/// they bring.
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
