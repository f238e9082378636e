//! The CPUs of this process' threads.

use std::io;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::ServerError;

/// The CPUs the calling thread may run on now, ascending: online, inside the process' cpuset, and in its affinity.
pub(crate) fn allowed() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU as u32).filter(|cpu| set.is_set(*cpu as usize)).collect())
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: u32) -> io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

// Finds the first CPU of `cpus` that none of our threads can be pinned to. A short-lived thread
// tries each CPU, because only the kernel knows the CPUs that the cpuset and hotplug leave.
pub(crate) fn check_pinnable(cpus: &[u32]) -> Result<(), ServerError> {
    let refused_cpu = thread::scope(|scope| {
        let find_refused = || cpus.iter().copied().find(|cpu| pin(*cpu).is_err());
        // Without the thread nothing is known; the workers then fail if they cannot be pinned.
        scope.spawn(find_refused).join().unwrap_or(None)
    });
    match refused_cpu {
        Some(cpu) => Err(ServerError::Cpu { cpu, allowed: allowed().unwrap_or_default() }),
        None => Ok(()),
    }
}
