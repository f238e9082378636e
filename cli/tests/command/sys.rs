//! A tun device.

use std::fs::File;
use std::io;

use rustix::ioctl::{Setter, ioctl};

/// `TUNSETIFF` of linux/if_tun.h.
const TUN_SET_INTERFACE: rustix::ioctl::Opcode = 0x4004_54ca;
/// `IFF_TUN | IFF_NO_PI`.
const TUN_WITHOUT_HEADER: u16 = 0x1001;
/// Bytes of `struct ifreq`.
const REQUEST_BYTES: usize = 40;

/// Makes `tun0` in the network namespace of this thread. It exists while the file is open, and nobody reads it.
pub(crate) fn open_tun() -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(b"tun0");
    request[16..18].copy_from_slice(&TUN_WITHOUT_HEADER.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes a struct ifreq, for which the array has room.
    unsafe { ioctl(&file, Setter::<TUN_SET_INTERFACE, _>::new(request)) }?;
    Ok(file)
}
