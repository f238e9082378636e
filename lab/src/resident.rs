//! The thread that holds a host.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use rustix::thread::{Pid, gettid};

use crate::error::{LabError, Result};
use crate::sys::{Job, NotRun, run_on};

#[derive(Debug)]
pub(crate) struct ResidentThread {
    host: String,
    thread_id: Pid,
    queue: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl ResidentThread {
    /// Starts the thread, and returns the result of `setup`, which it runs first.
    pub(crate) fn start<S: Send + 'static>(
        host: &str,
        setup: impl FnOnce() -> Result<S> + Send + 'static,
    ) -> Result<(Self, S)> {
        let (queue, jobs) = channel::<Job>();
        let (result_sender, result_receiver) = sync_channel(1);
        let thread = Builder::new()
            // The kernel shows 15 bytes of a thread's name.
            .name(format!("lab-{host}"))
            .spawn(move || {
                let setup_result = setup().map(|setup_value| (gettid(), setup_value));
                let has_failed = setup_result.is_err();
                if result_sender.send(setup_result).is_err() || has_failed {
                    return;
                }
                // A job catches the panics of the work in it.
                jobs.into_iter().for_each(|job| job());
            })
            .map_err(|e| LabError::system(format!("start the thread of lab host {host}"), e))?;
        match result_receiver.recv() {
            Ok(Ok((thread_id, setup_value))) => Ok((
                Self { host: host.to_owned(), thread_id, queue: Some(queue), thread: Some(thread) },
                setup_value,
            )),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(error)
            }
            Err(_) => Err(LabError::Ended { host: host.to_owned() }),
        }
    }

    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id.as_raw_nonzero().get()
    }

    pub(crate) fn run<T: Send, F: FnOnce() -> T + Send>(&self, work: F) -> Result<T> {
        let outcome = if gettid() == self.thread_id {
            // This thread already; waiting for its own queue would be a deadlock.
            catch_unwind(AssertUnwindSafe(work)).map_err(NotRun::Panicked)
        } else {
            match &self.queue {
                Some(queue) => run_on(queue, work),
                None => Err(NotRun::Ended),
            }
        };
        outcome.map_err(|why| match why {
            NotRun::Panicked(payload) => {
                LabError::Panicked { host: self.host.clone(), message: message_of(payload.as_ref()) }
            }
            NotRun::Ended => LabError::Ended { host: self.host.clone() },
        })
    }
}

impl Drop for ResidentThread {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && gettid() != self.thread_id
        {
            // Panics of jobs were reported to their callers.
            let _ = thread.join();
        }
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a value that is not text".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> ResidentThread {
        ResidentThread::start("test", || Ok(())).unwrap().0
    }

    #[test]
    fn a_panic_is_an_error_and_the_thread_keeps_running() {
        let resident = resident();
        // Not `panic!`, whose message would also go to the test's output.
        let error = resident
            .run(|| -> () { std::panic::resume_unwind(Box::new("number 3".to_owned())) })
            .unwrap_err();
        assert!(matches!(
            error,
            LabError::Panicked { host, message } if host == "test" && message == "number 3"
        ));
        assert_eq!(resident.run(|| 4).unwrap(), 4);
    }

    #[test]
    fn work_can_run_nested_work_on_the_same_host() {
        let resident = resident();
        let inner = resident.run(|| resident.run(|| 5)).unwrap();
        assert_eq!(inner.unwrap(), 5);
    }
}
