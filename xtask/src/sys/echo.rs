//! The C echo of `src/bench/echo_mmsg.c`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// `struct echo_counters`: lock-free atomics have the layout of their integers in C and Rust alike.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct EchoCounters {
    received: AtomicU64,
    answered: AtomicU64,
    truncated: AtomicU64,
    failed: AtomicU64,
    batches: AtomicU64,
    syscalls: AtomicU64,
}

impl EchoCounters {
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

unsafe extern "C" {
    fn echo_mmsg(
        fd: libc::c_int,
        batch: libc::c_uint,
        size: libc::size_t,
        pktinfo: libc::c_int,
        stop: *const AtomicI32,
        counters: *const EchoCounters,
    ) -> libc::c_int;
}

/// Serves an IPv4 socket until it is shut down and `stop` is not 0.
pub(crate) fn serve(
    socket: &impl AsFd,
    batch: u16,
    size: usize,
    pktinfo: bool,
    stop: &AtomicI32,
    counters: &EchoCounters,
) -> io::Result<()> {
    // SAFETY: the descriptor and both references outlive the call; the function keeps nothing and
    // writes to the counters through atomics only.
    let error =
        unsafe { echo_mmsg(socket.as_fd().as_raw_fd(), batch.into(), size, pktinfo.into(), stop, counters) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Asks for the destination address of each request (`IP_PKTINFO`).
pub(crate) fn enable_pktinfo(socket: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and length describe `on`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
