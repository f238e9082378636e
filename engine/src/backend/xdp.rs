//! AF_XDP: requests are taken from a device's queues and answered in place; the socket serves what is left to the stack.
//!
//! A program on each interface redirects the server's requests to the AF_XDP socket of the queue they arrived on
//! (bpf/xsk.bpf.c); a worker has the sockets of its queues, with memory for frames that they share. A request's frame
//! becomes its reply's. Fragments, IP options, broadcasts and whatever else is out of the ordinary pass to the stack, and
//! the worker answers them from its UDP socket, between the frames.

mod frame;
mod open;
mod program;
mod queue;
mod report;
mod serve;

use std::io;

use serde::{Deserialize, Serialize};

pub(crate) use frame::FrameAddresses;
pub(crate) use open::{XdpServeOptions, open};
pub(crate) use queue::WorkerQueues;
pub use report::{XdpInterface, XdpMode, XdpQueue, XdpReport};

use super::WorkerJob;
use crate::service::Service;
use crate::sys::xsk;

/// Settings of the AF_XDP backend.
///
/// It takes `CAP_NET_RAW` for its sockets and `CAP_BPF` and `CAP_NET_ADMIN` for the program that redirects to them, Linux
/// 5.10 or later, and locked memory for the frames (`RLIMIT_MEMLOCK`, or `CAP_IPC_LOCK`). An interface that already runs
/// an XDP program is left alone. What cannot be had is told by [`Server::fallbacks`](crate::Server::fallbacks), what was
/// had by [`Server::xdp`](crate::Server::xdp).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", default)]
pub struct AfXdpSettings {
    /// Frames of memory a queue, a power of two from 128 to 65,536: half of them wait for packets, half are on their way
    /// out. A frame has 2048 bytes, or 4096 where the interface's MTU is above 1500.
    pub frames: u32,
    /// Most requests taken from a queue before their replies are sent, 1 to 1024.
    pub batch: u16,
    /// Where the redirect program runs.
    pub mode: XdpMode,
    /// Whether to have the device write to our memory, where its driver can.
    pub zero_copy: bool,
    /// Whether the kernel tells when it wants to be called. Without, a driver that copies nothing polls the rings.
    pub need_wakeup: bool,
    /// Whether to check the IP and UDP checksums of requests. Those that are wrong are counted
    /// ([`Counts::checksum_errors`](crate::Counts::checksum_errors)) and go unanswered, as the stack would have it.
    pub verify_checksums: bool,
    /// Busy polling with interrupts kept off (`SO_PREFER_BUSY_POLL`, Linux 5.11): microseconds that a call polls the
    /// device, 0 for none. To keep interrupts off between the calls, `napi_defer_hard_irqs` and `gro_flush_timeout` of
    /// the interface have to be set.
    pub busy_poll_us: u32,
    /// Most packets a busy poll (`SO_BUSY_POLL_BUDGET`).
    pub busy_poll_budget: u16,
}

impl Default for AfXdpSettings {
    fn default() -> Self {
        Self {
            frames: 4096,
            batch: 64,
            mode: XdpMode::Driver,
            zero_copy: true,
            need_wakeup: true,
            verify_checksums: false,
            busy_poll_us: 0,
            busy_poll_budget: 64,
        }
    }
}

/// Why it cannot run here, for a person.
pub(crate) fn probe() -> Result<(), String> {
    xsk::XskSocket::new().map(drop).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => {
            "AF_XDP sockets need CAP_NET_RAW: run as root, or give the program that capability \
                              with CAP_BPF and CAP_NET_ADMIN"
                .to_owned()
        }
        Some(libc::EAFNOSUPPORT) => "this kernel was built without CONFIG_XDP_SOCKETS".to_owned(),
        _ => format!("opening an AF_XDP socket: {error}"),
    })
}

/// Serves until told to end and everything queued is answered. A worker without queues serves its socket alone.
pub(crate) fn run<S: Service>(job: WorkerJob<'_, S>, share: Option<&mut WorkerQueues>) -> io::Result<()> {
    match share {
        Some(share) => serve::run(job, share),
        None => super::mmsg::run(job),
    }
}
