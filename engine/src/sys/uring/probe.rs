//! What of io_uring can be had here.

use std::io;
use std::os::fd::AsRawFd;
use std::thread;

use io_uring::types::{CancelBuilder, Fixed, Napi};
use io_uring::{IoUring, Probe, opcode};
use socket2::{Domain, Protocol, Socket, Type};

use super::pool::Pool;
use super::{GROUP, build};
use crate::sys::batch::Shape;
use crate::sys::control::Asked;
use crate::sys::name::Family;

/// The step that failed, and what the kernel said.
#[derive(Debug)]
pub(crate) enum Lacking {
    /// Any ring at all.
    Setup(io::Error),
    /// A ring of the kind that is used: `IORING_SETUP_SINGLE_ISSUER`, `IORING_SETUP_DEFER_TASKRUN`.
    Flags,
    /// A registered socket.
    Files(io::Error),
    /// A ring of provided buffers.
    Buffers(io::Error),
    /// A receive that stays armed.
    Multishot(io::Error),
}

const SHAPE: Shape = Shape { messages: 1, request: 1, reply: 1, family: Family::V4, asked: Asked::NOTHING };

/// What a worker could have.
#[derive(Debug)]
pub(crate) struct Found {
    /// Whether messages can be sent without a copy (`IORING_OP_SENDMSG_ZC`, Linux 6.1).
    pub(crate) zero_copy: bool,
    /// Whether a ring can poll devices (`IORING_REGISTER_NAPI`, Linux 6.9).
    pub(crate) busy_poll: io::Result<()>,
}

/// Makes a ring, registers what a worker registers, and arms a receive on a socket that gets nothing.
///
/// In a thread that ends with it: while the kernel tears a ring down it interrupts the thread that made it, by `EINTR` in
/// whatever call that is waiting in then (`io_ring_exit_work` in io_uring/io_uring.c, `TWA_SIGNAL`).
pub(crate) fn probe() -> Result<Found, Lacking> {
    let probe = thread::Builder::new().name("linerate-probe".to_owned()).spawn(probe_here);
    match probe.map(thread::JoinHandle::join) {
        Ok(Ok(found)) => found,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => Err(Lacking::Setup(error)),
    }
}

fn probe_here() -> Result<Found, Lacking> {
    let mut ring = build(8, 16).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) if IoUring::new(2).is_ok() => Lacking::Flags,
        _ => Lacking::Setup(error),
    })?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(Lacking::Files)?;
    ring.submitter().register_files(&[socket.as_raw_fd()]).map_err(Lacking::Files)?;
    let mut pool = Pool::new(2, SHAPE).map_err(Lacking::Buffers)?;
    pool.register(&ring).map_err(Lacking::Buffers)?;
    let armed = arm(&mut ring, &pool);
    if armed.is_err() {
        // It may be under way.
        pool.leak();
    }
    armed.map_err(Lacking::Multishot)?;
    let mut known = Probe::new();
    let asked = ring.submitter().register_probe(&mut known);
    let busy_poll = ring.submitter().register_napi(&mut Napi::new().set_busy_poll_timeout(1));
    Ok(Found { zero_copy: asked.is_ok() && known.is_supported(opcode::SendMsgZc::CODE), busy_poll })
}

fn arm(ring: &mut IoUring, pool: &Pool) -> io::Result<()> {
    let receive = opcode::RecvMsgMulti::new(Fixed(0), pool.header(), GROUP).build().user_data(1);
    // SAFETY: the caller keeps `pool` until this is cancelled, for good where it cannot be.
    let _ = unsafe { ring.submission().push(&receive) };
    ring.submit()?;
    // Refused at once, or armed without a word.
    if let Some(refused) = ring.completion().next() {
        return Err(io::Error::from_raw_os_error(-refused.result()));
    }
    ring.submitter().register_sync_cancel(None, CancelBuilder::any())?;
    ring.submit_and_wait(1)?;
    Ok(())
}
