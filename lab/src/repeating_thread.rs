//! A thread that calls a function at an interval.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Ends when its function returns `false` or this is dropped.
#[derive(Debug)]
pub(crate) struct RepeatingThread {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RepeatingThread {
    pub(crate) fn start(interval: Duration, mut call: impl FnMut() -> bool + Send + 'static) -> Self {
        let (end, end_receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            while end_receiver.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) && call() {}
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for RepeatingThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
