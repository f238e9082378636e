//! Our own generators.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use linerate_load::generator::GeneratorBackend;
use linerate_load::{Generator, LoadSlot, PacingMode};

use super::contender::{ContenderRun, GeneratorContender, LoopThread};
use super::testbed::GeneratorTestbed;
use super::{PAYLOAD, RUN_UP};
use crate::bench::echo_load;

pub(super) const XDP: &str = "linerate-xdp";

const PORT: u16 = 7;

/// Longer than any measurement. The run is cancelled earlier.
const WITHOUT_END: Duration = Duration::from_secs(3_600);

/// The least share of replies at the interface that must be matched for the figure to count.
const MATCHED: f64 = 0.99;

/// A flood of requests.
pub(super) struct OwnFlood {
    backend: GeneratorBackend,
    flows: u16,
}

impl OwnFlood {
    pub(super) fn new(backend: GeneratorBackend, flows: u16) -> Self {
        Self { backend, flows }
    }

    fn build_generator(
        &self,
        testbed: &GeneratorTestbed,
        cancel: &Arc<AtomicBool>,
    ) -> anyhow::Result<Box<dyn Generator>> {
        let target = (testbed.target(), PORT).into();
        let builder = echo_load(target, testbed.cpu, usize::from(self.flows), PAYLOAD)
            .backend(self.backend)
            .cancel(Arc::clone(cancel));
        let generator = testbed.sender().run(|| builder.start())??;
        let requested_backend = if self.backend == GeneratorBackend::Xdp { "xdp" } else { "socket" };
        let description = generator.describe();
        ensure!(
            description.backend == requested_backend,
            "asked for {requested_backend}, it is {}",
            description.backend
        );
        Ok(generator)
    }
}

impl GeneratorContender for OwnFlood {
    fn name(&self) -> &'static str {
        if self.backend == GeneratorBackend::Xdp { XDP } else { "linerate-socket" }
    }

    fn describe(&self) -> String {
        format!("Mode::Flood, Workload::Echo, {} flows, one thread", self.flows)
    }

    fn prepare(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<()> {
        self.build_generator(testbed, &Arc::default()).map(drop)
    }

    fn start(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        let cancel = Arc::new(AtomicBool::new(false));
        let mut generator = self.build_generator(testbed, &cancel)?;
        let slot =
            LoadSlot { drain: Duration::from_millis(1), ..LoadSlot::new(PacingMode::Flood, WITHOUT_END) };
        let handle = thread::spawn(move || Ok(generator.run(&slot).map(drop)?));
        Ok(Box::new(LoopThread::new(cancel, handle)))
    }
}

/// The XDP generator, with every reply matched and timed.
pub(super) struct OwnMatching(OwnFlood);

impl OwnMatching {
    pub(super) fn new(flows: u16) -> Self {
        Self(OwnFlood::new(GeneratorBackend::Xdp, flows))
    }
}

impl GeneratorContender for OwnMatching {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn describe(&self) -> String {
        format!("{}, replies matched and timed", self.0.describe())
    }

    fn prepare(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<()> {
        self.0.prepare(testbed)
    }

    fn start(&mut self, testbed: &GeneratorTestbed) -> anyhow::Result<Box<dyn ContenderRun>> {
        self.0.start(testbed)
    }

    fn replies(&mut self, testbed: &GeneratorTestbed, time: Duration) -> anyhow::Result<f64> {
        let mut generator = self.0.build_generator(testbed, &Arc::default())?;
        generator.run(&LoadSlot::new(PacingMode::Flood, RUN_UP)).context("running up")?;
        let before = testbed.received()?;
        let outcome = generator.run(&LoadSlot::new(PacingMode::Flood, time))?;
        let returned_requests = testbed.received()? - before;
        ensure!(outcome.latency_ns.count() == outcome.answered, "not every answer was timed");
        ensure!(
            outcome.answered as f64 >= MATCHED * returned_requests as f64,
            "of {returned_requests} requests returned only {} were matched",
            outcome.answered
        );
        Ok(outcome.answered_per_second)
    }
}
