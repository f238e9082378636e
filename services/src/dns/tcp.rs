//! DNS over TCP (RFC 7766): a few threads, each with a listener. The kernel spreads connections over
//! them by hash.

mod connection;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::{DnsAnswerer, ServedZones};
use connection::{ConnectionWait, TcpAnswering, TcpConnection};

/// Interval of the search for idle connections.
const TICK: Duration = Duration::from_millis(500);
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

#[derive(Debug, Clone)]
pub struct TcpSettings {
    pub bind: SocketAddr,
    /// Each thread has a listener.
    pub threads: usize,
    /// Most connections of all threads together. New connections above this number are closed.
    pub connections: usize,
    /// A connection is closed after this time without a complete query or reply.
    pub idle: Duration,
    /// Do not serve IPv4 on an IPv6 address.
    pub only_v6: bool,
}

impl TcpSettings {
    /// Two threads, 256 connections, 10 s.
    #[must_use]
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind, threads: 2, connections: 256, idle: Duration::from_secs(10), only_v6: false }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    #[error("TCP on {address}: {what} failed: {source}")]
    Listen { address: SocketAddr, what: &'static str, source: io::Error },
    #[error(
        "not permitted to bind TCP on {address}: ports below net.ipv4.ip_unprivileged_port_start (1024) need \
         CAP_NET_BIND_SERVICE; grant it (`setcap cap_net_bind_service=ep` on the program, or AmbientCapabilities= \
         of its unit), or take a higher port"
    )]
    NotPermitted { address: SocketAddr },
    #[error("TCP on {address}: another program uses the port; `ss -ltnp 'sport = :{}'` names it", address.port())]
    InUse { address: SocketAddr },
    #[error("TCP on {address}: no interface here has the address; `ip address` lists those that exist")]
    NotLocal { address: SocketAddr },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TcpCounts {
    pub accepted: u64,
    /// Connections closed because of their number or source.
    pub refused: u64,
    /// Queries.
    pub answered: u64,
}

#[derive(Debug, Default)]
struct TcpShared {
    stop: AtomicBool,
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    answered: AtomicU64,
}

/// A running TCP server; it ends when this is dropped.
#[derive(Debug)]
pub struct TcpServer {
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
    /// Written once, and never read, so that it wakes all threads.
    wake: Arc<rustix::fd::OwnedFd>,
    shared: Arc<TcpShared>,
}

/// Whether an address may connect.
pub type ConnectionFilter = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

impl TcpServer {
    /// # Errors
    /// The port cannot be bound, or a thread cannot be started.
    pub fn start(
        settings: &TcpSettings,
        served_zones: &Arc<ServedZones>,
        admits: &ConnectionFilter,
    ) -> Result<Self, TcpError> {
        let threads = settings.threads.max(1);
        let mut address = settings.bind;
        let mut listeners = Vec::new();
        let bind_error = |(what, source): (&'static str, io::Error)| match what {
            "bind" if source.kind() == io::ErrorKind::PermissionDenied => {
                TcpError::NotPermitted { address: settings.bind }
            }
            "bind" | "listen" if source.kind() == io::ErrorKind::AddrInUse => {
                TcpError::InUse { address: settings.bind }
            }
            "bind" if source.kind() == io::ErrorKind::AddrNotAvailable => {
                TcpError::NotLocal { address: settings.bind }
            }
            _ => TcpError::Listen { address: settings.bind, what, source },
        };
        // SO_REUSEPORT alone would join the listeners of another process of the same user.
        bind(address, settings.only_v6, false).map_err(bind_error)?;
        for _ in 0..threads {
            let listener = bind(address, settings.only_v6, true)
                .and_then(|socket| socket.listen(1024).map(|()| socket).map_err(|error| ("listen", error)))
                .map_err(bind_error)?;
            let bound_address = listener.local_addr().map(|bound_address| bound_address.as_socket());
            address = bound_address.ok().flatten().unwrap_or(address);
            listeners.push(listener);
        }
        let listen_error = |what| move |source| TcpError::Listen { address, what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| listen_error("eventfd")(error.into()))?;
        let mut server = Self { address, threads: Vec::new(), wake: Arc::new(wake), shared: Arc::default() };
        for (number, listener) in listeners.into_iter().enumerate() {
            let mut thread = TcpThread {
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                    .map_err(|error| listen_error("epoll_create1")(error.into()))?,
                listener,
                wake: Arc::clone(&server.wake),
                connections: Vec::new(),
                free: Vec::new(),
                answerer: DnsAnswerer::new(Arc::clone(served_zones)),
                reply: vec![0; usize::from(u16::MAX)],
                admits: Arc::clone(admits),
                shared: Arc::clone(&server.shared),
                most: settings.connections as u64,
                idle: settings.idle,
            };
            thread.watch(thread.listener.as_fd(), LISTENER).map_err(listen_error("epoll_ctl"))?;
            thread.watch(thread.wake.as_fd(), WAKE).map_err(listen_error("epoll_ctl"))?;
            let spawn_result =
                std::thread::Builder::new().name(format!("dns-tcp-{number}")).spawn(move || thread.run());
            server.threads.push(spawn_result.map_err(listen_error("starting a thread"))?);
        }
        Ok(server)
    }

