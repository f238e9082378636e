//! What an interface's driver tells: over generic netlink, or where the kernel is too old for that, by the ioctl.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Host, HostError};
use crate::netlink::ethtool as netlink;
use crate::stage::link::{Channels, Coalesce, Rings, feature_names};
use crate::sys::ethtool as ioctl;

impl Host {
    /// An interface's channels (`ethtool -l`).
    ///
    /// # Errors
    /// [`HostError::Call`] if the interface does not exist or its driver has none.
    pub fn channels(&self, interface: &str) -> Result<Channels, HostError> {
        self.ethtool(interface, "channels", netlink::channels, ioctl::channels)
    }

    /// An interface's rings (`ethtool -g`).
    ///
    /// # Errors
    /// As [`Host::channels`].
    pub fn rings(&self, interface: &str) -> Result<Rings, HostError> {
        self.ethtool(interface, "rings", netlink::rings, ioctl::rings)
    }

    /// An interface's interrupt moderation (`ethtool -c`).
    ///
    /// # Errors
    /// As [`Host::channels`].
    pub fn coalesce(&self, interface: &str) -> Result<Coalesce, HostError> {
        self.ethtool(interface, "coalesce", netlink::coalesce, ioctl::coalesce)
    }

    /// An interface's features by the names `ethtool -k` gives them, and whether they are on.
    ///
    /// # Errors
    /// [`HostError::Call`] if the interface does not exist.
    pub fn features(&self, interface: &str) -> Result<BTreeMap<String, bool>, HostError> {
        let shown = |features: fn(&str) -> io::Result<BTreeMap<String, bool>>| {
            move |interface: &str| features(interface).map(feature_names::shown)
        };
        self.ethtool(interface, "features", shown(netlink::features), shown(ioctl::features))
    }

    /// The statistics of an interface's driver (`ethtool -S`); netlink has no verb for them.
    ///
    /// # Errors
    /// As [`Host::channels`].
    pub fn statistics(&self, interface: &str) -> Result<BTreeMap<String, u64>, HostError> {
        self.ethtool(interface, "statistics", ioctl::statistics, ioctl::statistics)
    }

    /// Sets the lengths of an interface's rings; what is none stays as it is.
    ///
    /// # Errors
    /// [`HostError::Call`]; needs `CAP_NET_ADMIN` in its network namespace.
    pub fn set_rings(&self, interface: &str, rx: Option<u32>, tx: Option<u32>) -> Result<(), HostError> {
        let what = format!("setting the rings of {interface}");
        self.must_be_live(&what)?;
        ioctl::set_rings(interface, rx, tx).map_err(|source| HostError::Call { what, source })
    }

    /// Sets how many channels of each kind an interface has; what is none stays as it is.
    ///
    /// # Errors
    /// As [`Host::set_rings`].
    pub fn set_channels(
        &self,
        interface: &str,
        rx: Option<u32>,
        tx: Option<u32>,
        combined: Option<u32>,
    ) -> Result<(), HostError> {
        let what = format!("setting the channels of {interface}");
        self.must_be_live(&what)?;
        ioctl::set_channels(interface, rx, tx, combined).map_err(|source| HostError::Call { what, source })
    }

    /// Asks `first`, and where that refuses for whatever reason, takes the answer of `second`, whose error is then that
    /// of the driver and not that of a kernel without the netlink family or verb.
    fn ethtool<T: Serialize + DeserializeOwned>(
        &self,
        interface: &str,
        item: &str,
        first: impl FnOnce(&str) -> io::Result<T>,
        second: impl FnOnce(&str) -> io::Result<T>,
    ) -> Result<T, HostError> {
        let what = format!("reading the {item} of {interface}");
        self.call(&format!("ethtool/{interface}/{item}"), &what, || {
            first(interface).or_else(|_| second(interface))
        })
    }
}
