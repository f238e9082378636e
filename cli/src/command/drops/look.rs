//! The look at packets that the command's arguments ask for.

use std::time::Duration;

use anyhow::{Context, Result};
use linerate_host::Host;
use linerate_trace::drops::seen::{NamespaceScope, PortSubject};
use linerate_trace::drops::{DropsWatch, GeneratorSaid, PacketAccounting, SampledWatch};

use super::arguments::DropsTargetArgs;

/// Packets that are being counted.
pub(super) struct DropsSession {
    host: Host,
    counting: CountingMode,
}

/// All packets of a run that has a beginning and an end, or samples of what goes on anyway.
enum CountingMode {
    All(Box<DropsWatch>),
    Sampled(Box<SampledWatch>),
}

impl DropsSession {
    /// Counts from now on.
    pub(super) fn start(asked: &DropsTargetArgs) -> Result<Self> {
        let host = Host::live();
        for interface in &asked.interfaces {
            let index = format!("/sys/class/net/{interface}/ifindex");
            host.read(&index).with_context(|| format!("there is no interface {interface} here"))?;
        }
        let subject =
            PortSubject { network: NamespaceScope::Here, ports: asked.ports.clone(), peer: asked.peer };
        let counting = if asked.counts_all() {
            CountingMode::All(Box::new(DropsWatch::start(&host, &subject, &asked.interfaces)?))
        } else {
            CountingMode::Sampled(Box::new(SampledWatch::start(&host, &subject, &asked.interfaces)?))
        };
        Ok(Self { host, counting })
    }

    /// Pauses or resumes a sampled count; returns when to call this again, `None` for never.
    pub(super) fn turn(&mut self) -> Result<Option<Duration>> {
        match &mut self.counting {
            CountingMode::All(_) => Ok(None),
            CountingMode::Sampled(watch) => Ok(Some(watch.turn(&self.host)?)),
        }
    }

    /// What became of them, with what the generator says, which is asked when the counting is over.
    pub(super) fn end(
        self,
        said: impl FnOnce() -> Result<Option<GeneratorSaid>>,
    ) -> Result<PacketAccounting> {
        let mut evidence = match self.counting {
            CountingMode::All(mut watch) => watch.total(&self.host)?,
            CountingMode::Sampled(watch) => watch.total(&self.host)?,
        };
        evidence.generator = said()?;
        Ok(PacketAccounting::make(&evidence))
    }

    /// What became of those since this was last called; `None` if none were counted since.
    pub(super) fn lap(&mut self) -> Result<Option<PacketAccounting>> {
        let evidence = match &mut self.counting {
            CountingMode::All(watch) => Some(watch.lap(&self.host)?),
            CountingMode::Sampled(watch) => watch.lap(&self.host)?,
        };
        Ok(evidence.map(|evidence| PacketAccounting::make(&evidence)))
    }
}
