//! Where the devices of a tune are when it is looked at again.

use linerate_host::{Host, Setting};

use crate::device::Whereabouts;
use crate::journal::Tune;

/// Where the settings of a tune's interfaces are now.
#[derive(Debug)]
pub(crate) struct Places {
    /// Interfaces that are not there under their name.
    moved: Vec<(String, Place)>,
}

#[derive(Debug)]
enum Place {
    Renamed(String),
    Gone(String),
}

impl Places {
    /// Looks for a tune's devices.
    pub(crate) fn observe(host: &Host, tune: &Tune, boot: Option<&str>) -> Self {
        let same_boot = boot == Some(tune.begun.boot.as_str());
        let place = |device: &crate::Device| {
            let name = device.interface.clone();
            let whereabouts =
                if same_boot { device.whereabouts(host) } else { device.whereabouts_in_a_later_boot(host) };
            let place = match whereabouts {
                // Where interfaces cannot be listed, reading the setting says why.
                Ok(Whereabouts::Same) | Err(_) => return None,
                Ok(Whereabouts::Renamed(now)) => Place::Renamed(now),
                Ok(Whereabouts::Gone) => Place::Gone(format!("there is no interface {name} any more")),
                Ok(Whereabouts::Replaced) => Place::Gone(format!("{name} is another device now")),
            };
            Some((name, place))
        };
        Self { moved: tune.begun.devices.iter().filter_map(place).collect() }
    }

    /// The setting under the name that its interface has now.
    ///
    /// # Errors
    /// Why it is gone, in words.
    pub(crate) fn find(&self, setting: &Setting) -> Result<Setting, String> {
        let interface = setting.interface();
        let place = self.moved.iter().find(|(name, _)| Some(name.as_str()) == interface.as_deref());
        match place.map(|(_, place)| place) {
            None => Ok(setting.clone()),
            Some(Place::Renamed(now)) => Ok(setting.on_interface(now)),
            Some(Place::Gone(why)) => Err(why.clone()),
        }
    }
}
