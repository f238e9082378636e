//! A worker thread: its CPU, its end, and its restart after a panic of the service.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend;
use crate::backend::job::WorkerJob;
use crate::choices::Backend;
use crate::counters::SharedCounters;
use crate::deferred_reply::ReplyPath;
use crate::error::ServerError;
use crate::overload::{AdmissionControl, AdmissionCredit, OverloadPolicy, WorkerCredit};
use crate::service::Service;
use crate::shutdown::{Shutdown, StopSignal};
use crate::sys::batch::BatchShape;
use crate::sys::thread::{pin, set_nice};

// Pause before the first restart. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

// Time without a panic after which the pause is [`FIRST_PAUSE`] again.
const SERVED_WELL: Duration = Duration::from_secs(10);

/// Makes the service of a worker, and another one after a panic.
pub(crate) type ServiceFactory<S> = Arc<Mutex<dyn FnMut(usize) -> S + Send>>;

#[derive(Debug, Clone)]
pub(crate) struct WorkerSettings {
    pub(crate) backend: Backend,
    pub(crate) deliver_truncated: bool,
    pub(crate) nice: Option<i32>,
    pub(crate) drain: Duration,
    pub(crate) restart: bool,
    pub(crate) overload: OverloadPolicy,
}

/// The socket, CPU and queues of a worker.
#[derive(Debug)]
pub(crate) struct WorkerAssignment {
    pub(crate) socket: Arc<socket2::Socket>,
    pub(crate) cpu: Option<u32>,
    pub(crate) queues: Option<backend::xdp::WorkerQueues>,
    pub(crate) shape: BatchShape,
    // Whether another socket of the address receives the same broadcasts.
    pub(crate) skips_broadcasts: bool,
}

pub(crate) struct WorkerStart<S> {
    pub(crate) worker: usize,
    pub(crate) assignment: WorkerAssignment,
    pub(crate) settings: Arc<WorkerSettings>,
    pub(crate) service: S,
    /// Creates a new service after a panic; without it the worker ends.
    pub(crate) restart_factory: Option<ServiceFactory<S>>,
    pub(crate) counters: Arc<SharedCounters>,
    pub(crate) stop: Arc<StopSignal>,
    pub(crate) credit: Option<Arc<AdmissionCredit>>,
}

/// The number of a worker, and its thread id or the error of its placement.
pub(crate) type ReadyReport = (usize, Result<i32, ServerError>);

impl<S: Service + 'static> WorkerStart<S> {
    /// Starts the thread. It reports to `ready_sender` when it runs on its CPU, then serves.
    pub(crate) fn spawn(self, ready_sender: Sender<ReadyReport>) -> io::Result<JoinHandle<io::Result<()>>> {
        thread::Builder::new().name(format!("linerate-{}", self.worker)).spawn(move || {
            let placement_result = self.apply_placement();
            let is_failed = placement_result.is_err();
            // The receiver is gone if another worker failed.
            let _ = ready_sender.send((self.worker, placement_result));
            drop(ready_sender);
            if is_failed { Ok(()) } else { self.serve_until_stopped() }
        })
    }

    fn apply_placement(&self) -> Result<i32, ServerError> {
        if let Some(cpu) = self.assignment.cpu {
            let what = "be pinned to its CPU";
            pin(cpu).map_err(|source| ServerError::Worker { worker: self.worker, what, source })?;
        }
        if let Some(nice) = self.settings.nice {
            let what = "set its nice value (below the present one needs CAP_SYS_NICE)";
            set_nice(nice).map_err(|source| ServerError::Worker { worker: self.worker, what, source })?;
        }
        Ok(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Serves until the stop, also after panics.
    fn serve_until_stopped(mut self) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            let start = Instant::now();
            // A panic may leave the service and the buffers inconsistent, so both are replaced.
            let panic = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
                Ok(result) => return result,
                Err(panic) => panic,
            };
            self.counters.count_panic(self.settings.deliver_truncated);
            let Some(service_factory) = &self.restart_factory else { resume_unwind(panic) };
            if start.elapsed() > SERVED_WELL {
                pause = FIRST_PAUSE;
            }
            if self.stop.wait(pause) {
                return Ok(());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            // A factory that panics ends this worker only.
            self.service = service_factory.lock().unwrap_or_else(PoisonError::into_inner)(self.worker);
            self.counters.count_restart();
        }
    }

    // Allocates the buffers here, because memory is on the NUMA node of the thread that first writes to it.
    fn serve(&mut self) -> io::Result<()> {
        let credit = self.credit.clone().map(|credit| WorkerCredit::new(credit, self.worker));
        let WorkerAssignment { socket, shape, queues, skips_broadcasts, .. } = &mut self.assignment;
        let job = WorkerJob {
            socket,
            shape: *shape,
            deliver_truncated: self.settings.deliver_truncated,
            skips_broadcasts: *skips_broadcasts,
            service: &mut self.service,
            path: Arc::new(ReplyPath {
                socket: Arc::downgrade(socket),
                counters: Arc::clone(&self.counters),
                family: shape.family,
                asked: shape.asked,
            }),
            counters: &self.counters,
            shutdown: Shutdown::new(&self.stop),
            admission: AdmissionControl::new(&self.settings.overload, credit),
        };
        match self.settings.backend {
            Backend::Recvfrom => backend::recvfrom::run(job),
            Backend::Mmsg { .. } => backend::mmsg::run(job),
            Backend::Xdp(_) => backend::xdp::run(job, queues.as_mut()),
        }
    }
}
