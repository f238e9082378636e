//! The calls to `bpf(2)` that aya does not make, or makes differently.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const PROG_TEST_RUN: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

// Index of the loopback interface in every network namespace (net/core/dev.c, `LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

// The fields of `union bpf_attr` for BPF_PROG_TEST_RUN.
#[derive(Default)]
#[repr(C, align(8))]
struct TestRun {
    program: u32,
    result: u32,
    data_in_bytes: u32,
    data_out_bytes: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_bytes: u32,
    context_out_bytes: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    _padding: u32,
}

/// `struct xdp_md`.
#[derive(Debug, Default)]
#[repr(C)]
struct XdpContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_interface: u32,
    receive_queue: u32,
    egress_interface: u32,
}

#[repr(C)]
struct XdpLinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// # Safety
///
/// `attributes` must be the form of `union bpf_attr` that `command` requires, and the addresses in
/// it must stay valid for the kernel's use until the call returns.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: pointer and size describe `attributes`; the rest is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn raw_descriptor(descriptor: BorrowedFd<'_>) -> u32 {
    // A borrowed descriptor is not negative.
    descriptor.as_raw_fd().cast_unsigned()
}

// Attaches an XDP program to the driver of an interface of the calling thread's network namespace,
// until the returned link is closed. Never replaces another program: that fails with EBUSY.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create_link(program, interface, XDP_FLAGS_DRV_MODE)
}

fn create_link(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes =
        XdpLinkCreate { program: raw_descriptor(program), interface, kind: ATTACH_XDP, flags };
    // SAFETY: BPF_LINK_CREATE takes these fields, without addresses, and returns a new descriptor.
    let descriptor = unsafe { bpf(LINK_CREATE, &mut attributes)? };
    let descriptor = i32::try_from(descriptor).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the descriptor is new, so that nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

// A network namespace in which a program is attached to the loopback interface, which carries no
// packets.
//
// A call for more than one frame makes the kernel enter its program into the dispatcher of XDP
// programs and wait until no CPU can run the old one, some 15 ms before and after
// (net/bpf/test_run.c, bpf_test_run_xdp_live; kernel/bpf/dispatcher.c). A program that is attached
// anywhere avoids that wait.
#[derive(Debug)]
pub(crate) struct ReplyNamespace {
    _link: OwnedFd,
    _namespace: File,
}

impl ReplyNamespace {
    // Creates a namespace, which requires CAP_SYS_ADMIN; it ends when this is dropped or the
    // process ends.
    pub(crate) fn with_program(program: BorrowedFd<'_>) -> io::Result<Self> {
        let create_namespace = || {
            // SAFETY: takes no pointer; the thread is a scratch one, and leaves the others' namespace alone.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let namespace = File::open("/proc/thread-self/ns/net")?;
            Ok(ReplyNamespace {
                _link: create_link(program, LOOPBACK, XDP_FLAGS_SKB_MODE)?,
                _namespace: namespace,
            })
        };
        std::thread::scope(|scope| scope.spawn(create_namespace).join())
            .map_err(|_| io::Error::other("the thread that makes a namespace ended"))?
    }
}

/// A program that makes requests, and the bytes it begins with.
#[derive(Debug)]
pub(crate) struct RequestOutlet {
    program: OwnedFd,
    bytes: Vec<u8>,
    frames_by: Option<u32>,
}

impl RequestOutlet {
    /// An XDP program whose live frames leave by an interface of the namespace of the thread that makes them, or a traffic
    /// control program that sends clones of its socket buffer itself.
    pub(crate) fn new(program: BorrowedFd<'_>, bytes: Vec<u8>, frames_by: Option<u32>) -> io::Result<Self> {
        Ok(RequestOutlet { program: program.try_clone_to_owned()?, bytes, frames_by })
    }

    // Runs the program `count` times. Live frames leave after each `batch` of them, clones at
    // once; all are on their way when this returns. A signal ends it early with EINTR (Linux 5.18;
    // net/bpf/test_run.c, `bpf_test_timer_continue`).
    pub(crate) fn send_requests(&self, count: u32, batch: u32) -> io::Result<()> {
        let bytes = u32::try_from(self.bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut attributes = TestRun {
            program: raw_descriptor(self.program.as_fd()),
            data_in_bytes: bytes,
            data_in: self.bytes.as_ptr() as u64,
            repeat: count.max(1),
            ..TestRun::default()
        };
        let context;
        if let Some(interface) = self.frames_by {
            context = XdpContext { data_end: bytes, ingress_interface: interface, ..XdpContext::default() };
            attributes.context_in_bytes = size_of::<XdpContext>() as u32;
            attributes.context_in = (&raw const context) as u64;
            attributes.flags = TEST_XDP_LIVE_FRAMES;
            attributes.batch = batch;
        }
        // SAFETY: BPF_PROG_TEST_RUN takes these fields; it reads the bytes and the context, which live until it returns,
        // and may write a result and a duration into `attributes`.
        unsafe { bpf(PROG_TEST_RUN, &mut attributes) }.map(drop)
    }
}
