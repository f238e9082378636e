//! Building a server: settings in, bound sockets out, then workers.

mod choices;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use crate::backend::{self, Xdp, XdpReport};
use crate::cpus;
use crate::error::Error;
use crate::overload::{self, Advice, Attached, GuardReport, Overload};
use crate::running::Running;
use crate::service::Service;
use crate::socket::{self, Fallback, Options, PathMtuDiscovery, SocketReport};
use crate::steer::{self, Table};
use crate::sys::batch::Shape;
use crate::sys::control::Asked;

pub use choices::{Backend, Pinning, Sockets, Stray};

/// Settings of a server. Made by [`Server::builder`]; only [`bind`](Self::bind) must be called.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    address: Option<SocketAddr>,
    workers: Option<usize>,
    sockets: Sockets,
    pinning: Pinning,
    cpus: Option<Vec<u32>>,
    stray: Stray,
    backend: Backend,
    options: Options,
    join: bool,
    max_request: usize,
    max_reply: usize,
    deliver_truncated: bool,
    nice: Option<i32>,
    drain: Duration,
    restart_workers: bool,
    overload: Overload,
    interfaces: Vec<String>,
}

impl Builder {
    fn new() -> Self {
        Self {
            address: None,
            workers: None,
            sockets: Sockets::default(),
            pinning: Pinning::default(),
            cpus: None,
            stray: Stray::default(),
            backend: Backend::default(),
            options: Options::default(),
            join: false,
            max_request: 2048,
            max_reply: 2048,
            deliver_truncated: false,
            nice: None,
            drain: Duration::from_millis(250),
            restart_workers: true,
            overload: Overload::default(),
            interfaces: Vec::new(),
        }
    }

    /// The address to serve on. Port 0 takes a free one, the same for all sockets. On a wildcard address replies
    /// leave from the address their request came to.
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// How many worker threads. Default: as many as there are [`cpus`](Self::cpus).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How workers get at requests. Default: [`Sockets::Reuseport`].
    pub fn sockets(mut self, sockets: Sockets) -> Self {
        self.sockets = sockets;
        self
    }

    /// On which CPU each worker runs. Default: [`Pinning::None`].
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// The CPUs the workers belong to, in the order of the workers: worker `i` has `cpus[i % cpus.len()]`. With
    /// steering, those left over when there are fewer workers are dealt out in turn. Default: every CPU the
    /// calling thread may run on, ascending.
    pub fn cpus(mut self, cpus: impl Into<Vec<u32>>) -> Self {
        self.cpus = Some(cpus.into());
        self
    }

    /// Where requests go that were processed on any other CPU. Default: [`Stray::Hash`].
    pub fn stray(mut self, stray: Stray) -> Self {
        self.stray = stray;
        self
    }

    /// How workers call the kernel. Default: [`Backend::Mmsg`] with batches of 64.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// What is done with replies that do not fit the path. Default: [`PathMtuDiscovery::System`].
    pub fn path_mtu_discovery(mut self, discovery: PathMtuDiscovery) -> Self {
        self.options.path_mtu_discovery = discovery;
        self
    }

    /// How long a receive that finds nothing polls the device itself before it sleeps (`SO_BUSY_POLL`, whole
    /// microseconds). Needs `CAP_NET_ADMIN`; without it the server runs without and says so in
    /// [`Server::fallbacks`]. Default: as the system has it (`net.core.busy_read`).
    pub fn busy_poll(mut self, duration: Option<Duration>) -> Self {
        self.options.busy_poll = duration;
        self
    }

