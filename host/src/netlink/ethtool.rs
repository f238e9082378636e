//! Driver settings over the ethtool family of generic netlink (Linux 5.6;
//! Documentation/networking/ethtool-netlink.rst).

use std::collections::BTreeMap;
use std::io;

use super::generic::{GenericFamily, RequestAttributes, attribute, attributes, number, text, u32_of};
use crate::stage::link::{ChannelCounts, CoalesceSettings, RingLengths};

/// `ETHTOOL_A_HEADER_DEV_NAME` of linux/ethtool_netlink.h. Each command's first attribute is the header.
const HEADER: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;

/// `ETHTOOL_MSG_..._GET`.
const GET_FEATURES: u8 = 11;
const GET_RINGS: u8 = 15;
const GET_CHANNELS: u8 = 17;
const GET_COALESCE: u8 = 19;
const SET_RINGS: u8 = 16;
const SET_CHANNELS: u8 = 18;
const SET_COALESCE: u8 = 20;

pub(crate) struct EthtoolConnection(GenericFamily);

impl EthtoolConnection {
    /// `ENOENT` if the kernel has no such family.
    pub(crate) fn open() -> io::Result<Self> {
        GenericFamily::open("ethtool").map(Self)
    }

    /// Sends a query about an interface; `more` follows the header. `EOPNOTSUPP` if the driver or
    /// the kernel does not have the command.
    pub(crate) fn ask(
        &mut self,
        command: u8,
        interface: &str,
        more: impl FnOnce(RequestAttributes) -> RequestAttributes,
    ) -> io::Result<Vec<u8>> {
        self.0.ask(command, &more(about(interface)))
    }

    /// Sends a change. The error contains the kernel's text if it gives one.
    fn act(
        &mut self,
        command: u8,
        interface: &str,
        more: impl FnOnce(RequestAttributes) -> RequestAttributes,
    ) -> io::Result<()> {
        self.0.act(command, &more(about(interface)))
    }
}

fn about(interface: &str) -> RequestAttributes {
    let header = RequestAttributes::default().text(HEADER_DEVICE_NAME, interface);
    RequestAttributes::default().nested(HEADER, &header)
}

pub(crate) fn channels(interface: &str) -> io::Result<ChannelCounts> {
    get(GET_CHANNELS, interface).map(|answer| read_channels(&answer))
}

pub(crate) fn rings(interface: &str) -> io::Result<RingLengths> {
    get(GET_RINGS, interface).map(|answer| read_rings(&answer))
}

pub(crate) fn coalesce(interface: &str) -> io::Result<CoalesceSettings> {
    get(GET_COALESCE, interface).map(|answer| read_coalesce(&answer))
}

/// By the kernel's names.
pub(crate) fn features(interface: &str) -> io::Result<BTreeMap<String, bool>> {
    get(GET_FEATURES, interface).map(|answer| read_features(&answer))
}

/// `None` leaves a length as it is.
pub(crate) fn set_rings(interface: &str, rx: Option<u32>, tx: Option<u32>) -> io::Result<()> {
    set(SET_RINGS, interface, |header| numbers(header, &[(6, rx), (9, tx)]))
}

/// `None` leaves a number as it is.
pub(crate) fn set_channels(
    interface: &str,
    rx: Option<u32>,
    tx: Option<u32>,
    combined: Option<u32>,
) -> io::Result<()> {
    set(SET_CHANNELS, interface, |header| numbers(header, &[(6, rx), (7, tx), (9, combined)]))
}

pub(crate) fn set_coalesce(interface: &str, wanted: &CoalesceSettings) -> io::Result<()> {
    let words = [(2, wanted.rx_usecs), (3, wanted.rx_frames), (6, wanted.tx_usecs), (7, wanted.tx_frames)];
    let flags = [(11, wanted.adaptive_rx), (12, wanted.adaptive_tx)];
    set(SET_COALESCE, interface, |header| {
        flags.iter().fold(numbers(header, &words), |attributes, (kind, flag)| match flag {
            Some(flag) => attributes.bytes(*kind, &[u8::from(*flag)]),
            None => attributes,
        })
    })
}

fn numbers(attributes: RequestAttributes, numbers: &[(u16, Option<u32>)]) -> RequestAttributes {
    numbers.iter().fold(attributes, |attributes, (kind, number)| match number {
        Some(number) => attributes.u32(*kind, *number),
        None => attributes,
    })
}

fn set(
    command: u8,
    interface: &str,
    more: impl FnOnce(RequestAttributes) -> RequestAttributes,
) -> io::Result<()> {
    EthtoolConnection::open()?.act(command, interface, more)
}

fn get(command: u8, interface: &str) -> io::Result<Vec<u8>> {
    EthtoolConnection::open()?.ask(command, interface, |header| header)
}

