//! Identifies the device behind an interface's name, because the name can move to another device.

use linerate_host::{Host, HostError};
use serde::{Deserialize, Serialize};

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
        let address = host.read(&file("address"))?.trim().to_owned();
        let device = match host.read_link(&file("device")) {
            Ok(target) => target.rsplit('/').next().map(str::to_owned),
            Err(_) => None,
        };
        let index = index.trim().parse().map_err(|_| HostError::Garbled {
            path: file("ifindex"),
            reason: format!("'{}' is no number", index.trim()),
        })?;
        Ok(Self { interface: interface.to_owned(), index, address, device })
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

    /// Finds the device in a later boot, where it has another index: by its attachment and address,
    /// by the attachment alone if its address changed. Software devices may share an address or have
    /// none, and are found by their name.
    pub fn status_in_later_boot(&self, host: &Host) -> Result<DeviceStatus, HostError> {
        let names = host.list("/sys/class/net")?;
        let present: Vec<_> = names.iter().filter_map(|name| Self::observe(host, name).ok()).collect();
        let same_attachment: Vec<_> =
            present.iter().filter(|current| current.device == self.device).collect();
        if self.device.is_none() {
            let is_namesake = |current: &&Self| current.interface == self.interface;
            return Ok(match same_attachment.into_iter().any(|current| is_namesake(&current)) {
                true => DeviceStatus::Same,
                false if names.contains(&self.interface) => DeviceStatus::Replaced,
                false => DeviceStatus::Gone,
            });
        }
        let same_address: Vec<_> =
            same_attachment.iter().filter(|current| current.address == self.address).copied().collect();
        let has_own_name =
            |candidates: &[&Self]| candidates.iter().any(|current| current.interface == self.interface);
        let candidates = if same_address.is_empty() { same_attachment } else { same_address };
        Ok(match candidates.as_slice() {
            candidates if has_own_name(candidates) => DeviceStatus::Same,
            [only] => DeviceStatus::Renamed(only.interface.clone()),
            _ if names.contains(&self.interface) => DeviceStatus::Replaced,
            _ => DeviceStatus::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::HostRecording;

    use super::*;

    /// A driver that was loaded again.
    #[test]
    fn device_with_a_new_index_is_found_by_its_bus() {
        let card = |interface: &str, index, address: &str, device: &str| NamedDevice {
            interface: interface.to_owned(),
            index,
            address: address.to_owned(),
            device: Some(device.to_owned()),
        };
        let host = |cards: &[NamedDevice]| {
            let path = |card: &NamedDevice, file| format!("/sys/class/net/{}/{file}", card.interface);
            let files = cards.iter().flat_map(|card| {
                [("ifindex", card.index.to_string()), ("address", card.address.clone())]
                    .map(|(file, text)| (path(card, file), text))
            });
            let links = cards.iter().filter_map(|card| {
                Some((path(card, "device"), format!("../../../{}", card.device.as_ref()?)))
            });
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
        // A software interface, whose name another one has now.
        let software = |interface, index| NamedDevice {
            device: None,
            ..card(interface, index, "02:00:00:00:00:01", "")
        };
        let now = host(&[software("eth0", 5), software("lan0", 4)]);
        assert_eq!(software("eth0", 4).status(&now).expect("listed"), renamed);
        let later_status = |name| software(name, 4).status_in_later_boot(&now).expect("listed");
        assert_eq!(later_status("eth0"), DeviceStatus::Same);
        assert_eq!(later_status("tun0"), DeviceStatus::Gone);
    }
}
