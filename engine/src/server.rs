//! Building a server: settings in, bound sockets out, then workers.

mod choices;
mod listener;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use crate::backend::{self, AfXdpSettings, XdpReport};
use crate::cpus;
use crate::error::ServerError;
use crate::overload::{self, AttachedGuard, GuardReport, HostAdvice, OverloadPolicy};
use crate::running::RunningServer;
use crate::service::Service;
use crate::socket::{Fallback, PathMtuDiscovery, SocketReport, SocketSetup};
use crate::steer::{self, CpuTable};
use crate::sys::batch::BatchShape;

pub use choices::{Backend, SocketMode, StrayRequests, WorkerPinning};
use listener::{BoundSockets, MulticastGroup};

/// Settings of a server. Made by [`Server::builder`]; only [`bind`](Self::bind) or [`adopt`](Self::adopt) must
/// be called.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    addresses: Vec<SocketAddr>,
    /// Shared, so that settings can be cloned.
    adopted: Vec<Arc<OwnedFd>>,
    groups: Vec<MulticastGroup>,
    workers: Option<usize>,
    sockets: SocketMode,
    pinning: WorkerPinning,
    cpus: Option<Vec<u32>>,
    stray: StrayRequests,
    backend: Backend,
    options: SocketSetup,
    join: bool,
    max_request: Option<usize>,
    max_reply: usize,
    deliver_truncated: bool,
    nice: Option<i32>,
    drain: Duration,
    restart_workers: bool,
    overload: OverloadPolicy,
    interfaces: Vec<String>,
}

impl Builder {
    fn new() -> Self {
        Self {
            addresses: Vec::new(),
            adopted: Vec::new(),
            groups: Vec::new(),
            workers: None,
            sockets: SocketMode::default(),
            pinning: WorkerPinning::default(),
            cpus: None,
            stray: StrayRequests::default(),
            backend: Backend::default(),
            options: SocketSetup::default(),
            join: false,
            max_request: None,
            max_reply: 2048,
            deliver_truncated: false,
            nice: None,
            drain: Duration::from_millis(250),
            restart_workers: true,
            overload: OverloadPolicy::default(),
            interfaces: Vec::new(),
        }
    }