/// `ETHTOOL_A_CHANNELS_...`: kinds that the device does not have are absent
/// (net/ethtool/channels.c).
fn read_channels(answer: &[u8]) -> ChannelCounts {
    let count = |kind| u32_of(answer, kind).unwrap_or(0);
    ChannelCounts {
        rx_max: count(2),
        tx_max: count(3),
        combined_max: count(5),
        rx: count(6),
        tx: count(7),
        combined: count(9),
    }
}

/// `ETHTOOL_A_RINGS_...`: kinds that the device does not have are absent (net/ethtool/rings.c).
fn read_rings(answer: &[u8]) -> RingLengths {
    let length = |kind| u32_of(answer, kind).unwrap_or(0);
    RingLengths { rx_max: length(2), tx_max: length(5), rx: length(6), tx: length(9) }
}

/// `ETHTOOL_A_COALESCE_...`: parameters that the driver does not have are absent
/// (net/ethtool/coalesce.c).
fn read_coalesce(answer: &[u8]) -> CoalesceSettings {
    let flag = |kind| attribute(answer, kind).and_then(number).map(|value| value != 0);
    CoalesceSettings {
        rx_usecs: u32_of(answer, 2),
        rx_frames: u32_of(answer, 3),
        tx_usecs: u32_of(answer, 6),
        tx_frames: u32_of(answer, 7),
        adaptive_rx: flag(11),
        adaptive_tx: flag(12),
    }
}

/// `ETHTOOL_A_FEATURES_HW` lists every feature, `_ACTIVE` the enabled ones
/// (net/ethtool/features.c).
fn read_features(answer: &[u8]) -> BTreeMap<String, bool> {
    let mut features: BTreeMap<String, bool> =
        names(attribute(answer, 2).unwrap_or_default()).map(|name| (name, false)).collect();
    features.extend(names(attribute(answer, 4).unwrap_or_default()).map(|name| (name, true)));
    features
}

/// The names in a bit set: `ETHTOOL_A_BITSET_BITS` has a nested attribute per bit, with
/// `ETHTOOL_A_BITSET_BIT_NAME` in it.
fn names(bitset: &[u8]) -> impl Iterator<Item = String> {
    attributes(attribute(bitset, 3).unwrap_or_default())
        .filter_map(|(_, bit)| attribute(bit, 2).map(text))
        .filter(|name| !name.is_empty())
}

/// Fuzzer entry.
pub(crate) fn any_answer(bytes: &[u8]) {
    let _ = (read_channels(bytes), read_rings(bytes), read_coalesce(bytes), read_features(bytes));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::generic::words;

    #[test]
    fn what_a_device_has_not_is_zero_or_none() {
        let channels = read_channels(&words(&[(5, 4), (9, 1)]));
        assert_eq!(channels, ChannelCounts { combined_max: 4, combined: 1, ..ChannelCounts::default() });
        let rings = read_rings(&words(&[(2, 4096), (5, 4096), (6, 512), (9, 256)]));
        assert_eq!(rings, RingLengths { rx: 512, tx: 256, rx_max: 4096, tx_max: 4096 });
        let coalesce = read_coalesce(&words(&[(2, 50), (11, 1)]));
        assert_eq!(
            coalesce,
            CoalesceSettings { rx_usecs: Some(50), adaptive_rx: Some(true), ..CoalesceSettings::default() }
        );
        assert_eq!(read_coalesce(&[]), CoalesceSettings::default());
    }

    #[test]
    fn netlink_and_the_ioctl_tell_the_same_of_every_interface() {
        let interfaces = std::fs::read_dir("/sys/class/net").expect("the interfaces");
        for interface in interfaces.filter_map(Result::ok) {
            let interface = interface.file_name().to_string_lossy().into_owned();
            // A concurrent test may remove the interface.
            if let Ok(features) = features(&interface) {
                assert!(features.contains_key("rx-gro"), "{interface}: {features:?}");
                let again = crate::sys::ethtool::features(&interface);
                if let Ok(again) = again {
                    assert_eq!(features, again, "{interface}");
                }
            }
            if let (Ok(rings), Ok(again)) = (rings(&interface), crate::sys::ethtool::rings(&interface)) {
                assert_eq!(rings, again, "{interface}");
            }
            if let (Ok(one), Ok(again)) = (channels(&interface), crate::sys::ethtool::channels(&interface)) {
                assert_eq!(one, again, "{interface}");
            }
            if let (Ok(one), Ok(again)) = (coalesce(&interface), crate::sys::ethtool::coalesce(&interface)) {
                assert_eq!(one.rx_usecs.unwrap_or(0), again.rx_usecs.unwrap_or(0), "{interface}");
                assert_eq!(one.rx_frames.unwrap_or(0), again.rx_frames.unwrap_or(0), "{interface}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            any_answer(&bytes);
        }
    }
}
