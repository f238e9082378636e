//! The identity of a network device over boots.

use linerate_host::{Host, HostError};
use serde::{Deserialize, Serialize};

/// Identifies an interface over boots, in which the index and the name of hardware may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceIdentity {
    /// Its name when the file was written, which alone identifies a software interface such as a bond.
    pub interface: String,
    /// Path below `/sys/devices`, such as `pci0000:00/0000:00:02.0`; `None` for a software interface.
    pub attached_at: Option<String>,
    /// The port of that device (`/sys/class/net/IF/dev_port`), if known.
    pub port: Option<u32>,
    pub address: String,
}

impl DeviceIdentity {
    pub fn observe(host: &Host, interface: &str) -> Result<Self, HostError> {
        let file = |name: &str| host.read(&format!("/sys/class/net/{interface}/{name}"));
        let address = file("address")?.trim().to_owned();
        let link = host.read_link(&format!("/sys/class/net/{interface}")).ok();
        let attached_at = link.as_deref().and_then(attachment).map(str::to_owned);
        let port = file("dev_port").ok().and_then(|port| port.trim().parse().ok());
        Ok(Self { interface: interface.to_owned(), attached_at, port, address })
    }

    /// All existing interfaces.
    ///
    /// # Errors
    /// [`HostError`] if interfaces cannot be listed. An interface that disappears meanwhile is omitted.
    pub(crate) fn present(host: &Host) -> Result<Vec<Self>, HostError> {
        let names = host.list("/sys/class/net")?;
        Ok(names.iter().filter_map(|name| Self::observe(host, name).ok()).collect())
    }

    // The name of the device among the present interfaces, or why it is absent.
    //
    // Hardware is found by its attachment; if nothing is attached there, by its hardware address, because
    // the card may have been moved. The attachment goes first because the interfaces of a bond share one
    // address. A software interface is found by its name.
    pub(crate) fn find(&self, present: &[DeviceIdentity]) -> Result<String, String> {
        let Some(attachment) = &self.attached_at else {
            let namesake = present.iter().find(|other| other.interface == self.interface);
            return match namesake {
                Some(other) if other.attached_at.is_none() => Ok(self.interface.clone()),
                Some(_) => Err(format!("{} is another device now", self.interface)),
                None => Err(format!("there is no interface {}", self.interface)),
            };
        };
        let attached: Vec<_> = present
            .iter()
            .filter(|other| other.attached_at.as_ref() == Some(attachment) && other.port == self.port)
            .collect();
        if attached.is_empty() {
            return self.find_by_address(present, attachment);
        }
        // Several interfaces of one port are representors of an embedded switch, or functions below the PCI function.
        let only_match = |is_same: &dyn Fn(&DeviceIdentity) -> bool| match attached.as_slice() {
            [only] => Some(only.interface.clone()),
            several => {
                let mut matching = several.iter().filter(|other| is_same(other));
                matching.next().filter(|_| matching.next().is_none()).map(|other| other.interface.clone())
            }
        };
        only_match(&|other| other.address == self.address)
            .or_else(|| only_match(&|other| other.interface == self.interface))
            .ok_or_else(|| {
                format!("several interfaces are attached at {attachment}, and none is {}", self.interface)
            })
    }

    fn find_by_address(&self, present: &[DeviceIdentity], attachment: &str) -> Result<String, String> {
        let is_same = |other: &&DeviceIdentity| other.attached_at.is_some() && other.address == self.address;
        let candidates: Vec<_> = present.iter().filter(is_same).collect();
        match candidates.as_slice() {
            [only] => Ok(only.interface.clone()),
            _ => Err(format!(
                "no interface is attached at {attachment}, and {} has the address {}",
                if candidates.is_empty() { "none" } else { "more than one" },
                self.address
            )),
        }
    }
}

