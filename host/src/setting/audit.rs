//! Auditing of system calls.

use super::Value;
use super::knob::{Knob, Refusal};
use crate::{Host, HostError};

const EXPECTED: &str = "0, 1 or 2";

pub(super) struct Audit;

impl Knob for Audit {
    fn name(&self) -> String {
        "audit enabled".to_owned()
    }

    fn read(&self, host: &Host) -> Result<Value, HostError> {
        host.audit_enabled().map(|enabled| Value::new(enabled.to_string()))
    }

    fn check(&self, value: &Value) -> Result<(), &'static str> {
        parse(value).map(|_| ())
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Refusal> {
        let enabled = parse(value).map_err(Refusal::BadValue)?;
        // A locked status refuses everything until the next boot (audit_set_enabled of kernel/audit.c).
        if enabled == 2 && host.audit_enabled()? != 2 {
            return Err(Refusal::Reason("locking it could not be undone before the next boot".to_owned()));
        }
        Ok(host.set_audit_enabled(enabled)?)
    }

    fn command(&self, value: &Value) -> Option<String> {
        Some(format!("auditctl -e {value}"))
    }
}

fn parse(value: &Value) -> Result<u32, &'static str> {
    match value.as_str().parse() {
        Ok(enabled @ 0..=2) => Ok(enabled),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, Value};

    #[test]
    fn auditing_is_switched_and_never_locked() {
        let host = Host::scripted([("/calls/audit/enabled.json", "1")]);
        Setting::Audit.write(&host, &Value::new("0")).expect("written");
        assert_eq!(Setting::Audit.read(&host).expect("read").as_str(), "0");
        assert!(Setting::Audit.write(&host, &Value::new("2")).is_err());
        assert!(Setting::Audit.check(&Value::new("3")).is_err());
    }
}
