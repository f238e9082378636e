//! Tests on this host and in labs, in one program.

mod cost;
mod cost_entry;
mod delay;
mod hot_spots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_trace::TraceError;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// One test at a time, because each uses the machine's CPUs.
fn machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` is the calling thread.
fn pin(thread: Option<Pid>, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(thread, &cpus).expect("a thread is pinned to a CPU it may use");
}

/// The result; `None`, after printing SKIP, if this kernel does not permit the observation.
fn skip_unless_permitted<T>(test: &str, result: Result<T, TraceError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(why @ (TraceError::NotPermitted { .. } | TraceError::NotHere { .. })) => {
            linerate_testkit::skip(test, why);
            None
        }
        Err(why) => panic!("{why}"),
    }
}
