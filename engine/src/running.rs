//! A server at work.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use socket2::Socket;

use crate::backend::XdpReport;
use crate::counters::{Counts, SharedCounters};
use crate::error::ServerError;
use crate::overload::{AttachedGuard, GuardReport, HostAdvice};
use crate::server::Server;
use crate::service::Service;
use crate::socket::{Fallback, SocketReport};
use crate::sys::option::shutdown_receive;
use crate::worker::{ServiceFactory, StopSignal, WorkerStart};

/// A server at work. Dropping it stops it, as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct RunningServer {
    addresses: Vec<SocketAddr>,
    /// Those to shut down when it stops. The workers own them, so that a socket closes with the last worker that reads it: what it would have got then
    /// goes to the others, rather than into a queue that nobody reads.
    sockets: Vec<Weak<Socket>>,
    reports: Vec<SocketReport>,
    fallbacks: Vec<Fallback>,
    advice: Vec<HostAdvice>,
    guard: Option<AttachedGuard>,
    xdp: Option<XdpReport>,
    stop: Arc<StopSignal>,
    counters: Vec<Arc<SharedCounters>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    thread_ids: Vec<i32>,
}

/// What a server did from start to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerReport {
    /// By worker.
    pub workers: Vec<Counts>,
    /// Its sockets, in bind order.
    pub sockets: Vec<SocketReport>,
    /// What was asked for and could not be had.
    pub fallbacks: Vec<Fallback>,
    /// What its guard did; none without one.
    #[serde(default)]
    pub guard: Option<GuardReport>,
    /// What AF_XDP served; none where it was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpReport>,
}

impl ServerReport {
    /// All workers together.
    #[must_use]
    pub fn total(&self) -> Counts {
        total_counts(&self.workers)
    }
}

impl RunningServer {
    pub(crate) fn start<S: Service + 'static>(
        server: Server,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<Self, ServerError> {
        let workers = server.assignments.len();
        let maker: ServiceFactory<S> = Arc::new(Mutex::new(service));
        let (xdp, shares) = server.xdp.map(|opened| (opened.report, opened.shares)).unzip();
        let mut shares = shares.unwrap_or_default().into_iter();
        let mut running = Self {
            addresses: server.addresses,
            sockets: server.sockets[..server.bound].iter().map(Arc::downgrade).collect(),
            reports: server.reports,
            fallbacks: server.fallbacks,
            advice: server.advice,
            guard: server.guard,
            xdp,
            stop: Arc::new(StopSignal::new(server.drain)),
            counters: (0..workers).map(|_| Arc::default()).collect(),
            threads: Vec::with_capacity(workers),
            thread_ids: vec![0; workers],
        };
        let (ready, reports) = mpsc::channel();
        for (worker, assignment) in server.assignments.into_iter().enumerate() {
            let start = WorkerStart {
                worker,
                socket: Arc::clone(&server.sockets[assignment.socket]),
                cpu: assignment.cpu,
                nice: server.nice,
                backend: server.backend,
                xdp: shares.next().flatten(),
                shape: assignment.shape,
                deliver_truncated: server.deliver_truncated,
                service: maker.lock().unwrap_or_else(PoisonError::into_inner)(worker),
                maker: server.restart_workers.then(|| Arc::clone(&maker)),
                counters: Arc::clone(&running.counters[worker]),
                stop: Arc::clone(&running.stop),
                overload: server.overload.clone(),
                credit: running.guard.as_ref().map(AttachedGuard::credit),
            };
            let what = "start its thread";
            let thread =
                start.spawn(ready.clone()).map_err(|source| ServerError::Worker { worker, what, source })?;
            running.threads.push(thread);
        }
        drop((ready, server.sockets));
        // Ends when every worker has reported. An early return drops `running`, which stops those that serve.
        for (worker, placed) in reports {
            running.thread_ids[worker] = placed?;
        }
        Ok(running)
    }

    /// The address it serves on; the first of several.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All addresses it serves on.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What each worker did so far.
    #[must_use]
    pub fn counters(&self) -> Vec<Counts> {
        self.counters.iter().map(|counters| counters.snapshot()).collect()
    }

    /// What all workers did so far.
    #[must_use]
    pub fn total(&self) -> Counts {
        total_counts(&self.counters())
    }

    /// Its sockets, in bind order.
    #[must_use]
    pub fn sockets(&self) -> &[SocketReport] {
        &self.reports
    }

    /// What was asked for and could not be had.
    #[must_use]
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// What of the host's settings starves its workers above capacity, or has packets lost before its guard, if a policy for
    /// that was set ([`Builder::overload`](crate::Builder::overload)). The server leaves them as they are.
    #[must_use]
    pub fn advice(&self) -> &[HostAdvice] {
        &self.advice
    }

    /// What its guard did so far; none without one.
    #[must_use]
    pub fn guard(&self) -> Option<GuardReport> {
        self.guard.as_ref().map(AttachedGuard::report)
    }

    /// What AF_XDP serves; none where it is not used.
    #[must_use]
    pub fn xdp(&self) -> Option<&XdpReport> {
        self.xdp.as_ref()
    }

    /// Thread id of each worker, as in `/proc/self/task`.
    #[must_use]
    pub fn thread_ids(&self) -> &[i32] {
        &self.thread_ids
    }

    /// Workers that ended without being asked to: their socket broke, or their service panicked where
    /// [`Builder::restart_workers`](crate::Builder::restart_workers) is off. [`stop`](Self::stop) tells why. A socket that only they read is closed; the kernel gives its requests to those that are left, where
    /// they may be steered to another than before.
    #[must_use]
    pub fn ended_workers(&self) -> Vec<usize> {
        self.threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| thread.is_finished())
            .map(|(worker, _)| worker)
            .collect()
    }

    /// Stops the server: what was taken from a socket is answered, and so is what is queued there now, for at most
    /// [`Builder::drain_limit`](crate::Builder::drain_limit). Then waits for the workers to end and closes the sockets.
    ///
    /// # Errors
    /// That of the first worker that did not end well, by a failed call or a panic; the others have ended in good order.
    pub fn stop(mut self) -> Result<ServerReport, ServerError> {
        self.join()?;
        Ok(ServerReport {
            guard: self.guard(),
            workers: self.counters(),
            sockets: std::mem::take(&mut self.reports),
            fallbacks: std::mem::take(&mut self.fallbacks),
            xdp: self.xdp.take(),
        })
    }

    fn join(&mut self) -> Result<(), ServerError> {
        self.stop.request();
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            shutdown_receive(&*socket);
        }
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        let mut outcome = Ok(());
        for (worker, thread) in self.threads.drain(..).enumerate() {
            let ended = match thread.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(ServerError::Worker { worker, what: "go on receiving", source }),
                Err(panic) => Err(ServerError::Panicked { worker, message: panic_message(&*panic) }),
            };
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.join();
    }
}

fn total_counts(workers: &[Counts]) -> Counts {
    let mut total = Counts::default();
    for counts in workers {
        total += *counts;
    }
    total
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