// The attachment in the target of `/sys/class/net/IF`: `../../devices/ATTACHMENT/net/IF`. A `virtioN` at
// its end is removed, because devices are numbered in the order of discovery (Linux 6.18
// drivers/virtio/virtio.c, `register_virtio_device`), so that another disk changes the number.
fn attachment(link: &str) -> Option<&str> {
    let (_, relative) = link.split_once("devices/")?;
    let (path, _) = relative.rsplit_once("/net/")?;
    if path.starts_with("virtual/") || path == "virtual" {
        return None;
    }
    match path.rsplit_once('/') {
        Some((parent, last)) if last.strip_prefix("virtio").is_some_and(is_number) => Some(parent),
        _ => Some(path),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(interface: &str, place: &str, port: u32, address: &str) -> DeviceIdentity {
        DeviceIdentity {
            interface: interface.into(),
            attached_at: Some(place.into()),
            port: Some(port),
            address: address.into(),
        }
    }

    fn software(interface: &str) -> DeviceIdentity {
        DeviceIdentity {
            interface: interface.into(),
            attached_at: None,
            port: Some(0),
            address: "02::".into(),
        }
    }

    fn position(name: &str) -> Result<String, String> {
        Ok(name.into())
    }

    #[test]
    fn attachment_is_parsed_from_the_sysfs_device_link() {
        let parse = |link| attachment(link);
        assert_eq!(
            parse("../../devices/pci0000:00/0000:00:1c.0/0000:03:00.1/net/ens3f1"),
            Some("pci0000:00/0000:00:1c.0/0000:03:00.1")
        );
        assert_eq!(
            parse("../../devices/pci0000:00/0000:00:03.0/virtio1/net/eth0"),
            Some("pci0000:00/0000:00:03.0")
        );
        assert_eq!(
            parse("../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/000d3a/net/eth0"),
            Some("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/000d3a")
        );
        assert_eq!(parse("../../devices/virtual/net/lo"), None);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn hardware_is_found_by_attachment_despite_new_name_and_address() {
        let slave = hardware("eth1", "pci0000:00/0000:00:03.0", 0, "aa");
        // As recorded within a bond, whose address both had; at boot each has its own, and another name.
        let devices = [
            hardware("lan0", "pci0000:00/0000:00:02.0", 0, "aa"),
            hardware("lan1", "pci0000:00/0000:00:03.0", 0, "bb"),
        ];
        assert_eq!(slave.find(&devices), position("lan1"));
    }

    #[test]
    fn moved_card_is_found_by_its_mac_address_only_if_unique() {
        let card = hardware("eth0", "pci0000:00/0000:00:02.0", 0, "aa");
        let card_in_new_slot = hardware("eth0", "pci0000:00/0000:00:05.0", 0, "aa");
        assert_eq!(
            card.find(&[
                card_in_new_slot.clone(),
                DeviceIdentity { address: "aa".into(), ..software("bond0") }
            ]),
            position("eth0")
        );
        let duplicates =
            [card_in_new_slot.clone(), DeviceIdentity { interface: "eth1".into(), ..card_in_new_slot }];
        let why = card.find(&duplicates).expect_err("absent");
        assert!(why.ends_with("more than one has the address aa"), "{why}");
        let why = card.find(&[]).expect_err("absent");
        assert_eq!(why, "no interface is attached at pci0000:00/0000:00:02.0, and none has the address aa");
    }

    #[test]
    fn ports_and_representors_of_one_device_are_distinguished() {
        let place = "pci0000:00/0000:00:02.0";
        let devices = [
            hardware("p0", place, 0, "aa"),
            hardware("p1", place, 1, "bb"),
            hardware("p1rep", place, 1, "cc"),
        ];
        assert_eq!(hardware("eth0", place, 0, "aa").find(&devices), position("p0"));
        assert_eq!(hardware("eth1", place, 1, "cc").find(&devices), position("p1rep"));
        assert_eq!(hardware("p1", place, 1, "dd").find(&devices), position("p1"));
        assert!(hardware("x", place, 1, "dd").find(&devices).is_err());
    }

    #[test]
    fn software_interfaces_are_identified_by_name() {
        assert_eq!(software("bond0").find(&[software("bond0")]), position("bond0"));
        assert!(software("bond0").find(&[software("bond1")]).is_err());
        let card = hardware("bond0", "pci", 0, "02::");
        let why = software("bond0").find(&[card]).expect_err("absent");
        assert_eq!(why, "bond0 is another device now");
    }
}
