//! A lab: one receiver and the senders linked to it.

use linerate_host::netlink::errno;

#[cfg(doc)]
use crate::error::LabError;
use crate::error::{Result, warn};
use crate::host::LabHost;
use crate::namespace::NamespaceId;
use crate::process;
use crate::registry::{CleanScope, HolderKind, HostState, LabRegistry, LabState, RegistryEntry};
use crate::rtnetlink;
use crate::topology::{LabLink, LabShape, RECEIVER, sender_name};
use crate::wire::{
    await_running, make_pair, receive_by_napi, run_in_host, set_up, why_no_ipv6, with_operation,
};

/// A receiver and one or more senders, each with a link of its own to the receiver.
///
/// Before a drop returns, it removes everything that the lab made: every other process in its
/// namespaces, the links, and the last reference to the namespaces (the kernel frees their memory a
/// moment later). A program of the lab that left its namespaces is killed a moment later. A socket
/// that was opened in a host and is still open elsewhere keeps an empty namespace until it is closed.
#[derive(Debug)]
pub struct Lab {
    receiver: LabHost,
    senders: Vec<LabHost>,
    links: Vec<LabLink>,
    no_ipv6: Option<String>,
    // The last field, so that its file is removed last.
    entry: RegistryEntry,
}

#[derive(Clone, Debug, Default)]
pub struct LabBuilder {
    name: Option<String>,
    registry: Option<LabRegistry>,
    held: bool,
    shape: LabShape,
}

impl Lab {
    /// The default is one sender, one queue per CPU (2 to 16), one address per family, and MTU 1500.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    pub fn receiver(&self) -> &LabHost {
        &self.receiver
    }

    /// The sending hosts, one per link, in the order of [`links`](Self::links).
    pub fn senders(&self) -> &[LabHost] {
        &self.senders
    }

    pub fn links(&self) -> &[LabLink] {
        &self.links
    }

    pub fn host(&self, name: &str) -> Option<&LabHost> {
        self.hosts().find(|host| host.name() == name)
    }

    /// Why the links have no IPv6 addresses; `None` if they have IPv6 addresses.
    pub fn no_ipv6(&self) -> Option<&str> {
        self.no_ipv6.as_deref()
    }

    pub fn state(&self) -> LabState {
        self.entry.state().clone()
    }

    /// Records the original value of a setting of the whole machine before this lab changes it. If the process is killed, or
    /// the lab is dropped before [`forget_host_wide`](Self::forget_host_wide), [`LabRegistry::clean`] restores it. A second
    /// record of a setting has no effect.
    ///
    /// # Errors
    /// [`LabError::HostWideTaken`] if another lab has changed it; [`LabError::File`] if the record cannot be written. Do not
    /// change the setting then.
    pub fn record_host_wide(&self, key: &str, original: serde_json::Value) -> Result<()> {
        self.entry.record(key, original)
    }

    /// Removes the record of a restored setting.
    pub fn forget_host_wide(&self, key: &str) -> Result<()> {
        self.entry.forget(key)
    }

    fn hosts(&self) -> impl Iterator<Item = &LabHost> {
        std::iter::once(&self.receiver).chain(&self.senders)
    }

    /// Makes the links between the hosts.
    fn wire(&mut self) -> Result<()> {
        let marks = self.entry.state().marks();
        self.no_ipv6 = self.receiver.run(why_no_ipv6)?;
        if self.no_ipv6.is_some() {
            for link in &mut self.links {
                link.receiver.ipv6.clear();
                link.sender.ipv6.clear();
            }
        }
        for host in self.hosts() {
            run_in_host(host, |route| {
                route
                    .change(&rtnetlink::link_up(rtnetlink::LOOPBACK))
                    .map_err(with_operation("bring up lo"))?;
                for mark in marks {
                    route
                        .replace(&rtnetlink::address(rtnetlink::LOOPBACK, mark.into(), 32))
                        .map_err(with_operation("mark lo with an address"))?;
                }
                Ok(())
            })?;
        }
        for (link, sender) in self.links.iter().zip(&self.senders) {
            make_pair(&self.receiver, sender, link)?;
            set_up(&self.receiver, &link.receiver, &link.sender, self.no_ipv6.is_none())?;
            set_up(sender, &link.sender, &link.receiver, self.no_ipv6.is_none())?;
            receive_by_napi(&self.receiver, &link.receiver)?;
        }
        for (link, sender) in self.links.iter().zip(&self.senders) {
            await_running(&self.receiver, &link.receiver)?;
            await_running(sender, &link.sender)?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let namespaces: Vec<NamespaceId> = self.hosts().map(LabHost::namespace_id).collect();
        // This process holds the namespaces, so their numbers are not reused.
        let (_, survivors) = process::end_all(|pid| process::is_inside(pid, &namespaces) == Some(true));
        if !survivors.is_empty() {
            warn(&format!(
                "processes {survivors:?} in a lab cannot be killed; end them, or its namespaces stay"
            ));
        }
        // The kernel would remove the links with their namespaces, but later.
        let removal = run_in_host(&self.receiver, |route| {
            match route.change(&rtnetlink::delete_pairs()) {
                // No link exists.
                Err(error) if errno(&error) == Some(libc::ENODEV) => Ok(()),
                result => result.map_err(with_operation("remove the links")),
            }
        });
        if let Err(error) = removal {
            warn(&format!("the links of a lab are left to the kernel: {error}"));
        }
    }
}

