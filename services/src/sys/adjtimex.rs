//! The state of the kernel's clock: `adjtimex(2)` without changes, which requires no privilege.

use std::io;

pub(crate) struct KernelClock {
    /// `TIME_OK`, `TIME_INS`, ...
    pub(crate) state: i32,
    /// `STA_*`.
    pub(crate) status: i32,
    // Microseconds; grows until the clock is adjusted again.
    pub(crate) max_error_us: i64,
}

pub(crate) fn read() -> io::Result<KernelClock> {
    // SAFETY: timex is integers only, for which all zeros is a value; modes 0 is to change nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which is of its layout.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::useless_conversion)] // c_long has 32 bits elsewhere
    let max_error_us = timex.maxerror.into();
    Ok(KernelClock { state, status: timex.status, max_error_us })
}
