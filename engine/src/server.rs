//! Building a server: from settings to bound sockets and workers.

mod listener;
mod plan;
mod setup;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::Socket;

use crate::backend::{self, XdpReport};
use crate::error::ServerError;
use crate::overload::{self, AttachedGuard, GuardReport, OverloadPolicy};
use crate::socket::{Fallback, PathMtuDiscovery, SocketReport, SocketSetup};
use crate::steer;
use crate::sys::batch::BatchShape;
use crate::worker::{WorkerAssignment, WorkerSettings};

use crate::choices::{Backend, SocketMode, WorkerPinning};
use listener::{BoundSockets, MulticastGroup};
use setup::ServerPlan;
pub(crate) use setup::{ServerSetup, setup_accessors};

/// Settings of a server, from [`Server::builder`]. Only [`bind`](Self::bind) or [`adopt`](Self::adopt) is required.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    addresses: Vec<SocketAddr>,
    // Shared, so that settings can be cloned.
    adopted: Vec<Arc<OwnedFd>>,
    groups: Vec<MulticastGroup>,
    workers: Option<usize>,
    sockets: SocketMode,
    pinning: WorkerPinning,
    cpus: Option<Vec<u32>>,
    options: SocketSetup,
    join: bool,
    max_request: Option<usize>,
    max_reply: usize,
    worker: WorkerSettings,
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
            options: SocketSetup::default(),
            join: false,
            max_request: None,
            max_reply: 2048,
            worker: WorkerSettings {
                backend: Backend::default(),
                deliver_truncated: false,
                nice: None,
                drain: Duration::from_millis(250),
                restart: true,
                overload: OverloadPolicy::default(),
            },
            interfaces: Vec::new(),
        }
    }

    /// Serves this address, and no address that was set before. For port 0 the kernel chooses a free port, the same for all
    /// sockets. On a wildcard address, replies leave from the address to which the request was sent. The kernel copies
    /// broadcasts and multicasts to all sockets; one worker receives them (IPv6: Linux 4.20).
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.addresses = vec![address];
        self
    }

    /// Serves another address; each call adds one. Each address has its own sockets and [`workers`](Self::workers), so that
    /// load on one address does not take threads from the others. Workers are numbered in the order of the addresses. AF_XDP
    /// serves the first address, sockets serve the others.
    pub fn also_bind(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Serves an existing, bound UDP socket: from systemd, with options that this builder does not have, or connected to one
    /// peer. Each call adds a socket with its own [`workers`](Self::workers); for a group of `SO_REUSEPORT` sockets, set one
    /// worker. Adopted sockets are numbered after bound ones. The server makes the socket blocking, also for other owners,
    /// and sets the options that it needs. The socket is closed when the server stops, unless you keep a duplicate. Default:
    /// none.
    pub fn adopt(mut self, socket: impl Into<OwnedFd>) -> Self {
        self.adopted.push(Arc::new(socket.into()));
        self
    }

    /// Joins a multicast group on an interface (`IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP`). Each call adds a group. Requires
    /// [`bind`](Self::bind) with a wildcard address of the same family, or with the group. Each datagram reaches one worker
    /// of each such address: worker 0 for the first group, 1 for the second, and so on. The kernel would copy it to every
    /// socket that shares the port, so the server's sockets do not receive groups that other programs joined
    /// (`IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL`, Linux 4.20). Replies leave from an address of this host. Default: none.
    pub fn join_group(mut self, group: IpAddr, interface: impl Into<String>) -> Self {
        self.groups.push(MulticastGroup { group, interface: interface.into() });
        self
    }

    /// Number of worker threads per address. Default: that of the [`cpus`](Self::cpus).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How workers share sockets. Default: [`SocketMode::Reuseport`].
    pub fn sockets(mut self, sockets: SocketMode) -> Self {
        self.sockets = sockets;
        self
    }

    /// The CPU of each worker. Default: [`WorkerPinning::None`].
    pub fn pinning(mut self, pinning: WorkerPinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// The CPUs of the workers: worker `i` has `cpus[i % cpus.len()]`. With steering and fewer workers than CPUs, worker `i`
    /// receives the packets of every CPU whose index has the remainder `i`. Default: every CPU on which the calling thread
    /// may run, ascending. The kernel's hash selects the worker for packets that other CPUs process.
    pub fn cpus(mut self, cpus: impl Into<Vec<u32>>) -> Self {
        self.cpus = Some(cpus.into());
        self
    }

    /// How workers call the kernel. Default: [`Backend::Mmsg`] with batches of 64.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.worker.backend = backend;
        self
    }

    /// Handling of replies that are longer than the path's MTU. Default: [`PathMtuDiscovery::System`].
    pub fn path_mtu_discovery(mut self, discovery: PathMtuDiscovery) -> Self {
        self.options.path_mtu_discovery = discovery;
        self
    }

    /// How long a receive call polls the device before it sleeps (`SO_BUSY_POLL`, whole
    /// microseconds). Requires `CAP_NET_ADMIN`; without it the server does not poll, and
    /// [`Server::fallbacks`] reports it. Default: the system's (`net.core.busy_read`).
    pub fn busy_poll(mut self, duration: Option<Duration>) -> Self {
        self.options.busy_poll = duration;
        self
    }

    /// Bytes of receive buffer per socket. The kernel doubles it, see [`SocketReport::receive_buffer_bytes`]. More than
    /// `net.core.rmem_max` requires `CAP_NET_ADMIN`; [`Server::fallbacks`] reports a smaller buffer. Default: the system's.
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.options.receive_buffer = Some(bytes);
        self
    }

    /// Bytes of send buffer per socket, limited by `net.core.wmem_max` in the same way.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.options.send_buffer = Some(bytes);
        self
    }

    /// Whether a server on an IPv6 wildcard address serves IPv6 only. Default: false, it serves IPv4, too.
    pub fn only_v6(mut self, enabled: bool) -> Self {
        self.options.only_v6 = enabled;
        self
    }

    /// Whether to share the port with another process of the same user, for a hand-over without a gap. The kernel spreads
    /// requests over all sockets, and steering applies to all of them. Requires [`SocketMode::Reuseport`], or steering by an
    /// eBPF program. Default: false, the port must be free.
    pub fn join(mut self, join: bool) -> Self {
        self.join = join;
        self
    }

    /// Bytes of the longest request, 1 to 65,535. Longer requests are counted as truncated and not delivered. Default: 2048,
    /// or 65,535 with [`gro`](Self::gro).
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.max_request = Some(bytes);
        self
    }

    /// Bytes of the longest reply, 1 to 65,535: the size of the service's buffer. Default: 2048.
    pub fn max_reply(mut self, bytes: usize) -> Self {
        self.max_reply = bytes;
        self
    }

    /// Whether requests above [`max_request`](Self::max_request) are delivered without their end, for protocols that answer
    /// them with an error. Default: false.
    pub fn deliver_truncated(mut self, enabled: bool) -> Self {
        self.worker.deliver_truncated = enabled;
        self
    }

    /// Whether requests have a receive time ([`Request::receive_time`](crate::Request::receive_time)). The kernel then takes
    /// the time of every packet of this network namespace. Default: false.
    pub fn receive_times(mut self, enabled: bool) -> Self {
        self.options.receive_times = enabled;
        self
    }

    /// Whether requests have their TOS or traffic class, which includes ECN
    /// ([`Request::traffic_class`](crate::Request::traffic_class); `IP_RECVTOS`, `IPV6_RECVTCLASS`). Default: false.
    pub fn receive_traffic_class(mut self, enabled: bool) -> Self {
        self.options.traffic_class = enabled;
        self
    }

    /// Whether the kernel may deliver several datagrams of one sender as one request (`UDP_GRO`, Linux 5.0). This saves passes
    /// through the stack if clients send bursts, as with QUIC. [`Request::datagrams`](crate::Request::datagrams) separates
    /// the datagrams; the request counts as one. [`Action::Echo`](crate::Action::Echo) replies in the same segments;
    /// [`ReplyOptions::segment_bytes`](crate::ReplyOptions::segment_bytes) sets those of other replies. AF_XDP delivers single
    /// datagrams. Default: false.
    pub fn gro(mut self, enabled: bool) -> Self {
        self.options.gro = enabled;
        self
    }

    /// Nice value of the worker threads, -20 to 19. Default: unchanged.
    pub fn nice(mut self, nice: i32) -> Self {
        self.worker.nice = Some(nice);
        self
    }

    /// How long a stopping server answers requests that are queued in its sockets. Default: 250 ms.
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.worker.drain = limit;
        self
    }

    /// Whether a worker restarts after a panic of its service, on the same thread and socket, with a new service. The requests
    /// that it had taken are lost ([`Counts::panicked`](crate::Counts::panicked)). Requests in the socket wait for 10 ms, and
    /// twice as long after each further panic, up to one second; 10 s without a panic reset the wait.
    /// [`Counts::restarts`](crate::Counts::restarts) has the number of restarts. Default: true. If false, the worker ends,
    /// see [`RunningServer::ended_workers`](crate::RunningServer::ended_workers). In a program built with `panic = "abort"`, a
    /// panic ends the program.
    pub fn restart_workers(mut self, enabled: bool) -> Self {
        self.worker.restart = enabled;
        self
    }

    /// Handling of load above the capacity. Default: none, see [`OverloadPolicy`].
    pub fn overload(mut self, policy: OverloadPolicy) -> Self {
        self.worker.overload = policy;
        self
    }

    /// The interfaces whose queues [`Backend::Xdp`] serves. Default: interfaces that are up, not
    /// loopback, and have the bound address; for a wildcard address, all interfaces with an address
    /// of its family, except ports of such a bridge or bond, and veths with a link-local address
    /// only.
    pub fn xdp_interfaces(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.interfaces = names.into_iter().map(Into::into).collect();
        self
    }

    /// Checks the settings, opens and binds the sockets and steers them. From then on requests
    /// queue; no request is answered before [`Server::start`]. Privileges for ports, buffers and
    /// eBPF are required here and not later; a lower [`nice`](Self::nice) requires `CAP_SYS_NICE` at the start.
    ///
    /// # Errors
    /// Settings that contradict each other or do not fit this machine, a port or an address that is
    /// not available, steering that cannot be attached. A missing optional feature is no error:
    /// [`Server::fallbacks`] reports it.
    pub fn prepare(mut self) -> Result<Server, ServerError> {
        let plan = self.plan()?;
        if let Some(guard) = &self.worker.overload.guard
            && self.options.receive_buffer.is_none()
        {
            self.options.receive_buffer = Some(overload::receive_buffer(guard.wait));
        }
        let mut fallbacks = Vec::new();
        let mut backend = backend::available_backend(self.worker.backend, &mut fallbacks);
        if matches!(backend, Backend::Xdp(_)) && self.addresses.is_empty() {
            let why = "adopted sockets are served as such: Builder::bind gives it an address";
            fallbacks.push(Fallback { what: "AF_XDP, mmsg is used instead".to_owned(), why: why.to_owned() });
            backend = Backend::default();
        }
        let mut listeners = Vec::new();
        for address in &self.addresses {
            listeners.push(self.listen(*address, &plan, &mut fallbacks)?);
        }
        for socket in &self.adopted {
            listeners.push(BoundSockets::adopt(socket, &self.options, &mut fallbacks)?);
        }
        listener::join_groups(&self.groups, &listeners)?;
        let first_address = listeners[0].address;
        let mut xdp = None;
        if let Backend::Xdp(settings) = backend {
            let (only_v6, interfaces) = (self.options.only_v6, self.interfaces.as_slice());
            let placement = &plan.placement[..plan.workers];
            let serve_options = backend::xdp::XdpServeOptions {
                settings,
                address: first_address,
                only_v6,
                interfaces,
                placement,
            };
            xdp = backend::xdp::open(&serve_options, &mut fallbacks);
            if xdp.is_none() {
                backend = Backend::default();
            } else if listeners.len() > 1 {
                let what = format!("AF_XDP at all addresses; sockets serve those after {first_address}");
                let why = "the AF_XDP backend serves the first address".to_owned();
                fallbacks.push(Fallback { what, why });
            }
        }
        let (xdp, queues, xdp_sockets) =
            xdp.map(|opened| (Some(opened.report), opened.shares, opened.sockets)).unwrap_or_default();
        let mut queues = queues.into_iter();
        let (mut sockets, mut reports, mut assignments) = (Vec::new(), Vec::new(), Vec::new());
        for listener in &mut listeners {
            let shape = BatchShape {
                messages: backend.messages(),
                request: self.request_bytes(),
                reply: self.max_reply,
                family: listener.address.into(),
                asked: self.options.control_request(listener.address),
            };
            let (first_socket, first_worker) = (sockets.len(), assignments.len());
            reports.extend(listener.reports(first_worker, &plan)?);
            sockets.extend(listener.sockets.drain(..).map(Arc::new));
            for worker in 0..plan.workers {
                let socket = first_socket + worker % (sockets.len() - first_socket);
                assignments.push(WorkerAssignment {
                    socket: Arc::clone(&sockets[socket]),
                    cpu: plan.placement[first_worker + worker],
                    queues: queues.next().flatten(),
                    shape,
                    skips_broadcasts: socket > first_socket,
                });
            }
        }
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.address).collect();
        let guard = self.guard(&addresses, backend, (&reports, assignments.len()), &mut fallbacks);
        sockets.truncate(sockets.len() - self.adopted.len());
        Ok(Server {
            setup: ServerSetup { addresses, reports, fallbacks, guard, xdp, xdp_sockets },
            bound: sockets.iter().map(Arc::downgrade).collect(),
            assignments,
            settings: WorkerSettings { backend, ..self.worker },
        })
    }

    /// Opens, binds and steers the sockets for an address.
    fn listen(
        &self,
        address: SocketAddr,
        plan: &ServerPlan,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<BoundSockets, ServerError> {
        let uses_several = self.sockets != SocketMode::Shared;
        if uses_several && !self.join && address.port() != 0 {
            self.options.check_free(address)?;
        }
        let listener =
            BoundSockets::bind(address, uses_several.then_some(plan.workers), &self.options, fallbacks)?;
        if let (SocketMode::SteeredByCpu(program), Some(table)) = (self.sockets, &plan.table) {
            steer::attach(&listener.sockets, table, program)?;
        }
        Ok(listener)
    }

    fn request_bytes(&self) -> usize {
        self.max_request.unwrap_or(if self.options.gro { 65_535 } else { 2048 })
    }

    /// The guard, if it is configured and can be attached.
    fn guard(
        &self,
        addresses: &[SocketAddr],
        backend: Backend,
        (reports, workers): (&[SocketReport], usize),
        fallbacks: &mut Vec<Fallback>,
    ) -> Option<AttachedGuard> {
        let overload = &self.worker.overload;
        let guard = overload.guard.as_ref()?;
        let buffers: Vec<usize> = reports.iter().map(|report| report.receive_buffer_bytes).collect();
        let guard_result = match backend {
            Backend::Xdp(_) => {
                Err("AF_XDP receives the requests itself, and no more than its rings hold".to_owned())
            }
            _ => AttachedGuard::start(
                guard,
                overload.fairness,
                addresses,
                self.options.only_v6,
                &buffers,
                workers,
                fallbacks,
            ),
        };
        let add_fallback = |why| {
            fallbacks.push(Fallback { what: "a guard against overload; none is used".to_owned(), why });
        };
        guard_result.map_err(add_fallback).ok()
    }
}

/// A server whose sockets are bound and which does not answer requests yet.
#[derive(Debug)]
#[must_use]
pub struct Server {
    pub(crate) setup: ServerSetup,
    /// The sockets that the server bound; adopted sockets are those of the workers only.
    pub(crate) bound: Vec<Weak<Socket>>,
    pub(crate) assignments: Vec<WorkerAssignment>,
    pub(crate) settings: WorkerSettings,
}

impl Server {
    /// Default settings.
    pub fn builder() -> Builder {
        Builder::new()
    }

    setup_accessors!();
}
