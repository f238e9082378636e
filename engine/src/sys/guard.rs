//! What the guard's program shares with this process, and its attachment.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The first fields of `struct state` of bpf/guard.bpf.c: those that workers read or write.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct GuardState {
    /// How many requests may be admitted in all.
    pub(crate) granted: AtomicU64,
    /// How many may wait at once.
    pub(crate) limit: AtomicU64,
    /// How many the workers took.
    pub(crate) taken: AtomicU64,
    _apart: [u64; 13],
    /// How many were.
    pub(crate) admitted: AtomicU64,
}

/// The state in the memory of this process (`BPF_F_MMAPABLE`, Linux 5.5).
#[derive(Debug)]
pub(crate) struct MappedGuardState {
    place: NonNull<GuardState>,
}

// SAFETY: the memory belongs to no thread, and what is read or written in it is atomic.
unsafe impl Send for MappedGuardState {}
// SAFETY: as above.
unsafe impl Sync for MappedGuardState {}

impl MappedGuardState {
    /// Maps the array of one state that `map` is.
    pub(crate) fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice; it fails if the map is shorter.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<GuardState>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(place.cast::<GuardState>()) {
            Some(state) if place != libc::MAP_FAILED => Ok(Self { place: state }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for MappedGuardState {
    type Target = GuardState;

    fn deref(&self) -> &GuardState {
        // SAFETY: the mapping holds a state until it is dropped, is aligned to a page, and any bytes make atomic integers.
        unsafe { self.place.as_ref() }
    }
}

impl Drop for MappedGuardState {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and no reference outlives `self`.
        unsafe { libc::munmap(self.place.as_ptr().cast(), size_of::<GuardState>()) };
    }
}

/// Where in the driver a program runs, or, in the skb mode, in the stack (include/uapi/linux/if_link.h).
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum XdpAttachMode {
    Skb = 1 << 1,
    Driver = 1 << 2,
}

/// The fields of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
struct GuardLinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Attaches an XDP program to an interface by a link (Linux 5.9), which never takes another's place: `EBUSY` or `EEXIST`
/// where there is one. Gone when the descriptor is closed.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, mode: XdpAttachMode) -> io::Result<OwnedFd> {
    const LINK_CREATE: libc::c_int = 28;
    const XDP: u32 = 37;
    let attributes =
        GuardLinkCreate { program: program.as_raw_fd() as u32, interface, kind: XDP, flags: mode as u32 };
    // SAFETY: BPF_LINK_CREATE takes these fields, without addresses, and returns a new descriptor.
    let link = unsafe {
        libc::syscall(libc::SYS_bpf, LINK_CREATE, &raw const attributes, size_of::<GuardLinkCreate>())
    };
    if link < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so that nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link as i32) })
}
