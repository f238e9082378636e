//! Identifies the device behind an interface's name, because the name can move to another device.

use linerate_host::{Host, HostError};
use serde::{Deserialize, Serialize};

use crate::persist::DeviceIdentity;

/// An interface as it was when a plan or a journal named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedDevice {
    pub interface: String,
    /// Its index, which no other interface of the network namespace has until the next boot.
    pub index: u32,
    pub address: String,
    /// Its device: the last part of `/sys/class/net/IF/device`, such as `0000:00:02.0`; none for a software interface.
    pub device: Option<String>,
    /// Path below `/sys/devices`, such as `pci0000:00/0000:00:02.0`, which identifies it over boots;
    /// none for a software interface, and before version 0.2, which did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_at: Option<String>,
    /// The port of that device (`/sys/class/net/IF/dev_port`), if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

/// The current state of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceStatus {
    /// The device exists under its name.
    Same,
    /// The device exists under this name.
    Renamed(String),
    /// Neither the device nor its name exists.
    Gone,
    /// The device does not exist, and its name belongs to another device.
    Replaced,
}

impl NamedDevice {
    /// The device that has this name now.
    pub fn observe(host: &Host, interface: &str) -> Result<Self, HostError> {
        let file = |name: &str| format!("/sys/class/net/{interface}/{name}");
        let index = host.read(&file("ifindex"))?;
        let DeviceIdentity { attached_at, port, address, .. } = DeviceIdentity::observe(host, interface)?;
        let device = match host.read_link(&file("device")) {
            Ok(target) => target.rsplit('/').next().map(str::to_owned),
            Err(_) => None,
        };
        let index = index.trim().parse().map_err(|_| HostError::Garbled {
            path: file("ifindex"),
            reason: format!("'{}' is no number", index.trim()),
        })?;
        Ok(Self { interface: interface.to_owned(), index, address, device, attached_at, port })
    }

    /// Finds the device within the boot in which it was observed: by its index, unless another
    /// device has this index in another network namespace. If a reloaded driver gave it a new
    /// index, finds it by its attachment and address.
    pub fn status(&self, host: &Host) -> Result<DeviceStatus, HostError> {
        let names = host.list("/sys/class/net")?;
        let is_this_device = |name: &String| {
            Self::observe(host, name)
                .is_ok_and(|current| (current.index, &current.device) == (self.index, &self.device))
        };
        if names.contains(&self.interface) && is_this_device(&self.interface) {
            return Ok(DeviceStatus::Same);
        }
        Ok(match names.iter().find(|name| is_this_device(name)) {
            Some(name) => DeviceStatus::Renamed(name.clone()),
            None if self.device.is_some() => return self.status_in_later_boot(host),
            None if names.contains(&self.interface) => DeviceStatus::Replaced,
            None => DeviceStatus::Gone,
        })
    }

