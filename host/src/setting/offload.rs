//! Offloads of an interface (`ethtool -K`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::{Host, HostError};

const EXPECTED: &str = "on or off";

/// An offload by its `ethtool -k` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// GRO: received packets of a flow are merged before the stack sees them (Linux 2.6.29).
    GenericReceive,
    /// GRO in the NIC; merged packets can be split again (4.16).
    HardwareGenericReceive,
    /// LRO: TCP packets are merged by the NIC or driver and cannot be split; not for forwarded
    /// packets.
    LargeReceive,
    /// Merged packets are kept as a list of the originals, which is cheaper to split (5.6).
    ReceiveList,
    /// Also merges UDP that is forwarded, or goes to a socket that did not request it (5.12).
    UdpReceiveForwarding,
    /// TSO.
    TcpSegmentation,
    /// GSO: packets are split as late as possible (2.6.18).
    GenericSegmentation,
    /// UDP segmentation in the NIC, for sockets with `UDP_SEGMENT` (4.18).
    UdpSegmentation,
    /// The NIC's checksum of received packets is used.
    ReceiveChecksum,
    /// The NIC's hash of received packets is used.
    ReceiveHashing,
    /// The NIC accepts rules that direct flows to queues.
    NtupleFilters,
}

impl Offload {
    pub const ALL: [Offload; 11] = [
        Offload::GenericReceive,
        Offload::HardwareGenericReceive,
        Offload::LargeReceive,
        Offload::ReceiveList,
        Offload::UdpReceiveForwarding,
        Offload::TcpSegmentation,
        Offload::GenericSegmentation,
        Offload::UdpSegmentation,
        Offload::ReceiveChecksum,
        Offload::ReceiveHashing,
        Offload::NtupleFilters,
    ];

    /// The name in `ethtool -k` and `-K`.
    pub fn name(self) -> &'static str {
        match self {
            Offload::GenericReceive => "generic-receive-offload",
            Offload::HardwareGenericReceive => "rx-gro-hw",
            Offload::LargeReceive => "large-receive-offload",
            Offload::ReceiveList => "rx-gro-list",
            Offload::UdpReceiveForwarding => "rx-udp-gro-forwarding",
            Offload::TcpSegmentation => "tcp-segmentation-offload",
            Offload::GenericSegmentation => "generic-segmentation-offload",
            Offload::UdpSegmentation => "tx-udp-segmentation",
            Offload::ReceiveChecksum => "rx-checksumming",
            Offload::ReceiveHashing => "receive-hashing",
            Offload::NtupleFilters => "ntuple-filters",
        }
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

pub(super) struct OffloadKnob<'a> {
    pub(super) interface: &'a str,
    pub(super) offload: Offload,
}

impl Knob for OffloadKnob<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.interface, self.offload)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.offload(self.interface, self.offload).map(|on| SettingValue::new(if on { "on" } else { "off" }))
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        parse(value).map(|_| ())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let on = parse(value).map_err(WriteRefusal::BadValue)?;
        Ok(host.set_offload(self.interface, self.offload, on)?)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("ethtool -K {} {} {value}", self.interface, self.offload))
    }
}

fn parse(value: &SettingValue) -> Result<bool, &'static str> {
    match value.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    const PATH: &str = "/calls/ethtool/eth0/features.json";

    fn setting(offload: Offload) -> Setting {
        Setting::Offload { interface: "eth0".into(), offload }
    }

    #[test]
    fn switched_offload_is_visible_in_the_features() {
        let host = Host::scripted([(PATH, r#"{"generic-receive-offload": true, "rx-gro-list": false}"#)]);
        let gro = setting(Offload::GenericReceive);
        gro.write(&host, &SettingValue::new("off")).expect("written");
        assert_eq!(gro.read(&host).expect("read").as_str(), "off");
        assert_eq!(host.features("eth0").expect("features").get("generic-receive-offload"), Some(&false));
        assert!(gro.check(&SettingValue::new("yes")).is_err());
        assert_eq!(
            gro.command(&SettingValue::new("on")).as_deref(),
            Some("ethtool -K eth0 generic-receive-offload on")
        );
    }

    #[test]
    fn offload_missing_in_the_kernel_is_unsupported() {
        let host = Host::scripted([(PATH, r#"{"generic-receive-offload": true}"#)]);
        let setting = setting(Offload::ReceiveList);
        assert!(setting.read(&host).expect_err("not there").is_unsupported());
        assert!(setting.write(&host, &SettingValue::new("on")).expect_err("not there").is_unsupported());
    }
}
