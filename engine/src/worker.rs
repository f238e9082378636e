//! A worker thread: where it runs, when it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::{self, Job};
use crate::counters::Counters;
use crate::error::Error;
use crate::server::Backend;
use crate::service::Service;
use crate::sys::batch::Shape;
use crate::sys::thread::{pin, set_nice};

/// The wish to end, shared by all workers.
#[derive(Debug)]
pub(crate) struct Stop {
    requested: AtomicBool,
    drain: Duration,
}

impl Stop {
    pub(crate) fn new(drain: Duration) -> Self {
        Self { requested: AtomicBool::new(false), drain }
    }

    /// Asks the workers to end. Those that are blocked see it once their socket is shut down.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Release);
    }
}

/// What a worker does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Wait for requests and answer them.
    Serve,
    /// Answer what is queued, without waiting.
    Drain,
    /// Return.
    End,
}

/// One worker's view of [`Stop`].
pub(crate) struct Ending<'a> {
    stop: &'a Stop,
    /// Until when queued requests are still answered; set when draining begins.
    deadline: Option<Instant>,
    empty: bool,
}

impl<'a> Ending<'a> {
    fn new(stop: &'a Stop) -> Self {
        Self { stop, deadline: None, empty: false }
    }

    /// What to do next. A load and a branch while serving.
    #[inline]
    pub(crate) fn phase(&mut self) -> Phase {
        if self.deadline.is_none() && !self.stop.requested.load(Ordering::Acquire) {
            return Phase::Serve;
        }
        self.drain()
    }

    #[cold]
    fn drain(&mut self) -> Phase {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.stop.drain);
        if self.empty || now > deadline { Phase::End } else { Phase::Drain }
    }

    /// The socket was shut down.
    #[cold]
    pub(crate) fn woken(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + self.stop.drain);
    }

    /// Nothing is queued. While serving, a receive that gives up (`SO_RCVTIMEO` set by the owner) means nothing.
    #[cold]
    pub(crate) fn empty(&mut self) {
        self.empty = self.deadline.is_some();
    }
}

/// What a worker is started with.
pub(crate) struct Start<S> {
    pub(crate) worker: usize,
    pub(crate) socket: Arc<socket2::Socket>,
    pub(crate) cpu: Option<u32>,
    pub(crate) nice: Option<i32>,
    pub(crate) backend: Backend,
    pub(crate) shape: Shape,
    pub(crate) deliver_truncated: bool,
    pub(crate) service: S,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Arc<Stop>,
}

/// A worker that is ready to serve: its number and thread id.
pub(crate) type Ready = (usize, Result<i32, Error>);

impl<S: Service + 'static> Start<S> {
    /// Starts the thread. It reports to `ready` once it is where it belongs, then serves.
    pub(crate) fn spawn(self, ready: Sender<Ready>) -> io::Result<JoinHandle<io::Result<()>>> {
        thread::Builder::new().name(format!("linerate-{}", self.worker)).spawn(move || {
            let placed = self.place();
            let failed = placed.is_err();
            // Whoever waits for this may have given up already because another worker failed.
            let _ = ready.send((self.worker, placed));
            drop(ready);
            if failed { Ok(()) } else { self.serve() }
        })
    }

    fn place(&self) -> Result<i32, Error> {
        if let Some(cpu) = self.cpu {
            let what = "be pinned to its CPU";
            pin(cpu).map_err(|source| Error::Worker { worker: self.worker, what, source })?;
        }
        if let Some(nice) = self.nice {
            let what = "set its nice value (below the present one needs CAP_SYS_NICE)";
            set_nice(nice).map_err(|source| Error::Worker { worker: self.worker, what, source })?;
        }
        Ok(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// The buffers are made here and not before: memory lands on the NUMA node of the thread that first touches it.
    fn serve(mut self) -> io::Result<()> {
        let job = Job {
            socket: &self.socket,
            shape: self.shape,
            deliver_truncated: self.deliver_truncated,
            service: &mut self.service,
            counters: &self.counters,
            ending: Ending::new(&self.stop),
        };
        match self.backend {
            Backend::Recvfrom => backend::recvfrom::run(job),
            Backend::Mmsg { .. } => backend::mmsg::run(job),
        }
    }
}
