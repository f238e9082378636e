//! AF_XDP: workers take requests from a device's queues and answer in place; the socket serves the rest.
//!
//! A BPF program on each interface (bpf/xsk.bpf.c) redirects requests to the AF_XDP socket of the queue on which they
//! arrived. A worker has the sockets of its queues, which share memory for frames. The frame of a request becomes that of
//! the reply. Fragments, IP options, broadcasts and the like pass to the stack, and the worker answers them from its UDP
//! socket between the frames.

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
/// Requires Linux 5.10, `CAP_NET_RAW` for the sockets, `CAP_BPF` and `CAP_NET_ADMIN` for the redirecting program, and locked
/// memory for the frames (`RLIMIT_MEMLOCK`, or `CAP_IPC_LOCK`). An interface with another XDP program is not served.
/// [`Server::xdp`](crate::Server::xdp) reports the interfaces served, [`Server::fallbacks`](crate::Server::fallbacks) the
/// reasons for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", default)]
pub struct AfXdpSettings {
    /// Frames per queue, a power of two from 128 to 65,536: half for packets to come, half for replies. A frame has 2048 bytes,
    /// or 4096 if the interface's MTU is above 1500.
    pub frames: u32,
    /// Most requests per batch of a queue, 1 to 1024.
    pub batch: u16,
    /// Where the redirecting program runs.
    pub mode: XdpMode,
    /// Whether the device writes to the memory of the process, if its driver can.
    pub zero_copy: bool,
    /// Whether the kernel signals when it needs a call. If false, a zero-copy driver polls the rings.
    pub need_wakeup: bool,
    /// Whether to check the IP and UDP checksums of requests. Wrong ones are counted
    /// ([`Counts::checksum_errors`](crate::Counts::checksum_errors)) and get no reply, as with the stack.
    pub verify_checksums: bool,
    /// Microseconds that a call polls the device with interrupts off (`SO_PREFER_BUSY_POLL`, Linux 5.11); 0 for no busy
    /// polling. Set `napi_defer_hard_irqs` and `gro_flush_timeout` of the interface to keep interrupts off between calls.
    pub busy_poll_us: u32,
    /// Most packets per busy poll (`SO_BUSY_POLL_BUDGET`).
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

// Fails with the reason why AF_XDP cannot run on this host.
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

/// Serves until the worker stops and all queued requests are answered. A worker without queues serves its socket only.
pub(crate) fn run<S: Service>(job: WorkerJob<'_, S>, share: Option<&mut WorkerQueues>) -> io::Result<()> {
    match share {
        Some(share) => serve::run(job, share),
        None => super::mmsg::run(job),
    }
}
