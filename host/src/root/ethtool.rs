//! Driver settings of an interface: through generic netlink, or by ioctl on older kernels.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ExplainedErrno, Host, HostError};
use crate::ethtool::{ChannelCounts, CoalesceSettings, RingLengths, feature_names};
use crate::netlink::ethtool as netlink;
use crate::setting::Offload;
use crate::sys::ethtool::{self as ioctl, CHANNELS, COALESCE, EthtoolWords, RINGS, WordStructure};

impl Host {
    /// The values of `ethtool -l`.
    pub fn channels(&self, interface: &str) -> Result<ChannelCounts, HostError> {
        self.read_words(interface, "channels", &CHANNELS)
    }

    /// The values of `ethtool -g`.
    pub fn rings(&self, interface: &str) -> Result<RingLengths, HostError> {
        self.read_words(interface, "rings", &RINGS)
    }

    /// The values of `ethtool -c`.
    pub fn coalesce(&self, interface: &str) -> Result<CoalesceSettings, HostError> {
        self.read_words(interface, "coalesce", &COALESCE)
    }

    /// Keyed by the names of `ethtool -k`.
    pub fn features(&self, interface: &str) -> Result<BTreeMap<String, bool>, HostError> {
        self.call_ethtool(interface, "features", || {
            ioctl::features(interface).map(feature_names::with_ethtool_names)
        })
    }

    /// `EOPNOTSUPP` if the kernel has no such offload.
    pub fn offload(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let on = self.features(interface)?.get(offload.name()).copied();
        on.ok_or_else(|| unknown_offload(interface, offload))
    }

    /// Whether the device supports changing an offload: not `[fixed]` in `ethtool -k`
    /// (`ETHTOOL_GFEATURES`, Linux 2.6.39).
    pub fn is_offload_changeable(&self, interface: &str, offload: Offload) -> Result<bool, HostError> {
        let operation = format!("reading whether {offload} of {interface} can be changed");
        let read = || {
            ioctl::is_feature_changeable(interface, |name| {
                feature_names::covers_kernel_name(offload.name(), name)
            })
        };
        self.call(&format!("ethtool/{interface}/changeable/{}", offload.name()), &operation, read)
    }

