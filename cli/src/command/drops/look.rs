//! The look at packets that the command's arguments ask for.

use anyhow::{Context, Result};
use linerate_host::Host;
use linerate_trace::drops::seen::{Network, Subject};
use linerate_trace::drops::{GeneratorSaid, Ledger, Watch};

use super::arguments::Asked;

/// Packets that are being counted.
pub(super) struct Look {
    host: Host,
    watch: Watch,
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
        let watch = Watch::start(&host, &subject, &asked.interfaces)?;
        Ok(Self { host, watch })
    }

    /// What became of them, with what the generator says, which is asked when the counting is over.
    pub(super) fn end(mut self, said: impl FnOnce() -> Result<Option<GeneratorSaid>>) -> Result<Ledger> {
        let mut evidence = self.watch.total(&self.host)?;
        evidence.generator = said()?;
        Ok(Ledger::make(&evidence))
    }

    /// What became of those since this was last called.
    pub(super) fn lap(&mut self) -> Result<Ledger> {
        Ok(Ledger::make(&self.watch.lap(&self.host)?))
    }
}
