//! A worker thread: where it runs, when it ends, what becomes of it when its service panics.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::{self, WorkerJob};
use crate::counters::SharedCounters;
use crate::deferred::ReplyPath;
use crate::error::ServerError;
use crate::overload::{AdmissionControl, AdmissionCredit, OverloadPolicy, WorkerCredit};
use crate::server::Backend;
use crate::service::Service;
use crate::sys::batch::BatchShape;
use crate::sys::thread::{pin, set_nice};

/// The wait before the first restart. It doubles with each that follows, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest wait before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A worker that has served for so long without a panic starts over with [`FIRST_PAUSE`].
const SERVED_WELL: Duration = Duration::from_secs(10);

/// Makes the service of a worker, also anew.
pub(crate) type ServiceFactory<S> = Arc<Mutex<dyn FnMut(usize) -> S + Send>>;

/// The wish to end, shared by all workers.
#[derive(Debug)]
pub(crate) struct StopSignal {
    requested: AtomicBool,
    drain: Duration,
}

impl StopSignal {
    pub(crate) fn new(drain: Duration) -> Self {
        Self { requested: AtomicBool::new(false), drain }
    }

    /// Asks the workers to end. Those that are blocked see it once their socket is shut down, those that wait for a restart
    /// once they are unparked.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Release);
    }

    fn requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Waits for so long, or until the end is wished for; whether it is.
    fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.requested() || left.is_zero() {
                return self.requested();
            }
            thread::park_timeout(left);
        }
    }
}

/// What a worker does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerPhase {
    /// Wait for requests and answer them.
    Serve,
    /// Answer what is queued, without waiting.
    Drain,
    /// Return.
    End,
}

/// One worker's view of [`StopSignal`].
pub(crate) struct Shutdown<'a> {
    stop: &'a StopSignal,
    /// Until when queued requests are still answered; set when draining begins.
    deadline: Option<Instant>,
    empty: bool,
}

impl<'a> Shutdown<'a> {
    fn new(stop: &'a StopSignal) -> Self {
        Self { stop, deadline: None, empty: false }
    }

    /// What to do next. A load and a branch while serving.
    #[inline]
    pub(crate) fn phase(&mut self) -> WorkerPhase {
        if self.deadline.is_none() && !self.stop.requested() {
            return WorkerPhase::Serve;
        }
        self.drain()
    }

    #[cold]
    fn drain(&mut self) -> WorkerPhase {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.stop.drain);
        if self.empty || now > deadline { WorkerPhase::End } else { WorkerPhase::Drain }
    }

    /// The socket was shut down.
    #[cold]
    pub(crate) fn on_wake(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + self.stop.drain);
    }

    /// Nothing is queued. While serving, a receive that gives up (`SO_RCVTIMEO` set by the owner) means nothing.
    #[cold]
    pub(crate) fn on_empty(&mut self) {
        self.empty = self.deadline.is_some();
    }
}

/// What a worker is started with.
pub(crate) struct WorkerStart<S> {
    pub(crate) worker: usize,
    pub(crate) socket: Arc<socket2::Socket>,
    pub(crate) cpu: Option<u32>,
    pub(crate) nice: Option<i32>,
    pub(crate) backend: Backend,
    pub(crate) xdp: Option<backend::xdp::WorkerQueues>,
    pub(crate) shape: BatchShape,
    pub(crate) deliver_truncated: bool,
    pub(crate) service: S,
    /// What makes another service when this one has panicked; without it the worker ends then.
    pub(crate) maker: Option<ServiceFactory<S>>,
    pub(crate) counters: Arc<SharedCounters>,
    pub(crate) stop: Arc<StopSignal>,
    pub(crate) overload: OverloadPolicy,
    pub(crate) credit: Option<Arc<AdmissionCredit>>,
}

/// A worker that is ready to serve: its number and thread id.
pub(crate) type ReadyReport = (usize, Result<i32, ServerError>);

impl<S: Service + 'static> WorkerStart<S> {
    /// Starts the thread. It reports to `ready` once it is where it belongs, then serves.
    pub(crate) fn spawn(self, ready: Sender<ReadyReport>) -> io::Result<JoinHandle<io::Result<()>>> {
        thread::Builder::new().name(format!("linerate-{}", self.worker)).spawn(move || {
            let placed = self.apply_placement();
            let failed = placed.is_err();
            // Whoever waits for this may have given up already because another worker failed.
            let _ = ready.send((self.worker, placed));
            drop(ready);
            if failed { Ok(()) } else { self.serve_on() }
        })
    }

    fn apply_placement(&self) -> Result<i32, ServerError> {
        if let Some(cpu) = self.cpu {
            let what = "be pinned to its CPU";
            pin(cpu).map_err(|source| ServerError::Worker { worker: self.worker, what, source })?;
        }
        if let Some(nice) = self.nice {
            let what = "set its nice value (below the present one needs CAP_SYS_NICE)";
            set_nice(nice).map_err(|source| ServerError::Worker { worker: self.worker, what, source })?;
        }
        Ok(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Serves, and after a panic again, until told to end.
    fn serve_on(mut self) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            // What a panic may leave half changed is not used again: the service is replaced, buffers are made anew.
            let panic = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
                Ok(served) => return served,
                Err(panic) => panic,
            };
            self.counters.count_panic(self.deliver_truncated);
            let Some(maker) = &self.maker else { resume_unwind(panic) };
            if begun.elapsed() > SERVED_WELL {
                pause = FIRST_PAUSE;
            }
            if self.stop.wait(pause) {
                return Ok(());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            // A maker that panics ends the worker, and must not take the others' restarts with it.
            self.service = maker.lock().unwrap_or_else(PoisonError::into_inner)(self.worker);
            self.counters.count_restart();
        }
    }

    /// The buffers are made here and not before: memory lands on the NUMA node of the thread that first touches it.
    fn serve(&mut self) -> io::Result<()> {
        let till = self.credit.clone().map(|credit| WorkerCredit::new(credit, self.worker));
        let job = WorkerJob {
            socket: &self.socket,
            shape: self.shape,
            deliver_truncated: self.deliver_truncated,
            service: &mut self.service,
            path: Arc::new(ReplyPath {
                socket: Arc::downgrade(&self.socket),
                counters: Arc::clone(&self.counters),
                family: self.shape.family,
                asked: self.shape.asked,
            }),
            counters: &self.counters,
            ending: Shutdown::new(&self.stop),
            gate: AdmissionControl::new(&self.overload, till),
        };
        match self.backend {
            Backend::Recvfrom => backend::recvfrom::run(job),
            Backend::Mmsg { .. } => backend::mmsg::run(job),
            Backend::Xdp(_) => backend::xdp::run(job, self.xdp.as_mut()),
        }
    }
}
