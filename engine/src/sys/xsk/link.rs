//! Attaching an XDP program by a link, which goes with its descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::bpf;

/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Driver,
    /// After the driver has made a socket buffer (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

/// Attaches an XDP program to an interface of the calling thread's network namespace, until what is returned is closed
/// (Linux 5.9). Never takes the place of another program: that fails with EBUSY or EEXIST (net/core/dev.c, dev_xdp_attach).
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, how: AttachPoint) -> io::Result<OwnedFd> {
    let flags = match how {
        AttachPoint::Generic => 1 << 1,
        AttachPoint::Driver => 1 << 2,
    };
    bpf::create_link(program.as_raw_fd(), interface, ATTACH_XDP, flags)
}
