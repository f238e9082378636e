//! The threads of the socket generator.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use super::intervals::{IntervalMessage, IntervalSource, ThreadIntervals};
use super::worker::{SocketPlan, SocketWorker};
use crate::error::GeneratorError;
use crate::latency::Latency;

/// A thread with its worker, until it is dropped.
#[derive(Debug)]
pub(super) struct SocketThread {
    /// None once the thread was told to end.
    plans: Option<SyncSender<SocketPlan>>,
    messages: Receiver<IntervalMessage>,
    emptied: Sender<Latency>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for SocketThread {
    fn drop(&mut self) {
        self.plans = None;
        if let Some(handle) = self.handle.take() {
            // A panic has been reported already, as `GeneratorError::Worker`.
            let _ = handle.join();
        }
    }
}

impl SocketThread {
    /// Starts a thread and waits until it is pinned and has its worker.
    pub(super) fn start(
        index: usize,
        cpu: Option<u32>,
        nice: Option<i32>,
        make: impl FnOnce(ThreadIntervals) -> Result<SocketWorker, GeneratorError> + Send + 'static,
    ) -> Result<Self, GeneratorError> {
        let (plans, orders) = sync_channel::<SocketPlan>(1);
        // Not bounded, so that a thread never waits for whoever is told.
        let (tell, messages) = channel::<IntervalMessage>();
        let (emptied, empty) = channel::<Latency>();
        let (ready, is_ready) = sync_channel::<Result<(), GeneratorError>>(1);
        let handle = thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                let book = ThreadIntervals::new(tell.clone(), empty);
                let worker = prepare(cpu, nice).and_then(|()| make(book));
                let mut worker = match worker {
                    Ok(worker) => worker,
                    Err(error) => {
                        // If nobody waits any more, there is nobody to tell.
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                if ready.send(Ok(())).is_err() {
                    return;
                }
                while let Ok(plan) = orders.recv() {
                    let report = Box::new(worker.run(&plan));
                    if tell.send(IntervalMessage::Done(report)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|source| GeneratorError::system("cannot start a generator thread", source))?;
        is_ready.recv().map_err(|_| GeneratorError::Worker)??;
        Ok(SocketThread { plans: Some(plans), messages, emptied, handle: Some(handle) })
    }

    /// Hands it a plan; none if it is gone.
    pub(super) fn order(&self, plan: SocketPlan) -> Option<()> {
        self.plans.as_ref()?.send(plan).ok()
    }

    /// Where it tells what becomes of a plan.
    pub(super) fn source(&self) -> IntervalSource<'_> {
        IntervalSource { messages: &self.messages, emptied: &self.emptied }
    }
}

/// Makes the calling thread a punctual one on its CPU.
pub(in crate::generator) fn prepare(cpu: Option<u32>, nice: Option<i32>) -> Result<(), GeneratorError> {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        let known = (cpu as usize) < CpuSet::MAX_CPU;
        if known {
            set.set(cpu as usize);
        }
        let pinned = if known { sched_setaffinity(None, &set) } else { Err(rustix::io::Errno::INVAL) };
        pinned.map_err(|source| GeneratorError::Cpu { cpu, source: source.into() })?;
    }
    if let Some(nice) = nice {
        // On Linux the niceness of "the calling process" is that of the calling thread (setpriority(2)).
        setpriority_process(None, nice)
            .map_err(|source| GeneratorError::Nice { nice, source: source.into() })?;
    }
    // The default slack of 50 us would make every sleep that much longer (prctl(2), PR_SET_TIMERSLACK). Without it
    // requests only leave later, which their latency shows.
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}
