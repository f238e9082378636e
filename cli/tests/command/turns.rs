//! Which tests run at the same time: one per CPU, and one of them at most measures.
//!
//! The harness starts the tests in the order of their names. With as many threads as CPUs, all of them
//! would soon wait for a test that measures. There are more, so that others can start
//! (`sys::MORE_THREADS`), and these wait here.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Clone, Copy, PartialEq)]
enum TestKind {
    /// Reads counters of the whole machine or uses all of its CPUs.
    Measuring,
    Other,
}

struct TestCounts {
    /// Measuring tests that run or wait.
    measuring: usize,
    is_measuring: bool,
    others: usize,
}

static TESTS: Mutex<TestCounts> = Mutex::new(TestCounts { measuring: 0, is_measuring: false, others: 0 });
static ENDED: Condvar = Condvar::new();

thread_local! {
    /// The turn of this thread's test, until the thread ends.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Waits until a CPU is free and no other test that calls this runs.
pub(crate) fn machine() {
    TURN.set(None);
    TURN.set(Some(Turn::begin(TestKind::Measuring)));
}

/// Waits until a CPU is free that no measuring test waits for. Every command and lab of a test waits
/// for this.
pub(crate) fn share_machine() {
    // The test has a turn already if one of its own threads calls this. Such threads have no name.
    if thread::current().name().is_some() {
        TURN.with_borrow_mut(|turn| {
            turn.get_or_insert_with(|| Turn::begin(TestKind::Other));
        });
    }
}

pub(crate) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn tests() -> MutexGuard<'static, TestCounts> {
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Turn(TestKind);

impl Turn {
    fn begin(kind: TestKind) -> Self {
        let mut tests = tests();
        tests.measuring += usize::from(kind == TestKind::Measuring);
        let must_wait = |tests: &mut TestCounts| match kind {
            TestKind::Measuring => tests.is_measuring || tests.others >= cpus(),
            TestKind::Other => tests.others + tests.measuring.min(1) >= cpus(),
        };
        let mut tests = ENDED.wait_while(tests, must_wait).unwrap_or_else(PoisonError::into_inner);
        match kind {
            TestKind::Measuring => tests.is_measuring = true,
            TestKind::Other => tests.others += 1,
        }
        Self(kind)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut tests = tests();
        match self.0 {
            TestKind::Measuring => (tests.measuring, tests.is_measuring) = (tests.measuring - 1, false),
            TestKind::Other => tests.others -= 1,
        }
        ENDED.notify_all();
    }
}
