//! Offloads of an interface (`ethtool -K`).

use serde::{Deserialize, Serialize};

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::{Host, HostError};

const EXPECTED: &str = "on or off";

/// An offload by its `ethtool -k` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Offload {
    /// GRO: received packets of a flow are merged before the stack sees them (Linux 2.6.29).
    #[strum(serialize = "generic-receive-offload")]
    GenericReceive,
    /// GRO in the NIC; merged packets can be split again (4.16).
    #[strum(serialize = "rx-gro-hw")]
    HardwareGenericReceive,
    /// LRO: TCP packets are merged by the NIC or driver and cannot be split; not for forwarded
    /// packets.
    #[strum(serialize = "large-receive-offload")]
    LargeReceive,
    /// Merged packets are kept as a list of the originals, which is cheaper to split (5.6).
    #[strum(serialize = "rx-gro-list")]
    ReceiveList,
    /// Also merges UDP that is forwarded, or goes to a socket that did not request it (5.12).
    #[strum(serialize = "rx-udp-gro-forwarding")]
    UdpReceiveForwarding,
    /// TSO.
    #[strum(serialize = "tcp-segmentation-offload")]
    TcpSegmentation,
    /// GSO: packets are split as late as possible (2.6.18).
    #[strum(serialize = "generic-segmentation-offload")]
    GenericSegmentation,
    /// UDP segmentation in the NIC, for sockets with `UDP_SEGMENT` (4.18).
    #[strum(serialize = "tx-udp-segmentation")]
    UdpSegmentation,
    /// The NIC's checksum of received packets is used.
    #[strum(serialize = "rx-checksumming")]
    ReceiveChecksum,
    /// The NIC's hash of received packets is used.
    ReceiveHashing,
    /// The NIC accepts rules that direct flows to queues.
    NtupleFilters,
}

impl Offload {
    /// The name in `ethtool -k` and `-K`.
    pub fn name(self) -> &'static str {
        self.into()
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

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        parse(value).map(|_| value.to_string())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let on = parse(value)?;
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
