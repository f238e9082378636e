//! A UDP transaction server inside your process, and steering for your own event loop.
//!
//! A [`Service`] answers requests; a [`Server`] runs one instance of it on each worker thread. How the workers
//! share sockets, where they run and how they call the kernel is settable apart, so that each choice can be
//! measured on its own.
//!
//! ```
//! use linerate_engine::{Action, Backend, Server, SocketMode};
//!
//! let running = Server::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .workers(1)
//!     .sockets(SocketMode::Reuseport)
//!     .backend(Backend::Mmsg { batch: 64 })
//!     .start(|_worker| {
//!         |request: &linerate_engine::Request<'_>, reply: &mut [u8]| {
//!             let length = request.payload().len().min(reply.len());
//!             reply[..length].copy_from_slice(&request.payload()[..length]);
//!             reply[..length].reverse();
//!             Action::Reply(length)
//!         }
//!     })?;
//!
//! let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! client.send_to(b"abc", running.local_addr())?;
//! let mut answer = [0; 16];
//! let (length, _) = client.recv_from(&mut answer)?;
//! assert_eq!(&answer[..length], b"cba");
//! assert_eq!(running.stop()?.total().answered, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # AF_XDP
//!
//! With [`Backend::Xdp`] requests are taken from the queues of the network device before the stack sees them, and their
//! frames go back as replies. The service, the sockets and the port stay as they are: a program on the interface redirects
//! what is plainly a request (unicast UDP to the server's address and port, in one piece, without IP options) and passes
//! everything else, so that fragments and the like are answered from the UDP sockets by the same workers. Worker `i` of `n`
//! serves the queues whose number leaves `i` when divided by `n`.
//!
//! What to know before using it, which [`RunningServer::xdp`] repeats for the machine at hand:
//! - Requests so served are invisible to tcpdump and the firewall, and are not in the stack's counters.
//! - Checksums of requests are the device's to check, unless [`AfXdpSettings::verify_checksums`] is set.
//! - At a wildcard address the addresses this host has when the server starts are served; one that is added later is served
//!   by the sockets.
//! - Replies longer than the interface's MTU, and those to another address, leave by the worker's UDP socket.
//! - Where it cannot run the server falls back to [`Backend::Mmsg`] and says why ([`RunningServer::fallbacks`]): a right that is
//!   missing, a driver without XDP, an XDP program of somebody else, which is never displaced, no Ethernet, loopback.
//!
//! The program is held by a link of this process. It goes when the server stops, and when the process is killed.
//!
//! [`steer`] stands alone: it attaches socket selection by CPU to the sockets of a server that has its own event
//! loop, UDP sockets and TCP listeners alike.

#![warn(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("linerate-engine uses recvmmsg, SO_REUSEPORT steering and bpf(2): it is for Linux only");

mod backend;
mod counters;
mod cpus;
mod deferred;
mod echo;
mod error;
mod overload;
mod running;
mod server;
mod service;
mod socket;
pub mod steer;
mod sys;
mod worker;

pub use backend::{AfXdpSettings, XdpInterface, XdpMode, XdpQueue, XdpReport};
pub use counters::{Counts, SendFailures};
pub use deferred::DeferredReply;
pub use echo::Echo;
pub use error::ServerError;
pub use overload::{
    GuardCounts, GuardMode, GuardReport, GuardedInterface, HostAdvice, OverloadPolicy, ShedPolicy,
    SourceGrouping, XdpGuard,
};
pub use running::{RunningServer, ServerReport};
pub use server::{Backend, Builder, Server, SocketMode, StrayRequests, WorkerPinning};
pub use service::{Action, ReplyOptions, Request, Service};
pub use socket::{Fallback, PathMtuDiscovery, SocketReport};
pub use steer::SteeringProgram;
