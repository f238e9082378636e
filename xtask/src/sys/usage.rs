//! Resource usage of a child process (wait4).

use std::io;
use std::mem::MaybeUninit;
use std::process::Child;

// Exit status and peak memory of a child.
pub(crate) struct ChildUsage {
    // `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    // The peak of its resident memory.
    pub(crate) peak_bytes: u64,
    // CPU time in user mode and in the kernel, including children that it waited for.
    pub(crate) cpu_seconds: f64,
}

/// Waits for a child.
#[expect(clippy::needless_pass_by_value, reason = "a child that was waited for may not be waited for again")]
pub(crate) fn wait(child: Child) -> io::Result<ChildUsage> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live memory of their types; the child is ours and was not waited
    // for yet, since it is taken by value and never polled.
    let waited_pid = unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) };
    if waited_pid != pid {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `rusage` was zeroed, which is a valid value, and then filled by the call.
    let usage = unsafe { usage.assume_init() };
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    // ru_maxrss is in KiB (getrusage(2)).
    Ok(ChildUsage { code, peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024, cpu_seconds })
}
