//! Generators that are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::bail;

use super::testbed::GeneratorTestbed;

pub(super) trait GeneratorContender {
    fn name(&self) -> &'static str;

    /// The description of a run: for a program, its command line.
    fn describe(&self) -> String;

    // Fails with the reason if the generator cannot run here.
    fn prepare(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<()>;

    /// Starts to send without end, as fast as possible.
    fn start(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>>;

    /// Removes leftovers of the generator.
    fn clear(&self, _: &GeneratorTestbed) -> anyhow::Result<()> {
        Ok(())
    }

    /// Sends for `time` and returns the replies per second.
    fn replies(&mut self, _: &GeneratorTestbed, _: Duration) -> anyhow::Result<f64> {
        bail!("{} receives no replies", self.name())
    }
}

/// A running generator. It ends at the latest when this is dropped.
pub(super) trait ContenderRun {
    /// The reason of its end; `None` while it runs.
    fn exit_reason(&mut self) -> anyhow::Result<Option<String>>;

    /// Ends the generator.
    fn stop(self: Box<Self>) -> anyhow::Result<()>;
}

/// A generator that is a thread of this process.
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
    fn exit_reason(&mut self) -> anyhow::Result<Option<String>> {
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
        // Its error was returned before, or follows another one.
        let _ = self.end();
    }
}