    /// Bytes of receive buffer a socket. The kernel doubles it, see [`SocketReport::receive_buffer_bytes`]. Past
    /// `net.core.rmem_max` only with `CAP_NET_ADMIN`; a smaller grant is noted in [`Server::fallbacks`]. Default: the
    /// system's.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.options.receive_buffer = Some(bytes);
        self
    }

    /// Bytes of send buffer a socket, in the same way, with `net.core.wmem_max`.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.options.send_buffer = Some(bytes);
        self
    }

    /// Whether a server on an IPv6 wildcard address leaves IPv4 alone. Default: false, it serves both.
    pub fn only_v6(mut self, only: bool) -> Self {
        self.options.only_v6 = only;
        self
    }

    /// Whether to join the sockets of another process of the same user that shares the port, for a hand-over
    /// without a gap. The kernel deals requests out over all of them, and attached steering is one for all. Default:
    /// false, the port must be free.
    pub fn join(mut self, join: bool) -> Self {
        self.join = join;
        self
    }

    /// The longest request in bytes, 1 to 65,535. Longer ones are counted as truncated and not delivered. Default: 2048.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.max_request = bytes;
        self
    }

    /// The longest reply in bytes, 1 to 65,535: the size of the buffer a service writes to. Default: 2048.
    pub fn max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = bytes;
        self
    }

    /// Whether requests over [`max_request`](Self::max_request) are delivered without their end, for protocols that
    /// can still answer them with an error. Default: false.
    pub fn deliver_truncated(mut self, deliver: bool) -> Self {
        self.deliver_truncated = deliver;
        self
    }

    /// Whether each request comes with the time at which it was received ([`Request::receive_time`](crate::Request::receive_time)),
    /// which the kernel then notes for every packet of this network namespace. Default: false.
    pub fn receive_times(mut self, wanted: bool) -> Self {
        self.options.receive_times = wanted;
        self
    }

    /// Nice value of the worker threads, -20 to 19. Default: untouched.
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = Some(nice);
        self
    }

    /// How long a stopping server goes on answering what is already queued in its sockets. Default: 250 ms.
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.drain = limit;
        self
    }

    /// Whether a worker whose service panics is started anew, on its thread and with its socket, with a service made for it
    /// as at the start. Requests that it had taken are lost ([`Counts::panicked`](crate::Counts::panicked)), those queued in
    /// the socket wait: 10 ms at first, twice as long with each panic that follows, up to a second; after 10 s without one
    /// it is 10 ms again. [`Counts::restarts`](crate::Counts::restarts) tells how often. Default: true. Without, the worker
    /// ends, see [`Running::ended`]. In a program built with `panic = "abort"` a panic ends the program.
    pub fn restart_workers(mut self, restart: bool) -> Self {
        self.restart_workers = restart;
        self
    }

    /// What the server does above its capacity. Default: nothing of its own, see [`Overload`].
    pub fn overload(mut self, policy: Overload) -> Self {
        self.overload = policy;
        self
    }

    /// The interfaces whose queues [`Backend::Xdp`] serves. Default: those that are up, not loopback, and have the address
    /// that is bound; at a wildcard address all that have any of its family.
    pub fn xdp_interfaces(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.interfaces = names.into_iter().map(Into::into).collect();
        self
    }

    /// Checks the settings, opens and binds the sockets and steers them. From then on requests queue; nothing
    /// answers them before [`Server::start`]. Privilege for ports, buffers and eBPF is needed here and not later.
    ///
    /// # Errors
    /// Settings that do not fit each other or this machine, a port or an address that cannot be had, steering that cannot be
    /// attached. What is asked for and can be done without is no error: [`Server::fallbacks`] tells it.
    pub fn prepare(mut self) -> Result<Server, Error> {
        let plan = self.plan()?;
        if let Some(guard) = &self.overload.guard
            && self.options.receive_buffer.is_none()
        {
            self.options.receive_buffer = Some(overload::receive_buffer(guard.outstanding));
        }
        self.options.prefer_busy_poll = self.overload.prefer_busy_poll;
        let asked = plan.address;
        let several = self.sockets != Sockets::Shared;
        if several && !self.join && asked.port() != 0 {
            self.options.check_free(asked)?;
        }
        let mut fallbacks = Vec::new();
        let first = self.options.open(asked, several, &mut fallbacks)?;
        let address = socket::local_address(&first, asked)?;
        let mut sockets = vec![first];
        while several && sockets.len() < plan.workers {
            sockets.push(self.options.open(address, true, &mut fallbacks)?);
        }
        if let (Sockets::SteeredByCpu(program), Some(table)) = (self.sockets, &plan.table) {
            steer::attach(&sockets, table, program)?;
        }
        let mut backend = backend::possible(self.backend, &mut fallbacks);
        let mut xdp = None;
        if let Backend::Xdp(settings) = backend {
            let (only_v6, interfaces) = (self.options.only_v6, self.interfaces.as_slice());
            let wanted =
                backend::xdp::Wanted { settings, address, only_v6, interfaces, placement: &plan.placement };
            xdp = backend::xdp::open(&wanted, &mut fallbacks);
            if xdp.is_none() {
                backend = Backend::default();
            }
        }
        let reports = sockets
            .iter()
            .enumerate()
            .map(|(index, socket)| {
                let (receive_buffer_bytes, send_buffer_bytes) = socket::buffers(socket, address)?;
                let workers = if several { vec![index] } else { (0..plan.workers).collect() };
                let cpus = plan.table.as_ref().map(|table| table.cpus_of(index)).unwrap_or_default();
                Ok(SocketReport { workers, cpus, receive_buffer_bytes, send_buffer_bytes })
            })
            .collect::<Result<Vec<SocketReport>, Error>>()?;
        let guard = self.guard(address, backend, (&reports, plan.workers), &mut fallbacks);
        let advice = self.advice(address, &plan.placement);
        Ok(Server {
            address,
            sockets: sockets.into_iter().map(Arc::new).collect(),
            reports,
            fallbacks,
            advice,
            placement: plan.placement,
            shape: Shape {
                messages: backend.messages(),
                request: self.max_request,
                reply: self.max_reply,
                family: address.into(),
                asked: Asked { pktinfo: socket::pktinfo_for(address), times: self.options.receive_times },
            },
            backend,
            guard,
            overload: self.overload,
            xdp,
            deliver_truncated: self.deliver_truncated,
            nice: self.nice,
            drain: self.drain,
            restart_workers: self.restart_workers,
        })
    }

    /// The guard, if one was asked for and can be had.
    fn guard(
        &self,
        address: SocketAddr,
        backend: Backend,
        (reports, workers): (&[SocketReport], usize),
        fallbacks: &mut Vec<Fallback>,
    ) -> Option<Attached> {
        let guard = self.overload.guard.as_ref()?;
        let buffers: Vec<usize> = reports.iter().map(|report| report.receive_buffer_bytes).collect();
        let attached = match backend {
            Backend::Xdp(_) => {
                Err("AF_XDP takes the requests itself, and no more than its rings hold".to_owned())
            }
            _ => Attached::start(guard, self.overload.fairness, address, &buffers, workers),
        };
        let refused = |why| {
            fallbacks.push(Fallback { what: "a guard against overload; none is used".to_owned(), why });
        };
        attached.map_err(refused).ok()
    }

    /// What of the host would starve the workers of a server that has a policy for overload.
    fn advice(&self, address: SocketAddr, placement: &[Option<u32>]) -> Vec<Advice> {
        let anywhere = cpus::allowed().unwrap_or_default();
        let cpus_of = |cpu: &Option<u32>| cpu.map_or_else(|| anywhere.clone(), |cpu| vec![cpu]);
        let workers: Vec<Vec<u32>> = placement.iter().map(cpus_of).collect();
        let polls = self.overload.prefer_busy_poll.is_some()
            && self.options.busy_poll.is_some_and(|time| !time.is_zero());
        overload::advice(&overload::Serving { address, overload: &self.overload, workers: &workers, polls })
    }

    /// [`prepare`](Self::prepare) and [`Server::start`] in one.
    ///
    /// # Errors
    /// Those of both.
    pub fn start<S: Service + 'static>(
        self,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<Running, Error> {
        self.prepare()?.start(service)
    }

    /// Everything that can be found wrong without opening a socket.
    fn plan(&self) -> Result<Plan, Error> {
        let address = self.address.ok_or(Error::NoAddress)?;
        if let Backend::Mmsg { batch } = self.backend
            && !(1..=1024).contains(&batch)
        {
            return Err(Error::Batch { batch });
        }
        if let Backend::Uring(settings) = self.backend {
            settings.check()?;
        }
        if let Backend::Xdp(Xdp { frames, batch, .. }) = self.backend {
            let limit = "a queue has a power of two of them, 128 to 65,536";
            check_size("a number of frames", frames as usize, 128..=65_536, limit)?;
            if !frames.is_power_of_two() {
                return Err(Error::Size { what: "a number of frames", value: frames as usize, limit });
            }
            let limit = "1 to 1024 requests are answered at once";
            check_size("an AF_XDP batch", usize::from(batch), 1..=1024, limit)?;
        }
        let datagram = "a UDP datagram has at most 65,535 bytes, and 0 would hold nothing";
        check_size("a max_request", self.max_request, 1..=65_535, datagram)?;
        check_size("a max_reply", self.max_reply, 1..=65_535, datagram)?;
        let int = "the kernel takes at most 1,073,741,823 bytes, since it doubles them into an int";
        check_size("a receive buffer", self.options.receive_buffer.unwrap_or(0), 0..=(1 << 30) - 1, int)?;
        check_size("a send buffer", self.options.send_buffer.unwrap_or(0), 0..=(1 << 30) - 1, int)?;

        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => {
                let what = "reading the CPUs this process may run on";
                cpus::allowed().map_err(|source| Error::Socket { what, address, source })?
            }
        };
        if cpus.is_empty() {
            return Err(Error::NoCpu { purpose: "the workers" });
        }
        let workers = self.workers.unwrap_or(cpus.len());
        if workers == 0 {
            return Err(Error::NoWorkers);
        }
        let pinned = match &self.pinning {
            Pinning::None => None,
            Pinning::Own => Some(&cpus),
            Pinning::Cpus(list) => Some(list),
        };
        let placement = match pinned {
            None => vec![None; workers],
            Some(list) if list.is_empty() => return Err(Error::NoCpu { purpose: "pinning" }),
            Some(list) => {
                cpus::check(list)?;
                list.iter().copied().map(Some).cycle().take(workers).collect()
            }
        };
        let table = match self.sockets {
            Sockets::SteeredByCpu(_) => Some(self.table(&cpus, workers)?),
            Sockets::Shared | Sockets::Reuseport if self.stray != Stray::Hash => {
                return Err(Error::StrayUnsteered);
            }
            Sockets::Shared | Sockets::Reuseport => None,
        };
        Ok(Plan { address, workers, placement, table })
    }

    fn table(&self, cpus: &[u32], workers: usize) -> Result<Table, Error> {
        let mut different = cpus.to_vec();
        different.sort_unstable();
        different.dedup();
        if workers > different.len() {
            return Err(Error::MoreWorkersThanCpus { workers, cpus: different.len() });
        }
        let mut table =
            Table::from_pairs(cpus.iter().enumerate().map(|(index, cpu)| (*cpu, index % workers)))?;
        let check = |worker: usize| {
            if worker < workers { Ok(worker) } else { Err(Error::StrayWorker { worker, workers }) }
        };
        match &self.stray {
            Stray::Hash => {}
            Stray::Worker(worker) => table.set_default(check(*worker)?)?,
            Stray::Map(pairs) => {
                for (cpu, worker) in pairs {
                    if different.contains(cpu) {
                        return Err(Error::NotStray { cpu: *cpu });
                    }
                    table.insert(*cpu, check(*worker)?)?;
                }
            }
        }
        Ok(table)
    }
}

