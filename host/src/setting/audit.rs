//! Auditing of system calls.

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::{Host, HostError};

const EXPECTED: &str = "0, 1 or 2";

pub(super) struct AuditKnob;

impl Knob for AuditKnob {
    fn name(&self) -> String {
        "audit enabled".to_owned()
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.audit_enabled().map(|enabled| SettingValue::new(enabled.to_string()))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        parse(value).map(|enabled| enabled.to_string())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let enabled = parse(value)?;
        // A locked status refuses every change until the next boot (audit_set_enabled of
        // kernel/audit.c).
        if enabled == 2 && host.audit_enabled()? != 2 {
            return Err(WriteRefusal::Reason(
                "locking it could not be undone before the next boot".to_owned(),
            ));
        }
        Ok(host.set_audit_enabled(enabled)?)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("auditctl -e {value}"))
    }
}

fn parse(value: &SettingValue) -> Result<u32, &'static str> {
    match value.as_str().parse() {
        Ok(enabled @ 0..=2) => Ok(enabled),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, SettingValue};

    #[test]
    fn auditing_can_be_disabled_but_not_locked() {
        let host = Host::scripted([("/calls/audit/enabled.json", "1")]);
        Setting::Audit.write(&host, &SettingValue::new("0")).expect("written");
        assert_eq!(Setting::Audit.read(&host).expect("read").as_str(), "0");
        assert!(Setting::Audit.write(&host, &SettingValue::new("2")).is_err());
        assert!(Setting::Audit.check(&SettingValue::new("3")).is_err());
    }
}
