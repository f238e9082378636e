//! The look at packets that the command's arguments ask for.

use std::time::Duration;

use anyhow::{Context, Result};
use linerate_host::Host;
use linerate_trace::drops::seen::{Network, Subject};
use linerate_trace::drops::{GeneratorSaid, Ledger, SampledWatch, Watch};

use super::arguments::Asked;

/// Packets that are being counted.
pub(super) struct Look {
    host: Host,
    counting: Counting,
}

/// All packets of a run that has a beginning and an end, or samples of what goes on anyway.
enum Counting {
    All(Box<Watch>),
    Sampled(Box<SampledWatch>),
}

impl Look {
    /// Counts from now on.
    pub(super) fn start(asked: &Asked) -> Result<Self> {
        let host = Host::live();
        for interface in &asked.interfaces {
            let index = format!("/sys/class/net/{interface}/ifindex");
            host.read(&index).with_context(|| format!("there is no interface {interface} here"))?;
        }
        let subject = Subject { network: Network::Here, ports: asked.ports.clone(), peer: asked.peer };
        let counting = if asked.counts_all() {
            Counting::All(Box::new(Watch::start(&host, &subject, &asked.interfaces)?))
        } else {
            Counting::Sampled(Box::new(SampledWatch::start(&host, &subject, &asked.interfaces)?))
        };
        Ok(Self { host, counting })
    }

    /// Pauses or resumes a sampled count; returns when to call this again, `None` for never.
    pub(super) fn turn(&mut self) -> Result<Option<Duration>> {
        match &mut self.counting {
            Counting::All(_) => Ok(None),
            Counting::Sampled(watch) => Ok(Some(watch.turn(&self.host)?)),
        }
    }

    /// What became of them, with what the generator says, which is asked when the counting is over.
    pub(super) fn end(self, said: impl FnOnce() -> Result<Option<GeneratorSaid>>) -> Result<Ledger> {
        let mut evidence = match self.counting {
            Counting::All(mut watch) => watch.total(&self.host)?,
            Counting::Sampled(watch) => watch.total(&self.host)?,
        };
        evidence.generator = said()?;
        Ok(Ledger::make(&evidence))
    }

    /// What became of those since this was last called; `None` if none were counted since.
    pub(super) fn lap(&mut self) -> Result<Option<Ledger>> {
        let evidence = match &mut self.counting {
            Counting::All(watch) => Some(watch.lap(&self.host)?),
            Counting::Sampled(watch) => watch.lap(&self.host)?,
        };
        Ok(evidence.map(|evidence| Ledger::make(&evidence)))
    }
}
