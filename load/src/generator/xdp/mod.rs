//! The generator that sends requests and receives replies in the kernel.
//!
//! A BPF program creates requests under BPF_PROG_TEST_RUN, in pages that then leave as live XDP
//! frames (Linux 5.18) or in a socket buffer whose clones leave. Another program on the same
//! interface receives, matches and times the replies. No request passes through this process. All
//! other packets pass unchanged.

mod frame;
mod judge;
mod outcome;
mod ports;
mod program;
mod route;
mod slot;
mod watch;
mod worker;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::thread::sched_getaffinity;

use super::options::{GeneratorOptions, LiveFrames};
use super::plan::{SlotFacts, SlotPlan, SlotSpan};
use super::thread::GeneratorThread;
use super::{Generator, GeneratorDescription, LoadSlot, PacingMode};
use crate::error::GeneratorError;
use crate::outcome::{SlotInterval, SlotOutcome};
use crate::workload::LoadWorkload;
use judge::ReplyJudge;
use outcome::outcome;
use program::LoadProgram;
use route::FlowRoutes;
use watch::IntervalWatch;
use worker::{XdpWorker, XdpWorkerReport};

// Lead time of a slot, in which all threads wake up.
const LEAD_NS: u64 = 2_000_000;

/// Additional lead time per flow.
const FLOW_LEAD_NS: u64 = 500;

/// Additional lead time per CPU.
const ROW_LEAD_NS: u64 = 50_000;

// Requests that fall within a tick leave together. A call costs about 13 us in addition to its
// frames (measured), so a tenth of a CPU is spent on calls.
const TICK_NS: u64 = 100_000;

// A slot that shows whether the interface sends live frames.
const TRIAL: Duration = Duration::from_millis(2);
const TRIAL_REQUESTS: f64 = 20.0;

/// A load generator of live XDP frames, with a sending thread for each of its CPUs.
///
/// In window mode the requests in flight are those of all flows of a thread together: the window
/// times the number of flows, sent by the flows in turn. Replies that are verified in user space
/// count as answers until they are verified; if they arrive too fast for that, the outcome has the
/// number of unverified replies.
#[derive(Debug)]
pub(super) struct XdpGenerator {
    // In this order: threads and judge end before the program goes.
    threads: Vec<GeneratorThread>,
    reports: Receiver<XdpWorkerReport>,
    judge: Option<ReplyJudge>,
    program: Arc<LoadProgram>,
    live_frames: LiveFrames,
    /// Whether only an attempt shows if the interface sends live frames.
    frames_untried: bool,
    options: GeneratorOptions,
    epoch: u32,
    description: GeneratorDescription,
}

impl XdpGenerator {
    pub(super) fn start(options: &GeneratorOptions) -> Result<Self, GeneratorError> {
        let routes = FlowRoutes::find(options)?;
        let cpus = thread_cpus(options)?;
        let run = fastrand::u64(..);
        let mut program = LoadProgram::start(&routes, options, run, cpus)?;
        let judge = if let LoadWorkload::Exchange(exchange) = &options.workload
            && let Some(verify) = &exchange.verify
        {
            let verdicts = program.take_verdicts()?;
            Some(ReplyJudge::start(verdicts, Arc::clone(exchange), Arc::clone(verify))?)
        } else {
            None
        };
        let cpus = program.cpus.clone();
        let outlets = cpus.iter().map(|_| program.outlets()).collect::<Result<Vec<_>, _>>()?;
        let program = Arc::new(program);
        let (report_sender, reports) = channel();
        let mut threads = Vec::with_capacity(cpus.len());
        for ((index, &cpu), outlets) in cpus.iter().enumerate().zip(outlets) {
            let (program, cancel) = (Arc::clone(&program), Arc::clone(&options.cancel));
            let reports = report_sender.clone();
            threads.push(GeneratorThread::start(index, Some(cpu), options.nice, move || {
                program.enter_thread()?;
                Ok(move |plan: SlotPlan| {
                    let Some(row) = program.row(plan.thread) else { return false };
                    reports.send(XdpWorker::new(row, &outlets, &cancel).run(&plan)).is_ok()
                })
            })?);
        }
        let description = GeneratorDescription {
            backend: "xdp".to_owned(),
            cpus,
            sources: source_addresses(&routes),
            ..options.describe(0, fallback_notes(&routes))
        };
        Ok(XdpGenerator {
            threads,
            reports,
            judge,
            program,
            live_frames: if routes.no_frames.is_none() { options.live_frames } else { LiveFrames::Never },
            frames_untried: routes.frames_untried,
            options: options.clone(),
            epoch: 0,
            description,
        })
    }

