//! The state of system call auditing.

use super::AuditState;
use crate::netlink::audit::{self, AuditRules};
use crate::{Host, Known};

impl AuditState {
    /// The kernel answers only in the initial user namespace, and lists rules only with
    /// `CAP_AUDIT_CONTROL`.
    pub(super) fn observe(host: &Host) -> Known<Self> {
        let enabled = match host.audit_enabled() {
            Ok(enabled) => enabled,
            // Without CONFIG_AUDIT there is no such netlink protocol, and nothing is audited.
            Err(error) if error.errno() == Some(libc::EPROTONOSUPPORT) => {
                return Known::Value(Self { enabled: 0, rules: Known::Value(AuditRules::default()) });
            }
            Err(error) => return Known::unknown(error.to_string()),
        };
        let rules = host.call("audit/rules", "listing the audit rules", audit::rules);
        Known::Value(Self { enabled, rules: rules.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_status_and_rule_count_are_read_from_a_recording() {
        let host = Host::scripted([
            ("/calls/audit/enabled.json", "1"),
            ("/calls/audit/rules.json", r#"{"count": 2, "later": 1}"#),
        ]);
        let rules = Known::Value(AuditRules { count: 2, never_task: false });
        assert_eq!(AuditState::observe(&host), Known::Value(AuditState { enabled: 1, rules }));
    }

    #[test]
    fn audit_rules_without_permission_are_unknown_but_status_is_known() {
        let host = Host::scripted([
            ("/calls/audit/enabled.json", "1"),
            ("/calls/audit/rules.json", r#"{"errno": 1}"#),
        ]);
        let audit = AuditState::observe(&host).into_value().expect("a status");
        assert_eq!(audit.enabled, 1);
        assert!(audit.rules.why().is_some_and(|why| why.starts_with("listing the audit rules: ")));
    }

    #[test]
    fn a_kernel_without_audit_support_has_auditing_disabled() {
        let host = Host::scripted([("/calls/audit/enabled.json", r#"{"errno": 93}"#)]);
        let rules = Known::Value(AuditRules::default());
        assert_eq!(AuditState::observe(&host), Known::Value(AuditState { enabled: 0, rules }));
        assert!(AuditState::observe(&Host::scripted::<String, String>([])).value().is_none());
    }
}
