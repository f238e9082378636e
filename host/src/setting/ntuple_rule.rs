//! A rule that directs flows to a queue, by its index in the NIC's table.

use std::io;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::ethtool::NtupleRule;
use crate::sys::ethtool::{RuleSpec, receive};
use crate::{Host, HostError};

const EXPECTED: &str = "a rule such as flow-type udp4 dst-port 53 action 3, or nothing";

// `RX_CLS_LOC_SPECIAL` of linux/ethtool.h: for this index and larger ones the driver chooses the
// index.
const CHOSEN_BY_DRIVER: u32 = 0x8000_0000;

pub(super) struct NtupleKnob<'a> {
    pub(super) interface: &'a str,
    pub(super) location: u32,
}

impl NtupleKnob<'_> {
    fn key(&self) -> String {
        format!("ethtool/{}/ntuple/{}", self.interface, self.location)
    }

    fn list_key(&self) -> String {
        format!("ethtool/{}/ntuple", self.interface)
    }
}

impl Knob for NtupleKnob<'_> {
    fn name(&self) -> String {
        format!("rule {} for flows of {}", self.location, self.interface)
    }

    fn name_error(&self) -> Option<String> {
        (self.location >= CHOSEN_BY_DRIVER).then(|| format!("{} is no place in a table", self.location))
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let operation = format!("reading the {}", self.name());
        let read_rule = || {
            let rule = receive::rule_spec(self.interface, self.location)?;
            Ok(rule.map(|rule| rule.text()).unwrap_or_default())
        };
        match host.call::<String>(&self.key(), &operation, read_rule) {
            Ok(text) => Ok(SettingValue::new(text)),
            // A recording of doctor has the list of rules.
            Err(HostError::NotLive { what: operation }) => {
                let unsupported = || Err(io::ErrorKind::Unsupported.into());
                let rules: Vec<NtupleRule> = host.call(&self.list_key(), &operation, unsupported)?;
                match rules.iter().any(|rule| rule.location == self.location) {
                    true => Err(HostError::NotLive { what: operation }),
                    false => Ok(SettingValue::new("")),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        match value.as_str() {
            "" => Ok(String::new()),
            rule => RuleSpec::parse(rule).map(|rule| rule.text()).ok_or(EXPECTED),
        }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        if self.same(&self.read(host)?, value) {
            return Ok(());
        }
        let rule = RuleSpec::parse(value.as_str());
        if rule.is_none() && !value.as_str().is_empty() {
            return Err(EXPECTED.into());
        }
        let change = || match &rule {
            Some(rule) => receive::insert_rule(self.interface, self.location, rule),
            None => receive::delete_rule(self.interface, self.location),
        };
        let text = rule.as_ref().map(RuleSpec::text).unwrap_or_default();
        host.apply_change_to(&self.key(), &format!("setting the {}", self.name()), change, &text)?;
        host.rehearse_call(&self.list_key(), |rules: &mut Vec<NtupleRule>| {
            rules.retain(|listed| listed.location != self.location);
            rules.extend(rule.as_ref().map(|rule| rule.listed(self.location)));
        });
        Ok(())
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        let Self { interface, location } = self;
        match value.as_str() {
            "" => Some(format!("ethtool -N {interface} delete {location}")),
            raw if raw.starts_with("raw ") => None,
            rule => Some(format!("ethtool -N {interface} {rule} loc {location}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, SettingError};

    fn setting(location: u32) -> Setting {
        Setting::NtupleRule { interface: "eth0".into(), location }
    }

    const LIST: &str = "/calls/ethtool/eth0/ntuple.json";
    const RULE: &str = "flow-type udp4 dst-port 53 action 3";

    #[test]
    fn ntuple_rule_on_a_scripted_host_updates_the_rule_list() {
        let host = Host::scripted([(LIST, r#"[{"location": 9, "flow": "udp4"}]"#)]);
        assert_eq!(setting(4).read(&host).expect("read").as_str(), "");
        setting(4).write(&host, &SettingValue::new(RULE)).expect("written");
        assert_eq!(setting(4).read(&host).expect("read").as_str(), RULE);
        let rules =
            || host.call::<Vec<NtupleRule>>("ethtool/eth0/ntuple", "", || unreachable!()).expect("rules");
        assert_eq!((rules().len(), rules()[1].queue, rules()[1].destination_port), (2, Some(3), Some(53)));
        setting(4).write(&host, &SettingValue::new("")).expect("removed");
        assert_eq!(rules().len(), 1);
        assert!(setting(9).read(&host).is_err(), "the text of a rule that was only listed is unknown");
    }

    #[test]
    fn ntuple_rules_have_ethtool_commands_and_are_validated() {
        let command = |value| setting(4).command(&SettingValue::new(value));
        assert_eq!(
            command(RULE).as_deref(),
            Some("ethtool -N eth0 flow-type udp4 dst-port 53 action 3 loc 4")
        );
        assert_eq!(command("").as_deref(), Some("ethtool -N eth0 delete 4"));
        assert!(setting(4).check(&SettingValue::new("flow-type udp4 action 3")).is_err());
        let error = setting(u32::MAX).read(&Host::live()).expect_err("no place");
        assert!(matches!(error, SettingError::BadName { .. }), "{error}");
    }
}
