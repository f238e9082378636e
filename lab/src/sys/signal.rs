//! Waiting for signals instead of being interrupted by them.

use std::io;

/// Blocks `signals` in the calling thread and the threads that it starts, so that [`wait`] receives
/// them.
pub(crate) fn block(signals: &[i32]) -> io::Result<()> {
    let set = set_of(signals)?;
    // SAFETY: `set` is initialised; a null pointer for the old mask is allowed.
    let errno = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    result(errno)
}

/// Waits for one of `signals`, which [`block`] has blocked, and returns it.
pub(crate) fn wait(signals: &[i32]) -> io::Result<i32> {
    let set = set_of(signals)?;
    let mut signal = 0;
    // SAFETY: both pointers are to initialised locals.
    let errno = unsafe { libc::sigwait(&raw const set, &raw mut signal) };
    result(errno).map(|()| signal)
}

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set it is given, and it cannot fail with a valid pointer.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for signal in signals {
        // SAFETY: `set` is initialised; a number that is no signal is an error, not a hazard.
        if unsafe { libc::sigaddset(&raw mut set, *signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}

fn result(errno: i32) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
