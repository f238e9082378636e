//! Socket maps of a reuseport group (`BPF_MAP_TYPE_REUSEPORT_SOCKARRAY`, Linux 4.19) with values of
//! 8 bytes: a descriptor is written, a cookie is read (kernel/bpf/reuseport_array.c).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// `BPF_MAP_LOOKUP_ELEM`, `_UPDATE_ELEM` and `_DELETE_ELEM` of linux/bpf.h.
const LOOK_UP: libc::c_long = 1;
const UPDATE: libc::c_long = 2;
const DELETE: libc::c_long = 3;

/// The part of union bpf_attr for map elements.
#[repr(C)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// `None` if the place is empty.
pub(crate) fn cookie(map: BorrowedFd<'_>, place: u32) -> io::Result<Option<u64>> {
    let mut cookie = 0;
    match call_bpf(LOOK_UP, map, place, &mut cookie) {
        Ok(()) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `EBUSY` if the socket is already in this map or another map of this kind.
pub(crate) fn put(map: BorrowedFd<'_>, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut descriptor = u64::from(socket.as_raw_fd().unsigned_abs());
    call_bpf(UPDATE, map, place, &mut descriptor)
}

/// Empties a place.
pub(crate) fn remove(map: BorrowedFd<'_>, place: u32) -> io::Result<()> {
    match call_bpf(DELETE, map, place, &mut 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

fn call_bpf(command: libc::c_long, map: BorrowedFd<'_>, place: u32, value: &mut u64) -> io::Result<()> {
    let mut attribute = MapElement {
        map: map.as_raw_fd().unsigned_abs(),
        padding: 0,
        key: (&raw const place) as u64,
        value: std::ptr::from_mut(value) as u64,
        flags: 0,
    };
    // The kernel requires unused fields to be zero.
    if command == DELETE {
        attribute.value = 0;
    }
    let size = std::mem::size_of::<MapElement>();
    // SAFETY: `attribute` has the layout of that part of the union, and it, the key of 4 bytes and the value of 8, which are
    // the sizes of the map's, live across the call. Nothing else is written.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attribute, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
