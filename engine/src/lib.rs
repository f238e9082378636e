//! A UDP transaction server inside your process, and steering for your own event loop.
//!
//! A [`Service`] answers requests; a [`Server`] runs one instance of it on each worker thread. Sockets, CPUs and system
//! calls have separate settings, so that you can measure each on its own.
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
//! With [`Backend::Xdp`], workers take requests from the queues of the network device before the network stack, and turn their
//! frames into replies. The service, the sockets and the port stay the same. A BPF program on the interface redirects
//! ordinary requests (unicast UDP to the server's address and port, without fragments and IP options) and passes
//! everything else, which the same workers answer from the UDP sockets. Worker `i` of `n` serves the queues whose number
//! has the remainder `i` modulo `n`.
//!
//! Before you use it, note these limits. [`RunningServer::xdp`] reports those of your host:
//! - tcpdump, the firewall and the counters of the stack do not see these requests.
//! - The device checks the checksums of requests, unless you set [`AfXdpSettings::verify_checksums`].
//! - On a wildcard address, AF_XDP serves the addresses that the host has at the start; sockets serve addresses that are
//!   added later.
//! - Replies that are longer than the interface's MTU, or go to another address, leave by the worker's UDP socket.
//! - The server falls back to [`Backend::Mmsg`] if AF_XDP cannot run, and [`RunningServer::fallbacks`] has the reason: a
//!   missing capability, a driver without XDP, another XDP program (which stays), no Ethernet, loopback.
//!
//! A BPF link of this process holds the program, so it is detached when the server stops or the process is killed.
//!
//! You can use [`steer`] alone: it selects sockets by CPU for a server with its own event loop, UDP sockets or TCP listeners.

#![warn(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("linerate-engine uses recvmmsg, SO_REUSEPORT steering and bpf(2): it is for Linux only");

mod backend;
mod choices;
mod counters;
mod deferred_reply;
mod echo;
mod error;
mod overload;
mod reply;
mod running_server;
mod server;
mod service;
mod shutdown;
mod socket;
pub mod steer;
mod sys;
mod worker;

pub use backend::{XdpInterface, XdpQueue, XdpReport};
pub use choices::{AfXdpSettings, Backend, SocketMode, WorkerPinning};
pub use counters::{Counts, SendFailures};
pub use deferred_reply::DeferredReply;
pub use echo::Echo;
pub use error::ServerError;
pub use overload::{
    GuardCounts, GuardReport, GuardedInterface, OverloadPolicy, ShedPolicy, SourceGrouping, XdpGuard,
};
pub use reply::ReplyOptions;
pub use running_server::{RunningServer, ServerReport};
pub use server::{Builder, Server};
pub use service::{Action, Request, Service};
pub use socket::{Fallback, PathMtuDiscovery, SocketReport};
pub use steer::SteeringProgram;
pub use sys::bpf::XdpMode;
