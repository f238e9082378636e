//! A running server.

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
use crate::overload::{AttachedGuard, GuardReport};
use crate::server::{Builder, Server, ServerSetup, setup_accessors};
use crate::service::Service;
use crate::shutdown::StopSignal;
use crate::socket::{Fallback, SocketReport};
use crate::sys::interface::{self, NetDevice};
use crate::worker::{ServiceFactory, WorkerStart};

/// A running server. Dropping it stops it, as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct RunningServer {
    setup: ServerSetup,
    // Shut down when the server stops. The workers own them, so a socket closes with its last worker, and the kernel gives
    // its requests to the other sockets instead of a queue that nobody reads.
    sockets: Vec<Weak<Socket>>,
    stop: Arc<StopSignal>,
    counters: Vec<Arc<SharedCounters>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    thread_ids: Vec<i32>,
}

impl Builder {
    /// [`prepare`](Self::prepare) and [`Server::start`] in one.
    ///
    /// # Errors
    /// Those of both.
    pub fn start<S: Service + 'static>(
        self,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<RunningServer, ServerError> {
        self.prepare()?.start(service)
    }
}

impl Server {
    /// Starts the workers, each with the service that `service` makes for its number. Returns when all of them run on their
    /// CPUs; if one fails, all are stopped. `service` is called again for a worker that is
    /// [restarted](Builder::restart_workers), then on that worker's thread.
    ///
    /// # Errors
    /// [`ServerError::Worker`]: a thread cannot be started, pinned, or given its nice value (below 0 requires
    /// `CAP_SYS_NICE`).
    pub fn start<S: Service + 'static>(
        self,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<RunningServer, ServerError> {
        let workers = self.assignments.len();
        let settings = Arc::new(self.settings);
        let service_factory: ServiceFactory<S> = Arc::new(Mutex::new(service));
        let mut running = RunningServer {
            setup: self.setup,
            sockets: self.bound,
            stop: Arc::new(StopSignal::new(settings.drain)),
            counters: (0..workers).map(|_| Arc::default()).collect(),
            threads: Vec::with_capacity(workers),
            thread_ids: vec![0; workers],
        };
        let (ready_sender, ready_reports) = mpsc::channel();
        for (worker, assignment) in self.assignments.into_iter().enumerate() {
            let start = WorkerStart {
                worker,
                assignment,
                settings: Arc::clone(&settings),
                service: service_factory.lock().unwrap_or_else(PoisonError::into_inner)(worker),
                restart_factory: settings.restart.then(|| Arc::clone(&service_factory)),
                counters: Arc::clone(&running.counters[worker]),
                stop: Arc::clone(&running.stop),
                credit: running.setup.guard.as_ref().map(AttachedGuard::credit),
            };
            let what = "start its thread";
            let thread = start.spawn(ready_sender.clone()).map_err(|source| ServerError::Worker {
                worker,
                what,
                source,
            })?;
            running.threads.push(thread);
        }
        drop(ready_sender);
        // Ends when every worker has reported. An early return drops `running`, which stops the others.
        for (worker, placement_result) in ready_reports {
            running.thread_ids[worker] = placement_result?;
        }
        Ok(running)
    }
}

/// Counts and setup of a server from start to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerReport {
    /// Counts of each worker.
    pub workers: Vec<Counts>,
    /// In bind order.
    pub sockets: Vec<SocketReport>,
    /// Settings that could not be applied.
    pub fallbacks: Vec<Fallback>,
    /// The guard and its counts; `None` without a guard.
    #[serde(default)]
    pub guard: Option<GuardReport>,
    /// The interfaces that AF_XDP served; `None` if it was not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpReport>,
}

impl ServerReport {
    /// Sum over all workers.
    #[must_use]
    pub fn total(&self) -> Counts {
        total_counts(&self.workers)
    }
}

impl RunningServer {
    setup_accessors!();

    /// Counts of each worker so far.
    #[must_use]
    pub fn counters(&self) -> Vec<Counts> {
        self.counters.iter().map(|counters| counters.snapshot()).collect()
    }

    /// Sum of the counts of all workers so far.
    #[must_use]
    pub fn total(&self) -> Counts {
        total_counts(&self.counters())
    }

    /// Frames that were dropped at the AF_XDP sockets because the workers took them too slowly
    /// (`XDP_STATISTICS`; before Linux 5.9 without those that found a ring full). `None` if AF_XDP
    /// is not in use.
    #[must_use]
    pub fn lost_frames(&self) -> Option<u64> {
        self.setup.xdp.as_ref()?;
        self.setup.xdp_sockets.iter().filter_map(Weak::upgrade).map(|socket| socket.lost_frames().ok()).sum()
    }

    /// The interfaces that are up, are not loopback, and have an address of the server; for a
    /// wildcard address all that are up and not loopback. Empty if the kernel does not list
    /// interfaces.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let brings_requests = |device: &NetDevice| {
            let mut served = self.setup.addresses.iter().map(|address| address.ip().to_canonical());
            device.up
                && !device.loopback
                && served.any(|ip| ip.is_unspecified() || device.addresses.contains(&ip))
        };
        let devices = interface::interfaces().unwrap_or_default();
        devices.into_iter().filter(brings_requests).map(|device| device.name).collect()
    }

    /// Thread id of each worker, as in `/proc/self/task`.
    #[must_use]
    pub fn thread_ids(&self) -> &[i32] {
        &self.thread_ids
    }

    /// Workers that ended before the server was stopped: their socket failed, or their service panicked with
    /// [`Builder::restart_workers`](crate::Builder::restart_workers) off. [`stop`](Self::stop) returns the error. If no other
    /// worker reads their socket, it is closed, and the kernel gives its requests to the other sockets; steering may then
    /// select other sockets than before.
    #[must_use]
    pub fn ended_workers(&self) -> Vec<usize> {
        self.threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| thread.is_finished())
            .map(|(worker, _)| worker)
            .collect()
    }

    /// Stops the server. Workers answer the requests at hand and those queued in their sockets, for at most
    /// [`Builder::drain_limit`](crate::Builder::drain_limit). Then the sockets are closed.
    ///
    /// # Errors
    /// The error or panic of the first worker that failed; the others ended in order.
    pub fn stop(mut self) -> Result<ServerReport, ServerError> {
        // The workers close their sockets.
        let lost_frames = self.lost_frames();
        self.join()?;
        Ok(ServerReport {
            guard: self.guard(),
            workers: self.counters(),
            sockets: std::mem::take(&mut self.setup.reports),
            fallbacks: std::mem::take(&mut self.setup.fallbacks),
            xdp: self.setup.xdp.take().map(|report| XdpReport { lost_frames, ..report }),
        })
    }

    fn join(&mut self) -> Result<(), ServerError> {
        self.stop.request();
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            // A blocked receiver of an unconnected socket wakes up although the call returns `ENOTCONN`
            // (net/ipv4/af_inet.c, inet_shutdown); queued datagrams can still be read.
            let _ = socket.shutdown(std::net::Shutdown::Read);
        }
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        let mut outcome = Ok(());
        for (worker, thread) in self.threads.drain(..).enumerate() {
            let worker_result = match thread.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(ServerError::Worker { worker, what: "go on receiving", source }),
                Err(panic) => Err(ServerError::Panicked { worker, message: panic_message(&*panic) }),
            };
            outcome = outcome.and(worker_result);
        }
        outcome
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // A drop cannot report an error; callers who need it call `join`.
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
