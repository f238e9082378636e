//! The calling thread: its CPUs and its nice value.

use std::io;

const BITS: usize = usize::BITS as usize;

/// The CPUs the calling thread may run on now, ascending: online, in its cpuset, and in its affinity.
pub(crate) fn allowed_cpus() -> io::Result<Vec<u32>> {
    // The kernel refuses a mask shorter than its own, which has a bit per CPU that it was built
    // for.
    let mut words = 16;
    loop {
        let mut mask = vec![0usize; words];
        // SAFETY: pointer and length in bytes describe `mask`; the calling thread is pid 0.
        let result =
            unsafe { libc::sched_getaffinity(0, words * size_of::<usize>(), mask.as_mut_ptr().cast()) };
        if result == 0 {
            let is_set = |cpu: usize| mask[cpu / BITS] >> (cpu % BITS) & 1 == 1;
            return Ok((0..words * BITS)
                .filter(|cpu| is_set(*cpu))
                .filter_map(|cpu| u32::try_from(cpu).ok())
                .collect());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words > 4096 {
            return Err(error);
        }
        words *= 2;
    }
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: u32) -> io::Result<()> {
    // No kernel is built for more (CONFIG_NR_CPUS is at most 8192), and a mask for any u32 would be half a gigabyte.
    if cpu >= 1 << 16 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let cpu = cpu as usize;
    let mut mask = vec![0usize; cpu / BITS + 1];
    mask[cpu / BITS] = 1 << (cpu % BITS);
    // SAFETY: pointer and length in bytes describe `mask`; the calling thread is pid 0.
    let result = unsafe { libc::sched_setaffinity(0, mask.len() * size_of::<usize>(), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Sets the calling thread's nice value. On Linux it is a property of the thread (setpriority(2), "C
// library/kernel differences").
pub(crate) fn set_nice(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}
