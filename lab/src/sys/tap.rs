//! Tap devices.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Opens a tap device of the calling thread's network namespace: each read and write is an Ethernet frame.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let path = "/dev/net/tun";
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    // SAFETY: all bytes zero are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(io::Error::other(format!("{name}: an interface's name has up to {room} bytes")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("{name}: {error}")));
    }
    Ok(file)
}
