//! AF_XDP: workers take requests from a device's queues and answer in place; the socket serves
//! other requests.
//!
//! A BPF program on each interface (bpf/xsk.bpf.c) redirects requests to the AF_XDP socket of the
//! queue on which they arrived. A worker has the sockets of its queues, which share memory for
//! frames. The frame of a request becomes that of the reply. Fragments, packets with IP options,
//! broadcasts and similar packets pass to the stack, and the worker answers them from its UDP
//! socket between the frames.

pub(crate) mod frame;
mod open;
mod program;
mod queue;
mod report;
mod serve;

use std::io;

pub(crate) use open::{XdpServeOptions, open};
pub(crate) use queue::WorkerQueues;
pub use report::{XdpInterface, XdpQueue, XdpReport};

use super::job::WorkerJob;
use crate::service::Service;
use crate::sys::xsk;

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