    /// With the port that the kernel chose for port 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn counts(&self) -> TcpCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TcpCounts {
            accepted: load(&self.shared.accepted),
            refused: load(&self.shared.refused),
            answered: load(&self.shared.answered),
        }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Fails only if the counter is full.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // The runtime has printed a panic of the thread, and a drop cannot report it.
            let _ = thread.join();
        }
    }
}

fn bind(address: SocketAddr, only_v6: bool, shares_port: bool) -> Result<Socket, (&'static str, io::Error)> {
    let step_error = |what| move |source| (what, source);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))
        .map_err(step_error("socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6).map_err(step_error("IPV6_V6ONLY"))?;
    }
    // Connections of an earlier server may still be closing.
    socket.set_reuse_address(true).map_err(step_error("SO_REUSEADDR"))?;
    socket.set_reuse_port(shares_port).map_err(step_error("SO_REUSEPORT"))?;
    socket.bind(&address.into()).map_err(step_error("bind"))?;
    Ok(socket)
}

struct TcpThread {
    epoll: rustix::fd::OwnedFd,
    listener: Socket,
    wake: Arc<rustix::fd::OwnedFd>,
    /// By their number in epoll.
    connections: Vec<Option<TcpConnection>>,
    free: Vec<usize>,
    answerer: DnsAnswerer,
    reply: Vec<u8>,
    admits: ConnectionFilter,
    shared: Arc<TcpShared>,
    most: u64,
    idle: Duration,
}

impl TcpThread {
    fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?)
    }

    fn run(&mut self) {
        let tick = Timespec::try_from(TICK).ok();
        let mut last_sweep = Instant::now();
        let mut events = Vec::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            events.clear();
            // Only a signal can make this fail.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), tick.as_ref());
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKE => {}
                    number => self.serve(number as usize),
                }
            }
            if last_sweep.elapsed() >= TICK {
                last_sweep = Instant::now();
                self.sweep(last_sweep);
            }
        }
        let open = self.connections.iter().flatten().count() as u64;
        self.shared.open.fetch_sub(open, Ordering::Relaxed);
    }

    fn accept(&mut self) {
        loop {
            let (socket, address) = match self.listener.accept() {
                Ok(connection) => connection,
                Err(error) => {
                    // Without descriptors or memory the connection stays queued, and epoll reports it again at once.
                    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
            };
            let is_admitted =
                address.as_socket().is_some_and(|client| (self.admits)(client.ip().to_canonical()));
            let has_room = self.shared.open.load(Ordering::Relaxed) < self.most;
            if !is_admitted || !has_room || socket.set_nonblocking(true).is_err() {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // Without the option, small replies may be delayed (Nagle's algorithm), but they still
            // arrive.
            let _ = socket.set_tcp_nodelay(true);
            let number = self.free.pop().unwrap_or(self.connections.len());
            if self.watch(socket.as_fd(), number as u64).is_err() {
                self.free.push(number);
                continue;
            }
            if number == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[number] = Some(TcpConnection::new(socket, Instant::now()));
            self.shared.open.fetch_add(1, Ordering::Relaxed);
            self.shared.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn serve(&mut self, number: usize) {
        let Some(Some(connection)) = self.connections.get_mut(number) else { return };
        let mut answering = TcpAnswering {
            answerer: &mut self.answerer,
            reply: &mut self.reply,
            answered: &self.shared.answered,
        };
        let wait = connection.process(&mut answering, Instant::now());
        let events = match wait {
            ConnectionWait::Read => epoll::EventFlags::IN,
            ConnectionWait::Write => epoll::EventFlags::OUT,
            ConnectionWait::End => return self.close(number),
        };
        if events != connection.events {
            connection.events = events;
            let data = epoll::EventData::new_u64(number as u64);
            if epoll::modify(&self.epoll, connection.socket.as_fd(), data, events).is_err() {
                self.close(number);
            }
        }
    }

    // Closing removes a connection from epoll, too.
    fn close(&mut self, number: usize) {
        if self.connections[number].take().is_some() {
            self.free.push(number);
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn sweep(&mut self, now: Instant) {
        for number in 0..self.connections.len() {
            let is_idle = |connection: &TcpConnection| now.duration_since(connection.last) > self.idle;
            if self.connections[number].as_ref().is_some_and(is_idle) {
                self.close(number);
            }
        }
    }
}
