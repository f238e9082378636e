//! Our own generators.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use linerate_load::generator::{Backend, Builder};
use linerate_load::{Generator, Mode, Slot, Workload};

use super::contender::{Contender, Sending};
use super::looping::Looping;
use super::scene::Scene;
use super::{PAYLOAD, RUN_UP};

pub(super) const XDP: &str = "linerate-xdp";

const PORT: u16 = 7;

/// Longer than any measurement: it is cancelled.
const WITHOUT_END: Duration = Duration::from_secs(3_600);

/// Of the replies that reached its interface, the least that has to be matched for the figure to count.
const MATCHED: f64 = 0.99;

/// A flood of requests.
pub(super) struct Ours {
    backend: Backend,
    flows: u16,
}

impl Ours {
    pub(super) fn new(backend: Backend, flows: u16) -> Self {
        Self { backend, flows }
    }

    fn make(&self, scene: &Scene, cancel: &Arc<AtomicBool>) -> anyhow::Result<Box<dyn Generator>> {
        let builder = Builder::default()
            .targets(vec![(scene.target(), PORT).into()])
            .flows(usize::from(self.flows))
            .cpus(Some(vec![scene.cpu]))
            .workload(Workload::Echo { payload_bytes: PAYLOAD })
            .backend(self.backend)
            .cancel(Arc::clone(cancel));
        let generator = scene.sender().run(|| builder.start())??;
        let wanted = if self.backend == Backend::Xdp { "xdp" } else { "socket" };
        let description = generator.describe();
        ensure!(description.backend == wanted, "asked for {wanted}, it is {}", description.backend);
        Ok(generator)
    }
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        if self.backend == Backend::Xdp { XDP } else { "linerate-socket" }
    }

    fn how(&self) -> String {
        format!("Mode::Flood, Workload::Echo, {} flows, one thread", self.flows)
    }

    fn prepare(&mut self, scene: &Scene) -> anyhow::Result<()> {
        self.make(scene, &Arc::default()).map(drop)
    }

    fn start(&mut self, scene: &Scene) -> anyhow::Result<Box<dyn Sending>> {
        let cancel = Arc::new(AtomicBool::new(false));
        let mut generator = self.make(scene, &cancel)?;
        let slot = Slot { drain: Duration::from_millis(1), ..Slot::new(Mode::Flood, WITHOUT_END) };
        let handle = thread::spawn(move || Ok(generator.run(&slot).map(drop)?));
        Ok(Box::new(Looping::new(cancel, handle)))
    }
}

/// The XDP generator, with every reply matched and timed.
pub(super) struct Matching(Ours);

impl Matching {
    pub(super) fn new(flows: u16) -> Self {
        Self(Ours::new(Backend::Xdp, flows))
    }
}

impl Contender for Matching {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn how(&self) -> String {
        format!("{}, replies matched and timed", self.0.how())
    }

    fn prepare(&mut self, scene: &Scene) -> anyhow::Result<()> {
        self.0.prepare(scene)
    }

    fn start(&mut self, scene: &Scene) -> anyhow::Result<Box<dyn Sending>> {
        self.0.start(scene)
    }

    fn replies(&mut self, scene: &Scene, time: Duration) -> anyhow::Result<f64> {
        let mut generator = self.0.make(scene, &Arc::default())?;
        generator.run(&Slot::new(Mode::Flood, RUN_UP)).context("running up")?;
        let before = scene.received()?;
        let outcome = generator.run(&Slot::new(Mode::Flood, time))?;
        let returned = scene.received()? - before;
        ensure!(outcome.latency_ns.count() == outcome.answered, "not every answer was timed");
        ensure!(
            outcome.answered as f64 >= MATCHED * returned as f64,
            "of {returned} requests returned only {} were matched",
            outcome.answered
        );
        Ok(outcome.answered_per_second)
    }
}
