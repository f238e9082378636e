//! UDP services of known behaviour, to hold a load generator's account against.
//!
//! A [`Reflector`] returns every datagram to where it came from, but for the faults it was given:
//! it drops, doubles, damages or swaps every n-th, answers late by a known time, has a known
//! capacity, or freezes. It keeps an exact [`ReflectorAccount`]. One thread serves; socket and
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
//! A [`PreforkServer`] is a program of forked workers, for tools that look at a server from outside.
//!
//! [`installed`] has real servers, as tests start them.
//!
//! For tests and benches: it answers anybody who reaches it.

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
mod prefork;
mod running;
mod service;
mod sys;
mod xdp;

pub use account::{FrozenSpan, ReflectorAccount};
pub use builder::{Reflector, ReflectorBuilder};
pub use error::ReflectorError;
pub use prefork::PreforkServer;
pub use running::RunningReflector;
pub use xdp::{XdpAccount, XdpBuilder, XdpService};