fn check_size(
    what: &'static str,
    value: usize,
    possible: std::ops::RangeInclusive<usize>,
    limit: &'static str,
) -> Result<(), Error> {
    if possible.contains(&value) { Ok(()) } else { Err(Error::Size { what, value, limit }) }
}

/// What settings come to.
struct Plan {
    address: SocketAddr,
    workers: usize,
    /// The CPU each worker is pinned to.
    placement: Vec<Option<u32>>,
    table: Option<Table>,
}

/// A server whose sockets are bound and which answers nothing yet.
#[derive(Debug)]
#[must_use]
pub struct Server {
    pub(crate) address: SocketAddr,
    /// One for each worker, or one for all.
    pub(crate) sockets: Vec<Arc<Socket>>,
    pub(crate) reports: Vec<SocketReport>,
    pub(crate) fallbacks: Vec<Fallback>,
    pub(crate) advice: Vec<Advice>,
    pub(crate) placement: Vec<Option<u32>>,
    pub(crate) shape: Shape,
    pub(crate) backend: Backend,
    pub(crate) guard: Option<Attached>,
    pub(crate) overload: Overload,
    pub(crate) xdp: Option<backend::xdp::Opened>,
    pub(crate) deliver_truncated: bool,
    pub(crate) nice: Option<i32>,
    pub(crate) drain: Duration,
    pub(crate) restart_workers: bool,
}

impl Server {
    /// Settings to start from.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The address it is bound to, with the port that was given.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
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
    /// that was set ([`Builder::overload`]). The server leaves them as they are.
    #[must_use]
    pub fn advice(&self) -> &[Advice] {
        &self.advice
    }

    /// Its guard; none without one.
    #[must_use]
    pub fn guard(&self) -> Option<GuardReport> {
        self.guard.as_ref().map(Attached::report)
    }

    /// What AF_XDP serves; none where it is not used.
    #[must_use]
    pub fn xdp(&self) -> Option<&XdpReport> {
        self.xdp.as_ref().map(|opened| &opened.report)
    }

    /// Starts the workers, each with the service that `service` makes for its number. Returns once all of them are
    /// where they belong; if one fails, none is left running. `service` is called again for a worker that is
    /// [started anew](Builder::restart_workers), then on that worker's thread.
    ///
    /// # Errors
    /// [`Error::Worker`]: a thread that cannot be started, pinned, or given its nice value (below 0 takes `CAP_SYS_NICE`).
    pub fn start<S: Service + 'static>(
        self,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<Running, Error> {
        Running::start(self, service)
    }
}
