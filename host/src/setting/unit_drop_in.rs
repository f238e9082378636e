//! linerate's drop-in of a systemd service: its text, or nothing. Other drop-ins are left alone.

use std::fs;
use std::io;
use std::path::Path;

use super::SettingValue;
use super::knob::{Knob, WriteRefusal};
use crate::root::run;
use crate::{Host, HostError};

/// The directory of units that an administrator writes (systemd.unit(5)).
const UNITS: &str = "/etc/systemd/system";

/// The beginning of the first line of the text.
const MARK: &str = "# Written by linerate";

pub(super) struct UnitDropIn<'a> {
    pub(super) unit: &'a str,
}

impl UnitDropIn<'_> {
    fn key(&self) -> String {
        format!("unit-drop-in/{}", self.unit)
    }

    fn directory(&self) -> String {
        format!("{UNITS}/{}.d", self.unit)
    }

    fn path(&self) -> String {
        format!("{}/90-linerate.conf", self.directory())
    }

    fn list(&self) -> io::Result<String> {
        match fs::read_to_string(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            result => result,
        }
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let (directory, path) = (self.directory(), self.path());
        if text.is_empty() {
            fs::remove_file(&path)?;
            // The directory may contain other drop-ins.
            let _ = fs::remove_dir(&directory);
        } else {
            fs::create_dir_all(&directory)?;
            let temporary_path = format!("{path}.new");
            fs::write(&temporary_path, text)?;
            fs::rename(&temporary_path, &path)?;
        }
        if Path::new("/run/systemd/system").exists() {
            run("systemctl", &["daemon-reload"], "").map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Knob for UnitDropIn<'_> {
    fn name(&self) -> String {
        format!("drop-in of {}", self.unit)
    }

    fn name_error(&self) -> Option<String> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ":-_.\\@".contains(letter);
        let name = self.unit.strip_suffix(".service").filter(|name| !name.is_empty());
        let is_name = name.is_some_and(|name| name.chars().all(is_plain) && !name.starts_with('.'));
        (!is_name).then(|| format!("'{}' is no name of a service", self.unit))
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.call::<String>(&self.key(), "reading it", || self.list()).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        let is_own_text = value.as_str().is_empty() || value.as_str().starts_with(MARK);
        if is_own_text { Ok(value.to_string()) } else { Err("a drop-in that linerate wrote, or nothing") }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let current = self.read(host)?;
        if self.canonical(&current).is_err() {
            let path = self.path();
            return Err(WriteRefusal::Reason(format!("{path} was not written by linerate: move it away")));
        }
        if current == *value {
            return Ok(());
        }
        let change = || self.replace(value.as_str());
        Ok(host.apply_change_to(&self.key(), "writing it", change, &value.as_str())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    #[test]
    fn only_drop_ins_of_linerate_are_replaced() {
        let setting = |unit: &str| Setting::UnitDropIn { unit: unit.to_owned() };
        let ours = SettingValue::new("# Written by linerate boost unit\n[Service]\n");
        for (content, is_ours) in [("", true), (ours.as_str(), true), ("[Service]\nUser=x\n", false)] {
            let host = Host::scripted([("/calls/unit-drop-in/ntp.service.json", format!("{content:?}"))]);
            assert_eq!(setting("ntp.service").write(&host, &ours).is_ok(), is_ours, "{content:?}");
            assert_eq!(setting("ntp.service").write(&host, &SettingValue::new("")).is_ok(), is_ours);
        }
        for unit in ["ntp", ".service", "../ntp.service", "a/b.service", "ntp.socket"] {
            assert!(setting(unit).read(&Host::scripted([("/x", "")])).is_err(), "{unit}");
        }
    }
}
