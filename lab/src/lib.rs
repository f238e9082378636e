//! Temporary hosts from network namespaces and veth pairs, and experiments between them.
//!
//! A [`Lab`] is one receiver and one or more senders. A veth pair with one queue per CPU links each sender to the receiver.
//! Links have fixed names and addresses, permanent neighbours, GRO on at the receiver as on a NIC, and no other traffic:
//!
//! ```text
//!  sender0 eth0 198.18.0.100, 2001:2::100 ------- 198.18.0.1, 2001:2::1 eth0 |
//!  sender1 eth0 198.18.1.100, 2001:2:0:1::100 --- 198.18.1.1, 2001:2:0:1::1 eth1 | receiver
//! ```
//!
//! Code runs in a host through [`LabHost::run`], a program through [`LabHost::spawn`].
//!
//! ```no_run
//! use std::net::UdpSocket;
//!
//! let lab = linerate_lab::Lab::builder().start()?;
//! let link = &lab.links()[0];
//! let address = (link.receiver.ipv4[0], 4000);
//! let server = lab.receiver().run(|| UdpSocket::bind(address))??;
//! let client = lab.senders()[0].run(|| UdpSocket::bind("0.0.0.0:0"))??;
//! client.send_to(b"over the link", address)?;
//! server.recv(&mut [0; 64])?;
//! drop(lab);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Only a thread and descriptors of the process hold the hosts, so they end with the process in any case. Processes that
//! its children started and settings of the whole machine can outlive it. They are recorded in a [`LabRegistry`], and
//! [`LabRegistry::clean`] removes them.
//!
//! A lab requires `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`, or a user namespace, which [`userns::enter_if_needed`] creates, and
//! Linux 5.3 or later. [`ladder`] has the experiments.

mod child;
mod error;
pub mod hold;
mod host;
mod lab;
pub mod ladder;
mod namespace;
pub mod paths;
pub mod placement;
mod process;
pub mod program;
pub mod registry;
mod repeating_thread;
mod resident;
mod rtnetlink;
mod sys;
mod sysfs;
pub mod topology;
pub mod userns;
pub mod visit;
mod wire;

pub use child::LabChild;
pub use error::{LabError, Result};
pub use host::LabHost;
pub use lab::{Lab, LabBuilder};
pub use namespace::NamespaceId;
pub use process::{FoundProcess, ProcessId};
pub use registry::{CleanReport, CleanScope, LabRegistry, LabState};
pub use topology::{LabLink, LabShape, LinkEnd};
