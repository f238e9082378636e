//! Reading a host, once or twice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use linerate_host::{Host, PacketPath, Scope, View};

use super::arguments::Sight;
use crate::interrupt::Interrupt;

/// A host and what to look at.
pub(crate) struct Subject {
    host: Host,
    scope: Scope,
    watch: Option<Duration>,
    live: bool,
}

/// What was read.
pub(crate) struct Readings {
    before: Option<PacketPath>,
    now: PacketPath,
    /// Seconds since 1970; none where a tree does not say.
    pub(crate) read_unix_seconds: Option<u64>,
    /// Whether this is of the host that the program runs on.
    pub(crate) live: bool,
}

impl Subject {
    pub(crate) fn open(sight: &Sight) -> Result<Self> {
        let live = sight.root.is_none();
        let host = match &sight.root {
            Some(root) => {
                ensure!(root.is_dir(), "--root {}: no such directory", root.display());
                Host::captured(root)
            }
            None => Host::live(),
        };
        let subject = Self { host, scope: sight.scope().unwrap_or_default(), watch: sight.watch, live };
        subject.check()?;
        Ok(subject)
    }

    /// Whether what was named is there.
    fn check(&self) -> Result<()> {
        if let Ok(names) = self.host.list("/sys/class/net")
            && let Some(strange) = self.scope.interfaces.iter().find(|name| !names.contains(name))
        {
            bail!("no interface '{strange}': there are {}", names.join(", "));
        }
        Ok(())
    }

    pub(crate) fn read(self, interrupt: &Interrupt) -> Result<Readings> {
        let read_unix_seconds = if self.live { unix_seconds() } else { None };
        let first = PacketPath::observe(&self.host, &self.scope);
        let Some(time) = self.watch else {
            return Ok(Readings { before: None, now: first, read_unix_seconds, live: self.live });
        };
        interrupt.wait(Some(time))?;
        if interrupt.raised() {
            return Ok(Readings { before: None, now: first, read_unix_seconds, live: self.live });
        }
        let now = PacketPath::observe(&self.host, &self.scope);
        Ok(Readings { before: Some(first), now, read_unix_seconds, live: self.live })
    }
}

impl Readings {
    pub(crate) fn view(&self) -> View<'_> {
        View { now: &self.now, before: self.before.as_ref() }
    }
}

fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
