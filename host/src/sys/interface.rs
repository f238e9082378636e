//! Interfaces by name.

use std::ffi::CString;
use std::io;

/// The index of an interface in the calling thread's network namespace.
pub(crate) fn index(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `name` ends with a zero and lives across the call, which only reads it.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
