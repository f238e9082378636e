//! Driver settings of an interface: over generic netlink, or by ioctl on older kernels.

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
    /// As `ethtool -l`.
    pub fn channels(&self, interface: &str) -> Result<ChannelCounts, HostError> {
        self.ethtool(interface, "channels", netlink::channels, ioctl::channels)
    }

    /// As `ethtool -g`.
    pub fn rings(&self, interface: &str) -> Result<RingLengths, HostError> {
        self.ethtool(interface, "rings", netlink::rings, ioctl::rings)
    }

    /// As `ethtool -c`.
    pub fn coalesce(&self, interface: &str) -> Result<CoalesceSettings, HostError> {
        self.ethtool(interface, "coalesce", netlink::coalesce, ioctl::coalesce)
    }

    /// By the names of `ethtool -k`.
    pub fn features(&self, interface: &str) -> Result<BTreeMap<String, bool>, HostError> {
        let shown = |features: fn(&str) -> io::Result<BTreeMap<String, bool>>| {
            move |interface: &str| features(interface).map(feature_names::shown)
        };
        self.ethtool(interface, "features", shown(netlink::features), shown(ioctl::features))
    }

    /// `EOPNOTSUPP` if the kernel has no such offload.
    pub fn offload(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let on = self.features(interface)?.get(offload.name()).copied();
        on.ok_or_else(|| unknown_offload(interface, offload))
    }

    /// Sets an offload (`ETHTOOL_SFEATURES`, Linux 2.6.39). `EOPNOTSUPP` if the kernel has no such
    /// offload or the device has it fixed. Requires `CAP_NET_ADMIN` in the network namespace.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<(), HostError> {
        let what = format!("switching {offload} of {interface} {}", if on { "on" } else { "off" });
        self.offload(interface, offload)?;
        let act = || ioctl::set_feature(interface, |name| feature_names::is_of(offload.name(), name), on);
        let rehearse = |answer: &mut BTreeMap<String, bool>| {
            answer.insert(offload.name().to_owned(), on);
        };
        self.act(&format!("ethtool/{interface}/features"), &what, act, rehearse)
    }

    /// As `ethtool -S`; netlink has no command for them.
    pub fn statistics(&self, interface: &str) -> Result<BTreeMap<String, u64>, HostError> {
        self.ethtool(interface, "statistics", ioctl::statistics, ioctl::statistics)
    }

    /// `None` leaves a length as it is. Requires `CAP_NET_ADMIN` in the network namespace.
    pub fn set_rings(&self, interface: &str, rx: Option<u32>, tx: Option<u32>) -> Result<(), HostError> {
        let what = format!("setting the rings of {interface}");
        let netlink = || netlink::set_rings(interface, rx, tx);
        let act = || by_either(netlink, || ioctl::set_rings(interface, rx, tx));
        self.act(&format!("ethtool/{interface}/rings"), &what, act, |answer: &mut RingLengths| {
            answer.rx = rx.unwrap_or(answer.rx);
            answer.tx = tx.unwrap_or(answer.tx);
        })
    }

    /// `None` leaves a number as it is.
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

    /// `EOPNOTSUPP` if the driver does not have one of the parameters.
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

    /// Calls `first`, and if it fails for any reason, returns the result of `second`, whose error
    /// is the driver's, not that of a kernel without the netlink family or command.
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

/// Sets by netlink, which returns error texts, or by ioctl if the kernel is too old for the family
/// or the command.
fn by_either(
    netlink: impl FnOnce() -> io::Result<()>,
    ioctl: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    match netlink() {
        // The family or its command does not exist; a driver without the setting returns a text, or
        // fails twice.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => ioctl(),
        outcome => outcome,
    }
}

fn unknown_offload(interface: &str, offload: Offload) -> HostError {
    let what = format!("reading {offload} of {interface}");
    let words = "this kernel has no such offload".to_owned();
    HostError::Call { what, source: ExplainedErrno { errno: libc::EOPNOTSUPP, words }.into() }
}
