//! What takes part.

use std::time::Duration;

use anyhow::bail;

use super::scene::GeneratorTestbed;

/// A generator that is compared.
pub(super) trait GeneratorContender {
    fn name(&self) -> &'static str;

    /// How it is run: for a program, the command line.
    fn how(&self) -> String;

    /// Makes what is made once; an error says why it cannot take part.
    fn prepare(&mut self, scene: &GeneratorTestbed) -> anyhow::Result<()>;

    /// Starts to send without end, as fast as it goes.
    fn start(&mut self, scene: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>>;

    /// Takes away what it leaves behind.
    fn clear(&self, _: &GeneratorTestbed) -> anyhow::Result<()> {
        Ok(())
    }

    /// Sends for `time` and takes every reply; how many it took a second.
    fn replies(&mut self, _: &GeneratorTestbed, _: Duration) -> anyhow::Result<f64> {
        bail!("{} takes no replies", self.name())
    }
}

/// A generator at work; it ends at the latest when this is dropped.
pub(super) trait ContenderRun {
    /// Why it has ended, if it has.
    fn over(&mut self) -> anyhow::Result<Option<String>>;

    /// Ends it.
    fn stop(self: Box<Self>) -> anyhow::Result<()>;
}
