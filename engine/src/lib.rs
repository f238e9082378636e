//! A UDP transaction server inside your process, and steering for your own event loop.
//!
//! A [`Service`] answers requests; a [`Server`] runs one instance of it on each worker thread. How the workers
//! share sockets, where they run and how they call the kernel is settable apart, so that each choice can be
//! measured on its own.
//!
//! ```
//! use linerate_engine::{Action, Backend, Server, Sockets};
//!
//! let running = Server::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .workers(1)
//!     .sockets(Sockets::Reuseport)
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
//! [`steer`] stands alone: it attaches socket selection by CPU to the sockets of a server that has its own event
//! loop, UDP sockets and TCP listeners alike.

#[cfg(not(target_os = "linux"))]
compile_error!("linerate-engine uses recvmmsg, SO_REUSEPORT steering and bpf(2): it is for Linux only");

mod backend;
mod counters;
mod cpus;
mod echo;
mod error;
mod running;
mod server;
mod service;
mod socket;
pub mod steer;
mod sys;
mod worker;

pub use counters::{Counts, SendFailures};
pub use echo::Echo;
pub use error::Error;
pub use running::{Report, Running};
pub use server::{Backend, Builder, Pinning, Server, Sockets, Stray};
pub use service::{Action, Request, Service};
pub use socket::{Fallback, PathMtuDiscovery, SocketReport};
pub use steer::Program;
