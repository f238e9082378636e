//! Running a borrowing closure on another thread and waiting for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

/// A piece of work for a resident thread.
pub(crate) type Job = Box<dyn FnOnce() + Send + 'static>;

/// Why work has no result.
pub(crate) enum NotRun {
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// The thread has ended.
    Ended,
}

/// The work and the channel for its result.
///
/// The order of the fields matters: if a task is dropped without having run, `work`, which may
/// borrow from the waiting caller, is dropped before `done`, whose drop lets the caller continue.
struct ScopedTask<T, F> {
    work: F,
    done: SyncSender<std::thread::Result<T>>,
}

impl<T, F: FnOnce() -> T> ScopedTask<T, F> {
    fn run(self) {
        let Self { work, done } = self;
        let result = catch_unwind(AssertUnwindSafe(work));
        // The receiver waits until this arrives; a failure to send would mean that it is gone.
        let _ = done.send(result);
    }
}

/// Puts `work` into the queue of a thread and waits for its result.
pub(crate) fn run_on<T: Send, F: FnOnce() -> T + Send>(queue: &Sender<Job>, work: F) -> Result<T, NotRun> {
    let (done, result_receiver) = sync_channel(1);
    let task = ScopedTask { work, done };
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || task.run());
    // SAFETY: only the lifetime is changed. The job borrows from this frame and its callers at
    // most, and this function does not return before the job is over: either `send` hands it back
    // and it is dropped here, or `recv` returns, which requires that `done` was used or dropped.
    // `work` was consumed before `done` is used, and is dropped before `done` is dropped (order of
    // the fields of `ScopedTask`). Nothing between here and `recv` can unwind.
    let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    if queue.send(job).is_err() {
        return Err(NotRun::Ended);
    }
    match result_receiver.recv() {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(panic)) => Err(NotRun::Panicked(panic)),
        Err(_) => Err(NotRun::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_read_and_change_borrowed_data() {
        let (queue, jobs) = channel::<Job>();
        let worker = std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        let mut rounds = Vec::new();
        let word = String::from("here");
        for round in 0..100 {
            let result = run_on(&queue, || {
                rounds.push(round);
                word.as_str()
            });
            assert!(matches!(result, Ok("here")));
        }
        assert_eq!(rounds.len(), 100);
        drop(queue);
        worker.join().unwrap();
    }

    #[test]
    fn running_on_an_ended_thread_is_an_error() {
        let (queue, jobs) = channel::<Job>();
        drop(jobs);
        assert!(matches!(run_on(&queue, || ()), Err(NotRun::Ended)));
    }
}