    fn uses_live_frames(&self, slot: &LoadSlot) -> bool {
        match (slot.mode, self.live_frames) {
            (PacingMode::Window { .. }, _) | (_, LiveFrames::Never) => false,
            (PacingMode::Flood, _) | (_, LiveFrames::Always) => true,
            (PacingMode::Rate { .. }, LiveFrames::Floods) => slot.live_frames,
        }
    }

    // Offers a few live frames. If none leaves, all requests leave as clones from then on.
    fn try_live_frames(&mut self) -> Result<(), GeneratorError> {
        self.frames_untried = false;
        let trial = LoadSlot {
            live_frames: true,
            drain: TRIAL,
            ..LoadSlot::rate(TRIAL_REQUESTS / TRIAL.as_secs_f64(), TRIAL)
        };
        let outcome = self.watch(&trial, &mut |_| {})?;
        if outcome.sent == 0 && outcome.send_errors.unreachable > 0 {
            self.live_frames = LiveFrames::Never;
            self.description.fallbacks.push(clones_note("the interface did not send the first ones"));
        }
        Ok(())
    }

    fn plans(&self, slot: &LoadSlot, span: SlotSpan) -> Vec<SlotPlan> {
        let counts = (self.program.flows.len(), self.program.cpus.len());
        let mut plans = SlotPlan::for_threads(slot, span, counts, self.options.timeout, |_| TICK_NS);
        let live_frames = self.uses_live_frames(slot);
        plans.iter_mut().for_each(|plan| plan.live_frames = live_frames);
        plans
    }
}

impl Generator for XdpGenerator {
    fn describe(&self) -> GeneratorDescription {
        self.description.clone()
    }

    fn watch(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        slot.check_runnable(self.threads.len(), &self.options.cancel)?;
        if self.frames_untried && self.uses_live_frames(slot) {
            self.try_live_frames()?;
        }
        self.epoch = self.epoch.wrapping_add(1);
        let lead_ns = LEAD_NS
            + FLOW_LEAD_NS * self.program.flows.len() as u64
            + ROW_LEAD_NS * self.program.rows.len() as u64;
        let span = SlotSpan::new(slot, self.epoch, lead_ns, &self.options.cancel)?;
        let plans = self.plans(slot, span);
        if let Some(judge) = &self.judge {
            judge.begin(span.start_ns);
        }
        slot::begin(&self.program, &span, &plans);
        for (thread, plan) in self.threads.iter().zip(&plans) {
            thread.send_plan(*plan).ok_or(GeneratorError::Worker)?;
        }
        let mut watch = IntervalWatch::new(&self.program, span);
        let Some(mut reports) = watch.collect_reports(&self.reports, &self.threads, observer) else {
            // Reports of the other threads must not count as reports of the next slot.
            self.threads.clear();
            return Err(GeneratorError::Worker);
        };
        if let Some(failure) = reports.iter_mut().find_map(|report| report.failure.take()) {
            return Err(GeneratorError::system("cannot send requests (BPF_PROG_TEST_RUN)", failure));
        }
        let intervals = watch.finish(slot, &self.options.cancel, observer);
        let verdicts = self.program.sum(|row| &row.verdicts);
        let (failures, unjudged) =
            self.judge.as_ref().map_or((Vec::new(), 0), |judge| judge.finish(verdicts));
        let facts = SlotFacts::new(slot, span, &plans, &self.options);
        Ok(outcome(&self.program, &facts, &reports, intervals, &failures, unjudged))
    }
}

/// One CPU per thread: the requested CPUs, or the first CPUs that the caller may use.
fn thread_cpus(options: &GeneratorOptions) -> Result<Vec<u32>, GeneratorError> {
    let mut cpus = match &options.cpus {
        Some(cpus) => cpus.clone(),
        None => {
            let allowed = sched_getaffinity(None)
                .map_err(|error| GeneratorError::system("cannot read the allowed CPUs", error))?;
            (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|cpu| allowed.is_set(*cpu))
                .map(|cpu| cpu as u32)
                .collect()
        }
    };
    let mut unique_cpus = HashSet::new();
    cpus.retain(|cpu| unique_cpus.insert(*cpu));
    if cpus.len() < options.threads {
        return Err(GeneratorError::xdp(format!(
            "{} threads on {} CPUs: each needs one of its own, ask for fewer threads",
            options.threads,
            cpus.len()
        )));
    }
    cpus.truncate(options.threads);
    Ok(cpus)
}

fn fallback_notes(routes: &FlowRoutes) -> Vec<String> {
    routes.no_frames.iter().map(|why| clones_note(why)).collect()
}

fn clones_note(why: &str) -> String {
    format!("all requests leave as clones, fewer per second than live frames: {why}")
}

fn source_addresses(routes: &FlowRoutes) -> Vec<std::net::IpAddr> {
    let mut unique_sources = HashSet::new();
    routes.ways.iter().map(|route| route.from.ip()).filter(|source| unique_sources.insert(*source)).collect()
}
