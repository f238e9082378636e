//! `bpf(2)`: the steering program, which is assembled here, and XDP links.

use std::error::Error;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};

pub(crate) const MAP_ARRAY: u32 = 2;
pub(crate) const MAP_REUSEPORT_SOCKARRAY: u32 = 20;
pub(crate) const PROG_SK_REUSEPORT: u32 = 21;
pub(crate) const MAP_LOOKUP_ELEM: i32 = 1;
pub(crate) const GET_SMP_PROCESSOR_ID: i32 = 8;
pub(crate) const SK_SELECT_REUSEPORT: i32 = 82;

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

const CMD_MAP_CREATE: libc::c_int = 0;
const CMD_MAP_UPDATE_ELEM: libc::c_int = 2;
const CMD_PROG_LOAD: libc::c_int = 5;
const CMD_LINK_CREATE: libc::c_int = 28;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
// The program calls no helper that requires a GPL licence.
const LICENSE: &CStr = c"MIT OR Apache-2.0";

/// `struct bpf_insn`. The registers share a byte in the order of the target's bit fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct EbpfInstruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> EbpfInstruction {
    let registers =
        if cfg!(target_endian = "little") { source << 4 | destination } else { destination << 4 | source };
    EbpfInstruction { code, registers, offset, immediate }
}

/// `destination = source`
pub(crate) const fn move_register(destination: u8, source: u8) -> EbpfInstruction {
    instruction(0xbf, destination, source, 0, 0)
}

/// `destination = value`
pub(crate) const fn move_immediate(destination: u8, value: i32) -> EbpfInstruction {
    instruction(0xb7, destination, 0, 0, value)
}

/// `destination += value`
pub(crate) const fn add_immediate(destination: u8, value: i32) -> EbpfInstruction {
    instruction(0x07, destination, 0, 0, value)
}

/// `*(u32 *)(base + offset) = source`
pub(crate) const fn store_word(base: u8, offset: i16, source: u8) -> EbpfInstruction {
    instruction(0x63, base, source, offset, 0)
}

/// `destination = *(u32 *)(base + offset)`
pub(crate) const fn load_word(destination: u8, base: u8, offset: i16) -> EbpfInstruction {
    instruction(0x61, destination, base, offset, 0)
}

// `destination = map`, which occupies two places (`BPF_PSEUDO_MAP_FD`).
pub(crate) const fn load_map(destination: u8, map: RawFd) -> [EbpfInstruction; 2] {
    [instruction(0x18, destination, 1, 0, map), instruction(0, 0, 0, 0, 0)]
}

/// Skips `skip` instructions if the register is 0.
pub(crate) const fn jump_if_zero(register: u8, skip: i16) -> EbpfInstruction {
    instruction(0x15, register, 0, skip, 0)
}

// Calls a function of the kernel with registers 1 to 5; the result is in register 0.
pub(crate) const fn call(function: i32) -> EbpfInstruction {
    instruction(0x85, 0, 0, 0, function)
}

/// Returns register 0.
pub(crate) const fn exit() -> EbpfInstruction {
    instruction(0x95, 0, 0, 0, 0)
}

// The first fields of `union bpf_attr`. The kernel treats the other fields as zero
// (kernel/bpf/syscall.c, `bpf_check_uarg_tail_zero`).
#[repr(C)]
struct MapCreateAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C, align(8))]
struct MapUpdateAttr {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C, align(8))]
struct ProgLoadAttr {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct LinkCreateAttr {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
}

/// # Safety
///
/// `attributes` must be the form of `union bpf_attr` that `command` requires, and the addresses in
/// it must stay valid for the kernel's use until the call returns.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: pointer and size describe `attributes`; the rest is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
/// `result` must be a descriptor that nothing else owns.
unsafe fn owned_fd(result: libc::c_long) -> io::Result<OwnedFd> {
    let descriptor = RawFd::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Creates a map with keys of 4 bytes.
pub(crate) fn create_map(kind: u32, value_size: usize, entries: u32) -> io::Result<OwnedFd> {
    let value_size = u32::try_from(value_size).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let attributes = MapCreateAttr { kind, key_size: 4, value_size, max_entries: entries, flags: 0 };
    // SAFETY: BPF_MAP_CREATE takes these fields, without addresses, and returns a new descriptor.
    unsafe { owned_fd(bpf(CMD_MAP_CREATE, &attributes)?) }
}

// Sets an entry of a map. `value` must have the map's value size.
pub(crate) fn update_map<const N: usize>(map: &OwnedFd, key: u32, value: &[u8; N]) -> io::Result<()> {
    const { assert!(N == 4 || N == 8) };
    let mut copy = [0u8; 8];
    copy[..N].copy_from_slice(value);
    let attributes = MapUpdateAttr {
        map: u32::try_from(map.as_raw_fd()).unwrap_or(u32::MAX),
        _padding: 0,
        key: (&raw const key) as u64,
        value: copy.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: BPF_MAP_UPDATE_ELEM takes these fields; it reads 4 bytes of key and at most 8 of value (the largest value
    // size maps are made with here), both of which live until the call returns.
    unsafe { bpf(CMD_MAP_UPDATE_ELEM, &attributes) }.map(drop)
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
    // SAFETY: BPF_LINK_CREATE takes these fields, without addresses, and returns a new descriptor.
    unsafe { owned_fd(bpf(CMD_LINK_CREATE, &attributes)?) }
}

// The errors of the kernel and the loader on one line, without the verifier's log.
pub(crate) fn load_error(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
            return "loading a BPF program requires CAP_BPF and CAP_NET_ADMIN in the initial user namespace"
                .to_owned();
        }
        text = format!("{text}: {error}");
        cause = error.source();
    }
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

/// Why a program was not loaded.
pub(crate) struct BpfLoadError {
    pub(crate) source: io::Error,
    // The verifier's output. Empty if the program was refused before verification.
    pub(crate) log: String,
}

// Loads a program. Requests the verifier's log only after a refusal, because the log costs time.
pub(crate) fn load(kind: u32, program: &[EbpfInstruction]) -> Result<OwnedFd, BpfLoadError> {
    match try_load(kind, program, &mut []) {
        Ok(descriptor) => Ok(descriptor),
        // The kernel refuses before it verifies, so there is no log to fetch.
        Err(source) if source.raw_os_error() == Some(libc::EPERM) => {
            Err(BpfLoadError { source, log: String::new() })
        }
        Err(_) => {
            let mut log = vec![0u8; 1 << 16];
            try_load(kind, program, &mut log).map_err(|source| {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                BpfLoadError { source, log: String::from_utf8_lossy(&log[..end]).into_owned() }
            })
        }
    }
}

fn try_load(kind: u32, program: &[EbpfInstruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let attributes = ProgLoadAttr {
        kind,
        instruction_count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).unwrap_or(0),
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: BPF_PROG_LOAD takes these fields; it reads the instructions and the license and writes to the log, all of
    // which live until the call returns. It returns a new descriptor.
    unsafe { owned_fd(bpf(CMD_PROG_LOAD, &attributes)?) }
}