    /// The address to serve on, instead of those that were given before. Port 0 takes a free one, the same for all sockets. On
    /// a wildcard address replies leave from the address their request came to.
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.addresses = vec![address];
        self
    }

    /// Another address to serve on, as with [`bind`](Self::bind); each call adds one. Each address has its own sockets and [`workers`](Self::workers), whose numbers go on from
    /// those of the address before, so that load on one address leaves the others their threads. AF_XDP serves the
    /// first address; the sockets serve the others.
    pub fn also_bind(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// A UDP socket to serve on that exists and is bound already: one of systemd's, one with options that this builder does
    /// not have, or one that is connected and so receives from one peer only. Each call adds a socket, which its own
    /// [`workers`](Self::workers) share; for a group of `SO_REUSEPORT` sockets that is one worker each. Sockets added here come
    /// after those that are bound. The server makes the socket blocking, for all who have it, and sets the options that it
    /// needs. The socket is closed once the server has stopped, unless you keep a duplicate. Default: none.
    pub fn adopt(mut self, socket: impl Into<OwnedFd>) -> Self {
        self.adopted.push(Arc::new(socket.into()));
        self
    }

    /// Joins a multicast group on the interface of this name (`IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP`). Each call adds a
    /// group. Takes an address of the group's family that is a wildcard, or the group itself. Each datagram comes to one
    /// worker of each such address: worker 0 for the first group, 1 for the second, and so on. The kernel would give a copy
    /// to every socket that shares the port, so groups that other programs joined are turned off for the server's sockets
    /// (`IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL`, Linux 4.20). Replies leave from an address of this host. Default: none.
    pub fn join_group(mut self, group: IpAddr, interface: impl Into<String>) -> Self {
        self.groups.push(MulticastGroup { group, interface: interface.into() });
        self
    }

    /// How many worker threads for each address. Default: as many as there are [`cpus`](Self::cpus).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How workers get at requests. Default: [`SocketMode::Reuseport`].
    pub fn sockets(mut self, sockets: SocketMode) -> Self {
        self.sockets = sockets;
        self
    }

    /// On which CPU each worker runs. Default: [`WorkerPinning::None`].
    pub fn pinning(mut self, pinning: WorkerPinning) -> Self {
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

    /// Where requests go that were processed on any other CPU. Default: [`StrayRequests::Hash`].
    pub fn stray(mut self, stray: StrayRequests) -> Self {
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

    /// The longest request in bytes, 1 to 65,535. Longer ones are counted as truncated and not delivered. Default: 2048;
    /// 65,535 with [`gro`](Self::gro).
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.max_request = Some(bytes);
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

    /// Whether each request comes with its TOS or traffic class, and so with ECN
    /// ([`Request::traffic_class`](crate::Request::traffic_class); `IP_RECVTOS`, `IPV6_RECVTCLASS`). Default: false.
    pub fn receive_traffic_class(mut self, wanted: bool) -> Self {
        self.options.traffic_class = wanted;
        self
    }

    /// Whether the kernel may deliver several datagrams of one sender as one request (`UDP_GRO`, Linux 5.0), which takes one
    /// pass through the stack instead of many where clients send bursts, as QUIC does.
    /// [`Request::datagrams`](crate::Request::datagrams) takes them apart, and the request counts as one. The reply of
    /// [`Action::Echo`](crate::Action::Echo) is cut as the request was;
    /// [`ReplyOptions::segment_bytes`](crate::ReplyOptions::segment_bytes) cuts others.
    /// AF_XDP delivers single datagrams. Default: false.
    pub fn gro(mut self, wanted: bool) -> Self {
        self.options.gro = wanted;
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
    /// ends, see [`RunningServer::ended_workers`]. In a program built with `panic = "abort"` a panic ends the program.
    pub fn restart_workers(mut self, restart: bool) -> Self {
        self.restart_workers = restart;
        self
    }

    /// What the server does above its capacity. Default: nothing of its own, see [`OverloadPolicy`].
    pub fn overload(mut self, policy: OverloadPolicy) -> Self {
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
    pub fn prepare(mut self) -> Result<Server, ServerError> {
        let plan = self.plan()?;
        if let Some(guard) = &self.overload.guard
            && self.options.receive_buffer.is_none()
        {
            self.options.receive_buffer = Some(overload::receive_buffer(guard.wait));
        }
        self.options.prefer_busy_poll = self.overload.prefer_busy_poll;
        let mut fallbacks = Vec::new();
        let mut backend = backend::available_backend(self.backend, &mut fallbacks);
        if let Some((name, why)) = self.unsupported_feature(backend) {
            fallbacks.push(Fallback { what: format!("{name}, mmsg is used instead"), why: why.to_owned() });
            backend = Backend::default();
        }
        let mut listeners = Vec::new();
        for address in &self.addresses {
            listeners.push(self.listen(*address, &plan, &mut fallbacks)?);
        }
        for socket in &self.adopted {
            listeners.push(BoundSockets::adopt(socket, &self.options, &mut fallbacks)?);
        }
        listener::join(&self.groups, &listeners)?;
        let first = listeners.first().map(|listener| listener.address).ok_or(ServerError::NoAddress)?;
        let mut xdp = None;
        if let Backend::Xdp(settings) = backend {
            let (only_v6, interfaces) = (self.options.only_v6, self.interfaces.as_slice());
            let placement = &plan.placement[..plan.workers];
            let wanted =
                backend::xdp::XdpServeOptions { settings, address: first, only_v6, interfaces, placement };
            xdp = backend::xdp::open(&wanted, &mut fallbacks);
            if xdp.is_none() {
                backend = Backend::default();
            } else if listeners.len() > 1 {
                let what = format!("AF_XDP at all addresses; sockets serve those after {first}");
                let why = "the AF_XDP backend serves the first address".to_owned();
                fallbacks.push(Fallback { what, why });
            }
        }
        let (mut sockets, mut reports, mut assignments) = (Vec::new(), Vec::new(), Vec::new());
        for listener in &mut listeners {
            let shape = BatchShape {
                messages: backend.messages(),
                request: self.request_bytes(),
                reply: self.max_reply,
                family: listener.address.into(),
                asked: self.options.asked(listener.address),
            };
            let (base, before) = (sockets.len(), assignments.len());
            reports.extend(listener.reports(before, &plan)?);
            sockets.extend(listener.sockets.drain(..).map(Arc::new));
            for worker in 0..plan.workers {
                let socket = base + worker % (sockets.len() - base);
                assignments.push(WorkerAssignment { socket, cpu: plan.placement[before + worker], shape });
            }
        }
        let adopted = self.adopted.len();
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.address).collect();
        let guard = self.guard(&addresses, backend, (&reports, assignments.len()), &mut fallbacks);
        let advice = self.advice(&addresses, &plan.placement);
        Ok(Server {
            addresses,
            bound: sockets.len() - adopted,
            sockets,
            reports,
            fallbacks,
            advice,
            assignments,
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

    /// Opens, binds and steers the sockets for an address.
    fn listen(
        &self,
        asked: SocketAddr,
        plan: &ServerPlan,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<BoundSockets, ServerError> {
        let several = self.sockets != SocketMode::Shared;
        if several && !self.join && asked.port() != 0 {
            self.options.check_free(asked)?;
        }
        let listener = BoundSockets::bind(asked, several.then_some(plan.workers), &self.options, fallbacks)?;
        if let (SocketMode::SteeredByCpu(program), Some(table)) = (self.sockets, &plan.table) {
            steer::attach(&listener.sockets, table, program)?;
        }
        Ok(listener)
    }

    /// A backend that cannot do what is asked of it, and what that is.
    fn unsupported_feature(&self, backend: Backend) -> Option<(&'static str, &'static str)> {
        match backend {
            Backend::Xdp(_) if self.addresses.is_empty() => {
                Some(("AF_XDP", "adopted sockets are served as such: Builder::bind gives it an address"))
            }
            _ => None,
        }
    }

    fn request_bytes(&self) -> usize {
        self.max_request.unwrap_or(if self.options.gro { 65_535 } else { 2048 })
    }

    /// The guard, if one was asked for and can be had.
    fn guard(
        &self,
        addresses: &[SocketAddr],
        backend: Backend,
        (reports, workers): (&[SocketReport], usize),
        fallbacks: &mut Vec<Fallback>,
    ) -> Option<AttachedGuard> {
        let guard = self.overload.guard.as_ref()?;
        let buffers: Vec<usize> = reports.iter().map(|report| report.receive_buffer_bytes).collect();
        let attached = match backend {
            Backend::Xdp(_) => {
                Err("AF_XDP takes the requests itself, and no more than its rings hold".to_owned())
            }
            _ => AttachedGuard::start(guard, self.overload.fairness, addresses, &buffers, workers),
        };
        let refused = |why| {
            fallbacks.push(Fallback { what: "a guard against overload; none is used".to_owned(), why });
        };
        attached.map_err(refused).ok()
    }

    /// What of the host would starve the workers of a server that has a policy for overload.
    fn advice(&self, addresses: &[SocketAddr], placement: &[Option<u32>]) -> Vec<HostAdvice> {
        let anywhere = cpus::allowed().unwrap_or_default();
        let cpus_of = |cpu: &Option<u32>| cpu.map_or_else(|| anywhere.clone(), |cpu| vec![cpu]);
        let workers: Vec<Vec<u32>> = placement.iter().map(cpus_of).collect();
        let polls = self.overload.prefer_busy_poll.is_some()
            && self.options.busy_poll.is_some_and(|time| !time.is_zero());
        let mut all = Vec::new();
        for address in addresses.iter().copied() {
            let overload = &self.overload;
            for advice in
                overload::advice(&overload::ServingThreads { address, overload, workers: &workers, polls })
            {
                if !all.contains(&advice) {
                    all.push(advice);
                }
            }
        }
        all
    }

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

    /// Everything that can be found wrong without opening a socket.
    fn plan(&self) -> Result<ServerPlan, ServerError> {
        let listeners = self.addresses.len() + self.adopted.len();
        if listeners == 0 {
            return Err(ServerError::NoAddress);
        }
        if let Backend::Mmsg { batch } = self.backend
            && !(1..=1024).contains(&batch)
        {
            return Err(ServerError::Batch { batch });
        }
        if let Backend::Xdp(AfXdpSettings { frames, batch, .. }) = self.backend {
            let limit = "a queue has a power of two of them, 128 to 65,536";
            check_size("a number of frames", frames as usize, 128..=65_536, limit)?;
            if !frames.is_power_of_two() {
                return Err(ServerError::Size { what: "a number of frames", value: frames as usize, limit });
            }
            let limit = "1 to 1024 requests are answered at once";
            check_size("an AF_XDP batch", usize::from(batch), 1..=1024, limit)?;
        }
        let datagram = "a UDP datagram has at most 65,535 bytes, and 0 would hold nothing";
        check_size("a max_request", self.request_bytes(), 1..=65_535, datagram)?;
        check_size("a max_reply", self.max_reply, 1..=65_535, datagram)?;
        let int = "the kernel takes at most 1,073,741,823 bytes, since it doubles them into an int";
        check_size("a receive buffer", self.options.receive_buffer.unwrap_or(0), 0..=(1 << 30) - 1, int)?;
        check_size("a send buffer", self.options.send_buffer.unwrap_or(0), 0..=(1 << 30) - 1, int)?;

        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => cpus::allowed().map_err(|source| ServerError::AllowedCpus { source })?,
        };
        if cpus.is_empty() {
            return Err(ServerError::NoCpu { purpose: "the workers" });
        }
        let workers = self.workers.unwrap_or(cpus.len());
        if workers == 0 {
            return Err(ServerError::NoWorkers);
        }
        let pinned = match &self.pinning {
            WorkerPinning::None => None,
            WorkerPinning::Own => Some(&cpus),
            WorkerPinning::Cpus(list) => Some(list),
        };
        let steered = matches!(self.sockets, SocketMode::SteeredByCpu(_));
        if steered && !self.adopted.is_empty() {
            return Err(ServerError::Adopted {
                why: "the server does not steer them: call steer::attach, and choose other Sockets",
            });
        }
        let placement = match pinned {
            None => vec![None; workers * listeners],
            Some(list) if list.is_empty() => return Err(ServerError::NoCpu { purpose: "pinning" }),
            Some(list) => {
                cpus::check(list)?;
                // Steering gives the CPUs to the workers of each address in the same way. Else the next address goes on with
                // those that are left.
                let place = |worker: usize| if steered { worker % workers } else { worker };
                (0..workers * listeners).map(|worker| Some(list[place(worker) % list.len()])).collect()
            }
        };
        let table = match self.sockets {
            SocketMode::SteeredByCpu(_) => Some(self.table(&cpus, workers)?),
            SocketMode::Shared | SocketMode::Reuseport if self.stray != StrayRequests::Hash => {
                return Err(ServerError::StrayUnsteered);
            }
            SocketMode::Shared | SocketMode::Reuseport => None,
        };
        Ok(ServerPlan { workers, placement, table })
    }

    fn table(&self, cpus: &[u32], workers: usize) -> Result<CpuTable, ServerError> {
        let mut different = cpus.to_vec();
        different.sort_unstable();
        different.dedup();
        if workers > different.len() {
            return Err(ServerError::MoreWorkersThanCpus { workers, cpus: different.len() });
        }
        let mut table =
            CpuTable::from_pairs(cpus.iter().enumerate().map(|(index, cpu)| (*cpu, index % workers)))?;
        let check = |worker: usize| {
            if worker < workers { Ok(worker) } else { Err(ServerError::StrayWorker { worker, workers }) }
        };
        match &self.stray {
            StrayRequests::Hash => {}
            StrayRequests::Worker(worker) => table.set_default(check(*worker)?)?,
            StrayRequests::Map(pairs) => {
                for (cpu, worker) in pairs {
                    if different.contains(cpu) {
                        return Err(ServerError::NotStray { cpu: *cpu });
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
) -> Result<(), ServerError> {
    if possible.contains(&value) { Ok(()) } else { Err(ServerError::Size { what, value, limit }) }
}

/// What settings come to.
struct ServerPlan {
    /// For each address.
    workers: usize,
    /// The CPU each worker of each address is pinned to.
    placement: Vec<Option<u32>>,
    table: Option<CpuTable>,
}

/// What a worker serves, and where.
#[derive(Debug)]
pub(crate) struct WorkerAssignment {
    /// Its place among the server's sockets.
    pub(crate) socket: usize,
    pub(crate) cpu: Option<u32>,
    pub(crate) shape: BatchShape,
}

/// A server whose sockets are bound and which answers nothing yet.
#[derive(Debug)]
#[must_use]
pub struct Server {
    /// At least one.
    pub(crate) addresses: Vec<SocketAddr>,
    /// How many of the sockets are the server's own; adopted ones follow.
    pub(crate) bound: usize,
    pub(crate) sockets: Vec<Arc<Socket>>,
    pub(crate) reports: Vec<SocketReport>,
    pub(crate) fallbacks: Vec<Fallback>,
    pub(crate) advice: Vec<HostAdvice>,
    pub(crate) assignments: Vec<WorkerAssignment>,
    pub(crate) backend: Backend,
    pub(crate) guard: Option<AttachedGuard>,
    pub(crate) overload: OverloadPolicy,
    pub(crate) xdp: Option<backend::xdp::OpenedXdp>,
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

    /// The address it is bound to, with the port that was given; the first of several.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All addresses it is bound to.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
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
    pub fn advice(&self) -> &[HostAdvice] {
        &self.advice
    }

    /// Its guard; none without one.
    #[must_use]
    pub fn guard(&self) -> Option<GuardReport> {
        self.guard.as_ref().map(AttachedGuard::report)
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
    /// [`ServerError::Worker`]: a thread that cannot be started, pinned, or given its nice value (below 0 takes `CAP_SYS_NICE`).
    pub fn start<S: Service + 'static>(
        self,
        service: impl FnMut(usize) -> S + Send + 'static,
    ) -> Result<RunningServer, ServerError> {
        RunningServer::start(self, service)
    }
}
