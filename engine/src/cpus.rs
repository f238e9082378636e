//! The CPUs that this process may use.

use std::io;
use std::thread;

use crate::error::ServerError;
use crate::sys::thread::{allowed_cpus, pin};

/// The CPUs the calling thread may run on now, ascending: online, inside the process' cpuset, and in its affinity.
pub(crate) fn allowed() -> io::Result<Vec<u32>> {
    allowed_cpus()
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