    /// Fails with the reason if the device does not have its name any more.
    pub(crate) fn must_be_in_place(&self, host: &Host) -> Result<(), String> {
        let name = &self.interface;
        match self.status(host) {
            Ok(DeviceStatus::Same) => Ok(()),
            Ok(DeviceStatus::Renamed(new_name)) => Err(format!("{name} is called {new_name} now")),
            Ok(DeviceStatus::Gone) => Err(format!("{name} is gone")),
            Ok(DeviceStatus::Replaced) => Err(format!("{name} is another device now")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Finds the device in a later boot, where its index and name may be others: at its place, or by name
    /// and address if its place was not recorded. Software devices are found by their name.
    pub fn status_in_later_boot(&self, host: &Host) -> Result<DeviceStatus, HostError> {
        let mut present = DeviceIdentity::present(host)?;
        let namesake = present.iter().find(|other| other.interface == self.interface).cloned();
        let has_same_name = namesake.is_some();
        let found = if self.attached_at.is_some() {
            // Not another device with its address: on Azure a virtual function has that of a synthetic NIC.
            present.retain(|other| other.attached_at == self.attached_at);
            let (interface, attached_at) = (self.interface.clone(), self.attached_at.clone());
            let identity =
                DeviceIdentity { interface, attached_at, port: self.port, address: self.address.clone() };
            identity.find(&present).ok()
        } else {
            let is_same = |other: &DeviceIdentity| match self.device {
                Some(_) => other.address == self.address,
                None => other.attached_at.is_none(),
            };
            namesake.filter(is_same).map(|other| other.interface)
        };
        Ok(match found {
            Some(name) if name == self.interface => DeviceStatus::Same,
            Some(name) => DeviceStatus::Renamed(name),
            None if has_same_name => DeviceStatus::Replaced,
            None => DeviceStatus::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::HostRecording;

    use super::*;

    /// A driver that was loaded again.
    #[test]
    fn device_with_a_new_index_is_found_by_its_place() {
        let card = |interface: &str, index, address: &str, device: &str| NamedDevice {
            interface: interface.to_owned(),
            index,
            address: address.to_owned(),
            device: Some(device.to_owned()),
            attached_at: Some(format!("pci0000:00/{device}")),
            port: None,
        };
        let host = |cards: &[NamedDevice]| {
            let path = |card: &NamedDevice, file| format!("/sys/class/net/{}/{file}", card.interface);
            let files = cards.iter().flat_map(|card| {
                [("ifindex", card.index.to_string()), ("address", card.address.clone())]
                    .map(|(file, text)| (path(card, file), text))
            });
            let links = cards.iter().filter_map(|card| {
                let (device, interface) = (card.device.as_ref()?, &card.interface);
                let place = card.attached_at.as_ref()?.replace("03.0", "03.0/virtio2");
                let link =
                    (format!("/sys/class/net/{interface}"), format!("../../devices/{place}/net/{interface}"));
                Some([(path(card, "device"), format!("../../../{device}")), link])
            });
            let links = links.flatten();
            Host::recorded(HostRecording::from_files(files).with_links(links))
        };
        let device = card("eth0", 4, "02:00:00:00:00:01", "0000:01:00.0");
        let status = |cards: &[NamedDevice]| device.status(&host(cards)).expect("listed");
        let renamed = DeviceStatus::Renamed("lan0".into());
        assert_eq!(status(&[card("lan0", 9, "02:00:00:00:00:01", "0000:01:00.0")]), renamed);
        assert_eq!(status(&[card("lan0", 9, "02:00:00:00:00:02", "0000:01:00.0")]), renamed);
        assert_eq!(status(&[card("eth0", 9, "02:00:00:00:00:01", "0000:01:00.0")]), DeviceStatus::Same);
        // The index of another network namespace.
        assert_eq!(status(&[card("eth0", 4, "02:00:00:00:00:07", "0000:02:00.0")]), DeviceStatus::Replaced);
        // Another device that shares the address.
        assert_eq!(status(&[card("lan0", 9, "02:00:00:00:00:01", "0000:02:00.0")]), DeviceStatus::Gone);
        // Another disk changed the numbers of virtio devices.
        let virtio = |interface, index, number: &str, place| NamedDevice {
            device: Some(number.to_owned()),
            ..card(interface, index, "02:00:00:00:00:01", place)
        };
        let now =
            host(&[virtio("eth0", 2, "virtio2", "0000:00:03.0"), card("eth1", 3, "02::", "0000:00:04.0")]);
        let later_status = |device: NamedDevice| device.status_in_later_boot(&now).expect("listed");
        let (eth0, eth1) =
            (virtio("eth0", 2, "virtio1", "0000:00:03.0"), virtio("eth1", 3, "virtio2", "0000:00:04.0"));
        assert_eq!([eth0.clone(), eth1].map(later_status), [DeviceStatus::Same, DeviceStatus::Same]);
        // A journal of version 0.1.
        let old = NamedDevice { attached_at: None, ..eth0 };
        assert_eq!(later_status(old.clone()), DeviceStatus::Same);
        assert_eq!(later_status(NamedDevice { address: "03::".to_owned(), ..old }), DeviceStatus::Replaced);
        // A software interface, whose name another one has now.
        let software = |interface, index| NamedDevice {
            device: None,
            attached_at: None,
            ..card(interface, index, "02:00:00:00:00:01", "")
        };
        let now = host(&[software("eth0", 5), software("lan0", 4)]);
        assert_eq!(software("eth0", 4).status(&now).expect("listed"), renamed);
        let later_status = |name| software(name, 4).status_in_later_boot(&now).expect("listed");
        assert_eq!(later_status("eth0"), DeviceStatus::Same);
        assert_eq!(later_status("tun0"), DeviceStatus::Gone);
    }
}
