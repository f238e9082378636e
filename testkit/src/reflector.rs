//! UDP services with known behaviour, to verify the counters of a load generator.
//!
//! A [`Reflector`] returns every datagram to its sender, except for configured faults: it drops,
//! duplicates, damages or swaps every n-th reply, delays replies by a known time, has a known
//! capacity, or freezes. It keeps an exact [`ReflectorAccount`]. It has one thread; socket and
//! thread belong to the network namespace of the thread that started them.
//!
//! ```
//! use std::net::UdpSocket;
//! use linerate_testkit::reflector::Reflector;
//!
//! let service = Reflector::builder().drop_every(10).start()?;
//! let client = UdpSocket::bind("127.0.0.1:0")?;
//! client.send_to(b"ping", service.address())?;
//! client.recv(&mut [0; 16])?;
//! assert_eq!(service.stop().answered, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`XdpService`] answers millions of frames per second at the interface.
//!
//! [`installed`] configures real servers for tests.
//!
//! For tests and benchmarks only: a reflector answers requests from every address.

mod account;
mod bucket;
mod builder;
mod clock;
mod error;
mod faults;
mod freeze;
pub mod installed;
mod outbox;
mod pairs;
mod running_reflector;
mod service;
mod sys;
mod xdp;

pub use account::{FrozenSpan, ReflectorAccount};
pub use builder::{Reflector, ReflectorBuilder};
pub use error::ReflectorError;
pub use running_reflector::RunningReflector;
pub use xdp::{XdpAccount, XdpBuilder, XdpService};
