//! Driver settings through the ethtool family of generic netlink (Linux 5.6;
//! Documentation/networking/ethtool-netlink.rst).

use std::io;

use super::attribute::{RequestAttributes, u32_of};
use super::generic::GenericFamily;
use crate::sys::ethtool::{CHANNELS, COALESCE, EthtoolWords, WordParameter, WordStructure};

// `ETHTOOL_A_HEADER_DEV_NAME` of linux/ethtool_netlink.h. Each command's first attribute is the header.
const HEADER: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;

// `EOPNOTSUPP` if the driver or the kernel does not have the command, `ENOENT` if the kernel does
// not have the family.
pub(crate) fn read(structure: &WordStructure, interface: &str) -> io::Result<EthtoolWords> {
    let answer =
        GenericFamily::open("ethtool")?.request(structure.netlink_get, &device_request(interface))?;
    Ok(parse_words(structure, &answer))
}

// The error contains the kernel's text if the kernel sends one.
pub(crate) fn change(
    structure: &WordStructure,
    interface: &str,
    changes: &[(&WordParameter, u32)],
) -> io::Result<()> {
    let mut attributes = device_request(interface);
    for (parameter, value) in changes {
        let kind = u16::try_from(parameter.index + 1).map_err(io::Error::other)?;
        attributes = if parameter.is_flag() {
            attributes.bytes(kind, &[u8::from(*value != 0)])
        } else {
            attributes.u32(kind, *value)
        };
    }
    GenericFamily::open("ethtool")?.send(structure.netlink_set, &attributes)
}

fn device_request(interface: &str) -> RequestAttributes {
    let header = RequestAttributes::default().text(HEADER_DEVICE_NAME, interface);
    RequestAttributes::default().nested(HEADER, &header)
}

// Words that the device does not have are absent (net/ethtool/channels.c, rings.c, coalesce.c).
fn parse_words(structure: &WordStructure, answer: &[u8]) -> EthtoolWords {
    (0..structure.length).map(|index| u32_of(answer, u16::try_from(index + 1).ok()?)).collect()
}

/// Fuzzer entry.
pub(crate) fn any_answer(bytes: &[u8]) {
    let _ = (parse_words(&CHANNELS, bytes), parse_words(&COALESCE, bytes));
}

#[cfg(test)]
mod tests {
    use linerate_testkit::skip;

    use super::*;
    use crate::ethtool::{ChannelCounts, CoalesceSettings, RingLengths};
    use crate::netlink::attribute::words;
    use crate::sys::ethtool::RINGS;

    #[test]
    fn missing_ethtool_attributes_are_zero_or_none() {
        fn answer<T: serde::de::DeserializeOwned>(structure: &WordStructure, kinds: &[(u16, u32)]) -> T {
            let answer = structure.answer(&parse_words(structure, &words(kinds)));
            serde_json::from_value(answer).expect("an answer")
        }
        let channels: ChannelCounts = answer(&CHANNELS, &[(5, 4), (9, 1)]);
        assert_eq!(channels, ChannelCounts { combined_max: 4, combined: 1, ..ChannelCounts::default() });
        let rings: RingLengths = answer(&RINGS, &[(2, 4096), (5, 4096), (6, 512), (9, 256)]);
        assert_eq!(rings, RingLengths { rx: 512, tx: 256, rx_max: 4096, tx_max: 4096 });
        let coalesce: CoalesceSettings = answer(&COALESCE, &[(2, 50), (11, 1)]);
        assert_eq!(
            coalesce,
            CoalesceSettings { rx_usecs: Some(50), adaptive_rx: Some(true), ..CoalesceSettings::default() }
        );
        assert_eq!(answer::<CoalesceSettings>(&COALESCE, &[]), CoalesceSettings::default());
    }

    #[test]
    fn netlink_and_ioctl_return_equal_values_for_every_interface() {
        // Before Linux 5.6, or without CONFIG_ETHTOOL_NETLINK.
        if let Err(error) = GenericFamily::open("ethtool") {
            return skip("netlink_and_ioctl_return_equal_values_for_every_interface", error);
        }
        let interfaces = std::fs::read_dir("/sys/class/net").expect("the interfaces");
        for interface in interfaces.filter_map(Result::ok) {
            let interface = interface.file_name().to_string_lossy().into_owned();
            // A concurrent test may remove the interface.
            for structure in [&RINGS, &CHANNELS, &COALESCE] {
                if let (Ok(one), Ok(again)) = (read(structure, &interface), structure.read(&interface)) {
                    for (place, (one, again)) in one.iter().zip(again).enumerate().skip(1) {
                        assert!(one.is_none_or(|one| Some(one) == again), "{interface}: word {place}");
                    }
                }
            }
        }
    }
}
