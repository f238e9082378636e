//! Tun and tap devices, and the number of test threads.

use std::fs::File;
use std::io;

use linerate_lab::LabHost;
use rustix::ioctl::{Setter, ioctl};

use crate::support::skip;
use crate::turns;

/// `TUNSETIFF` of linux/if_tun.h.
const TUN_SET_INTERFACE: rustix::ioctl::Opcode = 0x4004_54ca;
/// `IFF_TUN | IFF_NO_PI`, and `IFF_TAP | IFF_NO_PI`.
const TUN: u16 = 0x1001;
const TAP: u16 = 0x1002;
/// `IFF_NAPI | IFF_NAPI_FRAGS`.
const PAGES: u16 = 0x0030;
/// Bytes of `struct ifreq`.
const REQUEST_BYTES: usize = 40;

/// Creates `tun0` on a host. The device exists while the file is open. No process reads it. Prints a
/// SKIP line and returns `None` if the device cannot be created.
pub(crate) fn open_tun(host: &LabHost) -> Option<File> {
    open_on(host, b"tun0", TUN)
}

/// Creates `tap0` in the same way.
pub(crate) fn open_tap(host: &LabHost) -> Option<File> {
    open_on(host, b"tap0", TAP)
}

/// Creates `tap0` as a device that receives into pages: the linear part of a packet is the first
/// buffer of a vectored write.
pub(crate) fn open_tap_with_pages(host: &LabHost) -> Option<File> {
    open_on(host, b"tap0", TAP | PAGES)
}

fn open_on(host: &LabHost, name: &[u8; 4], flags: u16) -> Option<File> {
    let device = host.run(|| open(name, flags)).expect("the host runs");
    device.map_err(|error| skip(format!("/dev/net/tun: {error}"))).ok()
}

fn open(name: &[u8; 4], flags: u16) -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(name);
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes a struct ifreq, for which the array has room.
    unsafe { ioctl(&file, Setter::<TUN_SET_INTERFACE, _>::new(request)) }?;
    Ok(file)
}

/// Runs before `main`, where the test harness reads the variable.
#[used]
#[unsafe(link_section = ".init_array")]
static MORE_THREADS: extern "C" fn() = more_threads;

extern "C" fn more_threads() {
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let threads = 4 * turns::cpus();
        // SAFETY: the process has no other thread yet.
        unsafe { std::env::set_var("RUST_TEST_THREADS", threads.to_string()) };
    }
}
