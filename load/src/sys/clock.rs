//! The state of the kernel's clock: `adjtimex(2)` without changes, which requires no privilege.

use std::io;

// The kernel's bound on the error of CLOCK_REALTIME, us. It grows until the clock is adjusted again; 16 s if nothing does
// (NTP_PHASE_LIMIT, kernel/time/ntp.c).
pub(crate) fn max_clock_error_us() -> io::Result<i64> {
    // SAFETY: timex is integers only, for which all zeros is a value; modes 0 is to change nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which is of its layout.
    if unsafe { libc::adjtimex(&raw mut timex) } < 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::useless_conversion)] // c_long has 32 bits elsewhere
    Ok(timex.maxerror.into())
}
