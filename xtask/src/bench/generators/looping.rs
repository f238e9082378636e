//! A generator that is a thread of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::contender::ContenderRun;

/// A thread that sends until it is told to end.
pub(super) struct LoopThread {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<anyhow::Result<()>>>,
}

impl LoopThread {
    /// `handle` ends soon after `stop` is set.
    pub(super) fn new(stop: Arc<AtomicBool>, handle: JoinHandle<anyhow::Result<()>>) -> Self {
        Self { stop, handle: Some(handle) }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.handle.take().map(JoinHandle::join) {
            Some(Err(_)) => anyhow::bail!("its thread panicked"),
            Some(Ok(result)) => result,
            None => Ok(()),
        }
    }
}

impl ContenderRun for LoopThread {
    fn over(&mut self) -> anyhow::Result<Option<String>> {
        if self.handle.as_ref().is_some_and(JoinHandle::is_finished) {
            self.end()?;
            return Ok(Some("it stopped".to_owned()));
        }
        Ok(None)
    }

    fn stop(mut self: Box<Self>) -> anyhow::Result<()> {
        self.end()
    }
}

impl Drop for LoopThread {
    fn drop(&mut self) {
        // What it says has been asked for by then, or comes after another error.
        let _ = self.end();
    }
}