    /// Sets an offload (`ETHTOOL_SFEATURES`, Linux 2.6.39). `EOPNOTSUPP` if the kernel has no such
    /// offload or the device has it fixed. Requires `CAP_NET_ADMIN` in the network namespace.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<(), HostError> {
        let operation = format!("switching {offload} of {interface} {}", if on { "on" } else { "off" });
        self.offload(interface, offload)?;
        let change = || {
            ioctl::set_feature(interface, |name| feature_names::covers_kernel_name(offload.name(), name), on)
        };
        let rehearse = |answer: &mut BTreeMap<String, bool>| {
            answer.insert(offload.name().to_owned(), on);
        };
        self.apply_change(&format!("ethtool/{interface}/features"), &operation, change, rehearse)
    }

    /// The values of `ethtool -S`.
    pub fn statistics(&self, interface: &str) -> Result<BTreeMap<String, u64>, HostError> {
        self.call_ethtool(interface, "statistics", || ioctl::statistics(interface))
    }

    /// `None` leaves a length unchanged. Requires `CAP_NET_ADMIN` in the network namespace.
    pub fn set_rings(&self, interface: &str, rx: Option<u32>, tx: Option<u32>) -> Result<(), HostError> {
        let changes = [(5, rx), (8, tx)];
        self.set_words(interface, ("rings", "rings"), &RINGS, &changes, |answer: &mut RingLengths| {
            answer.rx = rx.unwrap_or(answer.rx);
            answer.tx = tx.unwrap_or(answer.tx);
        })
    }

    /// `None` leaves a number unchanged.
    pub fn set_channels(
        &self,
        interface: &str,
        rx: Option<u32>,
        tx: Option<u32>,
        combined: Option<u32>,
    ) -> Result<(), HostError> {
        let (names, changes) = (("channels", "channels"), [(5, rx), (6, tx), (8, combined)]);
        self.set_words(interface, names, &CHANNELS, &changes, |answer: &mut ChannelCounts| {
            answer.rx = rx.unwrap_or(answer.rx);
            answer.tx = tx.unwrap_or(answer.tx);
            answer.combined = combined.unwrap_or(answer.combined);
        })
    }

    /// `EOPNOTSUPP` if the driver does not have one of the parameters.
    pub fn set_coalesce(&self, interface: &str, settings: &CoalesceSettings) -> Result<(), HostError> {
        let changes = [
            (1, settings.rx_usecs),
            (2, settings.rx_frames),
            (5, settings.tx_usecs),
            (6, settings.tx_frames),
            (10, settings.adaptive_rx.map(u32::from)),
            (11, settings.adaptive_tx.map(u32::from)),
        ];
        let names = ("coalesce", "interrupt moderation");
        self.set_words(interface, names, &COALESCE, &changes, |answer: &mut CoalesceSettings| {
            answer.rx_usecs = settings.rx_usecs.or(answer.rx_usecs);
            answer.rx_frames = settings.rx_frames.or(answer.rx_frames);
            answer.tx_usecs = settings.tx_usecs.or(answer.tx_usecs);
            answer.tx_frames = settings.tx_frames.or(answer.tx_frames);
            answer.adaptive_rx = settings.adaptive_rx.or(answer.adaptive_rx);
            answer.adaptive_tx = settings.adaptive_tx.or(answer.adaptive_tx);
        })
    }

    fn read_words<T: From<EthtoolWords> + Serialize + DeserializeOwned>(
        &self,
        interface: &str,
        item: &str,
        structure: &WordStructure,
    ) -> Result<T, HostError> {
        // If netlink fails for any reason, the error of the ioctl is the driver's, not that of a
        // kernel without the netlink family or command.
        self.call_ethtool(interface, item, || {
            netlink::read(structure, interface).or_else(|_| structure.read(interface)).map(T::from)
        })
    }

    // Changes words through netlink, which returns error texts, or by ioctl if the kernel is too
    // old for the family or the command.
    fn set_words<T: Serialize + DeserializeOwned>(
        &self,
        interface: &str,
        (item, name): (&str, &str),
        structure: &WordStructure,
        changes: &[(usize, Option<u32>)],
        rehearse: impl FnOnce(&mut T),
    ) -> Result<(), HostError> {
        let change = || match netlink::change(structure, interface, changes) {
            // The family or its command does not exist; a driver without the setting returns a
            // text, or fails twice.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
                structure.change(interface, changes)
            }
            result => result,
        };
        let operation = format!("setting the {name} of {interface}");
        self.apply_change(&format!("ethtool/{interface}/{item}"), &operation, change, rehearse)
    }

    fn call_ethtool<T: Serialize + DeserializeOwned>(
        &self,
        interface: &str,
        item: &str,
        perform: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, HostError> {
        let operation = format!("reading the {item} of {interface}");
        self.call(&format!("ethtool/{interface}/{item}"), &operation, perform)
    }
}

fn word(words: &EthtoolWords, index: usize) -> Option<u32> {
    words.get(index).copied().flatten()
}

impl From<EthtoolWords> for RingLengths {
    fn from(words: EthtoolWords) -> Self {
        let length = |index| word(&words, index).unwrap_or(0);
        RingLengths { rx_max: length(1), tx_max: length(4), rx: length(5), tx: length(8) }
    }
}

impl From<EthtoolWords> for ChannelCounts {
    fn from(words: EthtoolWords) -> Self {
        let count = |index| word(&words, index).unwrap_or(0);
        ChannelCounts {
            rx_max: count(1),
            tx_max: count(2),
            combined_max: count(4),
            rx: count(5),
            tx: count(6),
            combined: count(8),
        }
    }
}

impl From<EthtoolWords> for CoalesceSettings {
    fn from(words: EthtoolWords) -> Self {
        let flag = |index| word(&words, index).map(|flag| flag != 0);
        CoalesceSettings {
            rx_usecs: word(&words, 1),
            rx_frames: word(&words, 2),
            tx_usecs: word(&words, 5),
            tx_frames: word(&words, 6),
            adaptive_rx: flag(10),
            adaptive_tx: flag(11),
        }
    }
}

fn unknown_offload(interface: &str, offload: Offload) -> HostError {
    HostError::Call {
        what: format!("reading {offload} of {interface}"),
        source: ExplainedErrno::error(libc::EOPNOTSUPP, "this kernel has no such offload"),
    }
}
