//! Devices and interrupts of settings, whose names and numbers change with each boot.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::stage::irq::{IrqState, IrqVector};
use linerate_host::{Host, HostError, Setting, SettingValue};
use serde::{Deserialize, Serialize};

use super::document::PersistedSetting;
use super::identity::DeviceIdentity;

/// The queues that an interrupt serves, which identify it over boots. Its name may depend on that of the
/// interface and on the order of discovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueVector {
    /// The name of the interface when the file was written.
    pub interface: String,
    pub receive_queue: Option<u32>,
    pub transmit_queue: Option<u32>,
}

/// The devices and vectors of settings when they are persisted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingContext {
    /// The devices of all interfaces of the settings.
    pub devices: Vec<DeviceIdentity>,
    /// Interrupts that serve queues.
    pub(super) vectors: BTreeMap<Setting, QueueVector>,
}

/// A host on which the file of another boot is applied.
pub(super) struct BootHost<'a> {
    pub(super) host: &'a Host,
    present: Vec<DeviceIdentity>,
    vectors: IrqState,
}

impl SettingContext {
    pub fn observe(host: &Host, settings: &[(Setting, SettingValue)]) -> Result<Self, HostError> {
        let irqs: Vec<_> = settings
            .iter()
            .map(|(setting, _)| setting)
            .filter(|setting| matches!(setting, Setting::IrqAffinity { .. }))
            .collect();
        let names = if irqs.is_empty() { Vec::new() } else { host.list("/sys/class/net")? };
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let irq_state = IrqState::observe(host, &names);
        let vectors: BTreeMap<_, _> = irqs
            .into_iter()
            .filter_map(|setting| Some((setting.clone(), queue_vector(&irq_state, &names, setting)?)))
            .collect();
        let mut interfaces: BTreeSet<_> =
            settings.iter().filter_map(|(setting, _)| Some(setting.interface()?.into_owned())).collect();
        interfaces.extend(vectors.values().map(|vector| vector.interface.clone()));
        let devices =
            interfaces.iter().map(|name| DeviceIdentity::observe(host, name)).collect::<Result<_, _>>()?;
        Ok(Self { devices, vectors })
    }
}

fn queue_vector(irq_state: &IrqState, interfaces: &[&str], setting: &Setting) -> Option<QueueVector> {
    let Setting::IrqAffinity { irq, action } = setting else { return None };
    let is_same =
        |vector: &&IrqVector| if action.is_empty() { vector.irq == *irq } else { vector.name == *action };
    interfaces.iter().find_map(|interface| {
        let vector = irq_state.vectors(interface).iter().find(is_same)?;
        let (receive_queue, transmit_queue) = (vector.receive_queue, vector.transmit_queue);
        let serves = receive_queue.is_some() || transmit_queue.is_some();
        serves.then(|| QueueVector { interface: (*interface).to_owned(), receive_queue, transmit_queue })
    })
}

impl<'a> BootHost<'a> {
    pub(super) fn observe(host: &'a Host) -> Result<Self, HostError> {
        let present = DeviceIdentity::present(host)?;
        let names: Vec<_> = present.iter().map(|device| device.interface.as_str()).collect();
        let vectors = IrqState::observe(host, &names);
        Ok(Self { host, present, vectors })
    }

    pub(super) fn name(&self, device: &DeviceIdentity) -> Option<String> {
        device.find(&self.present).ok()
    }

    /// The setting with the names of this boot.
    ///
    /// # Errors
    /// Why its device or interrupt was not found.
    pub(super) fn setting(
        &self,
        persisted: &PersistedSetting,
        device: Option<&DeviceIdentity>,
    ) -> Result<Setting, String> {
        let Some(device) = device else { return Ok(persisted.setting.clone()) };
        let current_name = device.find(&self.present)?;
        match (&persisted.vector, &persisted.setting) {
            (Some(vector), Setting::IrqAffinity { action, .. }) => {
                self.interrupt(&current_name, vector, action)
            }
            (_, setting) => Ok(setting.on_interface(&current_name)),
        }
    }

    fn interrupt(&self, interface: &str, identity: &QueueVector, action: &str) -> Result<Setting, String> {
        let serves = |vector: &&IrqVector| {
            (vector.receive_queue, vector.transmit_queue) == (identity.receive_queue, identity.transmit_queue)
        };
        let candidates: Vec<_> = self.vectors.vectors(interface).iter().filter(serves).collect();
        let matching = match candidates.as_slice() {
            [only] => Some(*only),
            several => several.iter().copied().find(|vector| vector.name == action),
        };
        matching
            .map(|vector| Setting::IrqAffinity { irq: vector.irq, action: vector.name.clone() })
            .ok_or_else(|| format!("no one interrupt of {interface} is known to serve {}", identity.queues()))
    }
}

impl QueueVector {
    fn queues(&self) -> String {
        match (self.receive_queue, self.transmit_queue) {
            (Some(receive), Some(transmit)) => {
                format!("receive queue {receive} and transmit queue {transmit}")
            }
            (Some(receive), None) => format!("receive queue {receive}"),
            (None, Some(transmit)) => format!("transmit queue {transmit}"),
            (None, None) => "no queue".to_owned(),
        }
    }
}
