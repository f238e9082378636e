//! `bpf(2)` of XDP links, and parts and errors of BPF programs.

use std::error::Error;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use aya::Ebpf;
use aya::maps::{Map, MapError};
use aya::programs::{Program, ProgramError};
use serde::{Deserialize, Serialize};

/// Where the XDP program of an interface runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// In the driver, before there is a socket buffer. Not every driver supports it.
    #[default]
    Driver,
    /// In the stack, with a socket buffer: any driver, more CPU time, always with a copy.
    Generic,
}

const CMD_LINK_CREATE: libc::c_int = 28;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;

// The first fields of `union bpf_attr`. The kernel treats the other fields as zero
// (kernel/bpf/syscall.c, `bpf_check_uarg_tail_zero`).
#[repr(C)]
struct LinkCreateAttr {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
}

// Attaches an XDP program to an interface of the calling thread's network namespace, until the descriptor is closed (Linux
// 5.9). Fails with `EBUSY` or `EEXIST` if the interface has another program (net/core/dev.c, `dev_xdp_attach`).
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, interface: u32, mode: XdpMode) -> io::Result<OwnedFd> {
    // XDP_FLAGS_SKB_MODE and XDP_FLAGS_DRV_MODE (include/uapi/linux/if_link.h).
    let flags = match mode {
        XdpMode::Generic => 1 << 1,
        XdpMode::Driver => 1 << 2,
    };
    let program = program.as_raw_fd().cast_unsigned();
    let attributes = LinkCreateAttr { program, target: interface, kind: ATTACH_XDP, flags };
    // SAFETY: BPF_LINK_CREATE takes these fields, without addresses.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, CMD_LINK_CREATE, &raw const attributes, size_of_val(&attributes))
    };
    match RawFd::try_from(result) {
        // SAFETY: a new descriptor, which nothing else owns.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn program<'a, P>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut P, String>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = object.program_mut(name).ok_or_else(|| lacks(name))?;
    program.try_into().map_err(|error| load_error(&error))
}

pub(crate) fn map<'a, M: TryFrom<&'a mut Map, Error = MapError>>(
    object: &'a mut Ebpf,
    name: &str,
) -> Result<M, String> {
    let map = object.map_mut(name).ok_or_else(|| lacks(name))?;
    map.try_into().map_err(|error| load_error(&error))
}

pub(crate) fn lacks(name: &str) -> String {
    format!("the BPF object lacks {name}: rebuild it with cargo xtask bpf")
}

// The error number of the kernel, if the error has one.
pub(crate) fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut causes = std::iter::successors(Some(error), |error| Error::source(*error));
    causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())
}

// The errors of the kernel and the loader on one line, without the verifier's log.
pub(crate) fn load_error(error: &(dyn Error + 'static)) -> String {
    if errno(error) == Some(libc::EPERM) {
        return "loading a BPF program requires CAP_BPF and CAP_NET_ADMIN in the initial user namespace"
            .to_owned();
    }
    let causes = std::iter::successors(Some(error), |error| Error::source(*error));
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    text.lines().next().unwrap_or_default().to_owned()
}

pub(crate) fn attach_error(interface: &str, mode: XdpMode, error: &io::Error) -> String {
    match (error.raw_os_error(), mode) {
        (Some(libc::EBUSY), _) => format!(
            "{interface} runs another XDP program, which stays there (`ip link show {interface}` names it)"
        ),
        // A program of the other mode, or one above (net/core/dev.c, `dev_xdp_attach`).
        (Some(libc::EEXIST), _) => format!(
            "{interface}, or a bond or bridge above it, runs another XDP program, which stays there (`ip link` names it)"
        ),
        (Some(libc::EOPNOTSUPP), XdpMode::Driver) => format!(
            "the driver of {interface} does not support XDP programs with its present settings; try generic mode"
        ),
        (Some(libc::ERANGE | libc::EMSGSIZE | libc::EINVAL), _) => format!(
            "{error} on {interface}: XDP links require Linux 5.9, and packets may be too long for an XDP program: lower \
             the MTU at both ends"
        ),
        (Some(libc::EPERM), _) => format!("attaching an XDP program to {interface} requires CAP_NET_ADMIN"),
        _ => format!("cannot attach an XDP program to {interface}: {error}"),
    }
}
