//! Number of tcx programs of an interface: `BPF_PROG_QUERY` of bpf(2), Linux 6.6.

use std::io;

const BPF_PROG_QUERY: libc::c_long = 16;

// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS` of linux/bpf.h.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TcxDirection {
    Ingress = 46,
    Egress = 47,
}

/// The part `query` of union bpf_attr.
#[repr(C)]
#[derive(Default)]
struct TcxQuery {
    index: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
    id_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

// Requires `CAP_NET_ADMIN`. Without room for ids the kernel returns only the number
// (bpf_mprog_query in kernel/bpf/mprog.c).
pub(crate) fn count(index: u32, direction: TcxDirection) -> io::Result<u32> {
    let mut query = TcxQuery { index, attach_type: direction as u32, ..TcxQuery::default() };
    let size = std::mem::size_of::<TcxQuery>();
    // SAFETY: `query` has the layout of the attribute for BPF_PROG_QUERY, holds no pointers, and lives across the call,
    // which writes within `size` bytes of it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size) };
    if result == 0 {
        return Ok(query.count);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Nothing attached, no such attach point, or no bpf(2).
        Some(libc::ENOENT | libc::EINVAL | libc::ENOSYS) => Ok(0),
        _ => Err(error),
    }
}
