//! CPU affinity of threads.

use std::io;

const BITS: u32 = usize::BITS;

// `CONFIG_NR_CPUS` is at most 8192, and a mask for any u32 would be half a gigabyte.
const HIGHEST: u32 = 65_535;

/// Sets the affinity. The kernel ignores CPUs that do not exist, and CPUs outside the thread's
/// cpuset (`__sched_setaffinity` of kernel/sched/syscalls.c, Linux 6.18).
///
/// # Errors
/// `EINVAL` if no CPU remains, or a number is too large; `ESRCH`, `EPERM`.
pub(crate) fn set(tid: u32, cpus: impl IntoIterator<Item = u32>) -> io::Result<()> {
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut mask: Vec<usize> = Vec::new();
    for cpu in cpus {
        if cpu > HIGHEST {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let word = (cpu / BITS) as usize;
        mask.resize(mask.len().max(word + 1), 0);
        mask[word] |= 1 << (cpu % BITS);
    }
    // SAFETY: pointer and length in bytes describe `mask`, which the call only reads.
    let result =
        unsafe { libc::sched_setaffinity(tid, mask.len() * size_of::<usize>(), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
