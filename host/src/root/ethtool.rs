//! What an interface's driver tells: over generic netlink, or where the kernel is too old for that, by the ioctl.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ExplainedErrno, Host, HostError};
use crate::netlink::ethtool as netlink;
use crate::setting::Offload;
use crate::stage::link::{ChannelCounts, CoalesceSettings, RingLengths, feature_names};
use crate::sys::ethtool as ioctl;

impl Host {
    /// An interface's channels (`ethtool -l`).
    ///
    /// # Errors
    /// [`HostError::Call`] if the interface does not exist or its driver has none.
    pub fn channels(&self, interface: &str) -> Result<ChannelCounts, HostError> {
        self.ethtool(interface, "channels", netlink::channels, ioctl::channels)
    }

    /// An interface's rings (`ethtool -g`).
    ///
    /// # Errors
    /// As [`Host::channels`].
    pub fn rings(&self, interface: &str) -> Result<RingLengths, HostError> {
        self.ethtool(interface, "rings", netlink::rings, ioctl::rings)
    }

    /// An interface's interrupt moderation (`ethtool -c`).
    ///
    /// # Errors
    /// As [`Host::channels`].
    pub fn coalesce(&self, interface: &str) -> Result<CoalesceSettings, HostError> {
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

    /// Whether an offload of an interface is on.
    ///
    /// # Errors
    /// [`HostError::Call`] if the interface does not exist; `EOPNOTSUPP` if the kernel has no such offload.
    pub fn offload(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let on = self.features(interface)?.get(offload.name()).copied();
        on.ok_or_else(|| unknown_offload(interface, offload))
    }

    /// Switches an offload of an interface (`ETHTOOL_SFEATURES`, Linux 2.6.39).
    ///
    /// # Errors
    /// [`HostError::Call`] naming the interface, `EOPNOTSUPP` where the kernel has no such offload or the device has it
    /// fixed; needs `CAP_NET_ADMIN` in its network namespace.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<(), HostError> {
        let what = format!("switching {offload} of {interface} {}", if on { "on" } else { "off" });
        self.offload(interface, offload)?;
        let act = || ioctl::set_feature(interface, |name| feature_names::is_of(offload.name(), name), on);
        let rehearse = |answer: &mut BTreeMap<String, bool>| {
            answer.insert(offload.name().to_owned(), on);
        };
        self.act(&format!("ethtool/{interface}/features"), &what, act, rehearse)
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
        let netlink = || netlink::set_rings(interface, rx, tx);
        let act = || by_either(netlink, || ioctl::set_rings(interface, rx, tx));
        self.act(&format!("ethtool/{interface}/rings"), &what, act, |answer: &mut RingLengths| {
            answer.rx = rx.unwrap_or(answer.rx);
            answer.tx = tx.unwrap_or(answer.tx);
        })
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
        let netlink = || netlink::set_channels(interface, rx, tx, combined);
        let act = || by_either(netlink, || ioctl::set_channels(interface, rx, tx, combined));
        self.act(&format!("ethtool/{interface}/channels"), &what, act, |answer: &mut ChannelCounts| {
            answer.rx = rx.unwrap_or(answer.rx);
            answer.tx = tx.unwrap_or(answer.tx);
            answer.combined = combined.unwrap_or(answer.combined);
        })
    }

    /// Sets an interface's interrupt moderation; what is none stays as it is.
    ///
    /// # Errors
    /// As [`Host::set_rings`]; `EOPNOTSUPP` where the driver has not one of these.
    pub fn set_coalesce(&self, interface: &str, wanted: &CoalesceSettings) -> Result<(), HostError> {
        let what = format!("setting the interrupt moderation of {interface}");
        let netlink = || netlink::set_coalesce(interface, wanted);
        let act = || by_either(netlink, || ioctl::set_coalesce(interface, wanted));
        self.act(&format!("ethtool/{interface}/coalesce"), &what, act, |answer: &mut CoalesceSettings| {
            answer.rx_usecs = wanted.rx_usecs.or(answer.rx_usecs);
            answer.rx_frames = wanted.rx_frames.or(answer.rx_frames);
            answer.tx_usecs = wanted.tx_usecs.or(answer.tx_usecs);
            answer.tx_frames = wanted.tx_frames.or(answer.tx_frames);
            answer.adaptive_rx = wanted.adaptive_rx.or(answer.adaptive_rx);
            answer.adaptive_tx = wanted.adaptive_tx.or(answer.adaptive_tx);
        })
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

/// Sets by netlink, which says in words why not, or where the kernel is too old for its family or verb, by the ioctl.
fn by_either(
    netlink: impl FnOnce() -> io::Result<()>,
    ioctl: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match netlink() {
        // The family, or its verb, is not there; a driver that has not what is asked for says so in words, or twice.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => ioctl(),
        outcome => outcome,
    }
}

fn unknown_offload(interface: &str, offload: Offload) -> HostError {
    let what = format!("reading {offload} of {interface}");
    let words = "this kernel has no such offload".to_owned();
    HostError::Call { what, source: ExplainedErrno { errno: libc::EOPNOTSUPP, words }.into() }
}
