//! Trees of hosts with known faults, for tests.
//!
//! A [`Machine`] is written out as the kernel would show it in `/proc` and `/sys`, and below `/calls` what it would
//! answer to netlink and ioctl. Nothing here shares code with what reads such trees: a format got wrong in both would
//! not be noticed.

mod cpus;
mod ethtool;
mod interrupts;
mod known_hosts;
mod machine;
mod netfilter;
mod nic;
mod process;
mod protocols;
mod softnet;
mod tree;

pub use known_hosts::{Specimen, healthy, many, names, specimen};
pub use tree::{Node, Tree};

pub use cpus::{Cpu, CpuTimes, Cpus};
pub use ethtool::{ENOENT, EOPNOTSUPP, Ethtool, Hashed};
pub use interrupts::Interrupt;
pub use machine::{Kernel, Machine};
pub use netfilter::{IpTable, Netfilter};
pub use nic::{Nic, ReceiveQueue, TransmitQueue};
pub use process::{EPOLL_WAIT, Process, RECVFROM, Thread};
pub use protocols::{Listener, UdpCounts, UdpSocket};
pub use softnet::Softnet;
