//! Which tests run at the same time.
//!
//! The harness starts the tests in the order of their names. With as many threads as CPUs, all of them would soon wait for a
//! test that measures. There are more, so that others can start (`sys::MORE_THREADS`), and these wait here.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Tests that wait for one another.
struct Lane {
    running: Mutex<usize>,
    ended: Condvar,
}

/// Tests that read counters of the whole machine or use all of its CPUs.
static MACHINE: Lane = Lane::new();
static OTHERS: Lane = Lane::new();

thread_local! {
    /// The turn of this thread's test, until the thread ends.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Waits until no other test that calls this runs.
pub(crate) fn machine() {
    TURN.set(None);
    TURN.set(Some(MACHINE.turn(1)));
}

/// Waits until a CPU is free, without the one for a test that calls `machine`. Every command and lab of a test waits for this.
pub(crate) fn share_machine() {
    // The test has a turn already if one of its own threads calls this. Such threads have no name.
    if thread::current().name().is_some() {
        TURN.with_borrow_mut(|turn| {
            turn.get_or_insert_with(|| OTHERS.turn(cpus().saturating_sub(1).max(1)));
        });
    }
}

pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl Lane {
    const fn new() -> Self {
        Self { running: Mutex::new(0), ended: Condvar::new() }
    }

    /// Waits until fewer than `limit` tests run.
    fn turn(&'static self, limit: usize) -> Turn {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.ended.wait_while(running, |running| *running >= limit);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn(self)
    }
}

/// One of the running tests of a lane.
struct Turn(&'static Lane);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_one();
    }
}
