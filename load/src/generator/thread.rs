//! Generator threads, which carry out one plan per slot.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use super::plan::SlotPlan;
use crate::error::GeneratorError;

/// A thread that carries out plans until it is dropped.
#[derive(Debug)]
pub(super) struct GeneratorThread {
    /// `None` once the thread has to end.
    plans: Option<SyncSender<SlotPlan>>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for GeneratorThread {
    fn drop(&mut self) {
        self.plans = None;
        if let Some(handle) = self.handle.take() {
            // A panic was reported before, as `GeneratorError::Worker`.
            let _ = handle.join();
        }
    }
}

impl GeneratorThread {
    /// Starts a thread in the caller's network namespace, and waits until it is pinned and
    /// `make_worker` has run in it. The worker that `make_worker` returns carries out a plan. The
    /// thread ends when a worker returns false.
    pub(super) fn start<W: FnMut(SlotPlan) -> bool>(
        index: usize,
        cpu: Option<u32>,
        nice: Option<i32>,
        make_worker: impl FnOnce() -> Result<W, GeneratorError> + Send + 'static,
    ) -> Result<Self, GeneratorError> {
        let (plan_sender, plan_receiver) = sync_channel::<SlotPlan>(1);
        let (ready_sender, ready_receiver) = sync_channel::<Result<(), GeneratorError>>(1);
        let handle = thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                let mut worker = match configure_thread(cpu, nice).and_then(|()| make_worker()) {
                    Ok(worker) => worker,
                    Err(error) => {
                        // Fails only if the starting thread no longer waits.
                        let _ = ready_sender.send(Err(error));
                        return;
                    }
                };
                if ready_sender.send(Ok(())).is_err() {
                    return;
                }
                while let Ok(plan) = plan_receiver.recv() {
                    if !worker(plan) {
                        return;
                    }
                }
            })
            .map_err(|source| GeneratorError::system("cannot start a generator thread", source))?;
        ready_receiver.recv().map_err(|_| GeneratorError::Worker)??;
        Ok(GeneratorThread { plans: Some(plan_sender), handle: Some(handle) })
    }

    // Whether the thread ended, for example by a panic.
    pub(super) fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    // Passes a plan to the thread; `None` if the thread is gone.
    pub(super) fn send_plan(&self, plan: SlotPlan) -> Option<()> {
        self.plans.as_ref()?.send(plan).ok()
    }
}

/// Pins the calling thread, and sets its niceness and timer slack.
fn configure_thread(cpu: Option<u32>, nice: Option<i32>) -> Result<(), GeneratorError> {
    if let Some(cpu) = cpu {
        let mut cpu_set = CpuSet::new();
        let is_valid = (cpu as usize) < CpuSet::MAX_CPU;
        if is_valid {
            // `set` panics on a CPU beyond its size.
            cpu_set.set(cpu as usize);
        }
        let pin_result =
            if is_valid { sched_setaffinity(None, &cpu_set) } else { Err(rustix::io::Errno::INVAL) };
        pin_result.map_err(|source| GeneratorError::Cpu { cpu, source: source.into() })?;
    }
    if let Some(nice) = nice {
        // On Linux the niceness of "the calling process" is that of the calling thread (setpriority(2)).
        setpriority_process(None, nice).map_err(|source| {
            GeneratorError::Invalid(format!(
                "cannot set niceness {nice} on a generator thread: {source} (a lower value than now needs \
                 CAP_SYS_NICE)"
            ))
        })?;
    }
    // The default slack of 50 us would lengthen every sleep by 50 us (prctl(2), PR_SET_TIMERSLACK).
    // If this fails, requests only leave later, which their latency shows.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}