impl LabBuilder {
    /// 1 to 32 characters: a-z, 0-9 and '-'. The default is a unique name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The default is the registry of this user.
    #[must_use]
    pub fn registry(mut self, registry: &LabRegistry) -> Self {
        self.registry = Some(registry.clone());
        self
    }

    pub(crate) fn held(mut self) -> Self {
        self.held = true;
        self
    }

    #[must_use]
    pub fn shape(mut self, shape: LabShape) -> Self {
        self.shape = shape;
        self
    }

    #[must_use]
    pub fn senders(mut self, senders: usize) -> Self {
        self.shape.senders = senders;
        self
    }

    /// Number of transmit queues, and of receive queues, at both ends of each link.
    #[must_use]
    pub fn queues(mut self, queues: u32) -> Self {
        self.shape.queues = queues;
        self
    }

    /// Starts the lab. When this returns, packets pass on every link in both directions.
    ///
    /// It first removes the remains of killed labs, except host-wide settings: for these, call [`LabRegistry::clean`].
    ///
    /// # Errors
    /// [`LabError::OutOfRange`], [`LabError::BadName`] and [`LabError::NameTaken`] for options; [`LabError::NotOurs`] and
    /// [`LabError::File`] for the registry; [`LabError::NoNamespace`], [`LabError::Netlink`], [`LabError::NoCarrier`] or
    /// [`LabError::System`] if the kernel refuses. Nothing is left behind then.
    pub fn start(self) -> Result<Lab> {
        self.shape.check()?;
        let registry = self.registry.map_or_else(LabRegistry::open, Ok)?;
        let mut refuse_restore = |_: &str, _: &serde_json::Value| Err("not requested".to_owned());
        if let Err(error) = registry.clean(CleanScope::Dead, &mut refuse_restore) {
            warn(&format!("remains of earlier labs were not removed: {error}; try `linerate lab clean`"));
        }
        let kind = if self.held { HolderKind::Held } else { HolderKind::Running };
        let entry = RegistryEntry::new(registry, self.name.as_deref(), kind)?;
        let receiver = LabHost::start(RECEIVER)?;
        let senders = (0..self.shape.senders)
            .map(|number| LabHost::start(&sender_name(number)))
            .collect::<Result<Vec<_>>>()?;
        let mut lab = Lab { receiver, senders, links: self.shape.links(), no_ipv6: None, entry };
        lab.wire()?;
        let hosts = lab.hosts().map(|host| HostState {
            name: host.name().to_owned(),
            thread: host.thread_id(),
            namespace: host.namespace_id(),
        });
        lab.entry.record_topology(hosts.collect(), lab.links.clone())?;
        Ok(lab)
    }
}
