//! The cost of auditing per system call.

use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::setting::Setting;
use crate::stage::HostView;

pub(in crate::stage) const AUDIT: Rule = Rule {
    id: "thread.audit",
    title: "System calls are audited",
    why: "With auditing on, a task started since then has an audit context, and each of its system calls \
          takes the slow path that fills it (syscall_trace_enter, __audit_syscall_entry), even without a \
          rule. A UDP server with two calls per transaction pays twice.",
    effect: "5.49 to 5.86 million transactions/s on 20 cores; 2.5 % of CPU.",
    published_ratio: Some(1.07),
    source: "T. Makita, Boost UDP Transaction Performance (2016); kernel/auditsc.c",
    kernels: "2.6 and later with CONFIG_AUDITSYSCALL",
    remedy: "If nobody requires an audit trail, switch auditing off, or load the single rule `never,task`, so \
             that new tasks have no audit context. Then restart the server, because a task keeps its context.",
    caveats: "Policy or a standard requires an audit trail. Loaded rules are a sign of that, so no change is \
              proposed with rules.",
    check: |view| check_audit(view).into_iter().collect(),
};

fn check_audit(view: &HostView<'_>) -> Option<RuleMatch> {
    let audit = view.now.thread.audit.value().filter(|audit| audit.enabled != 0)?;
    let rules = audit.rules.value();
    if rules.is_some_and(|rules| rules.never_task) {
        return None;
    }
    let mut services = view.udp_services().filter(|service| view.matters(service));
    let (severity, service_text) = match services.next() {
        Some(service) => (Severity::Low, format!(", those of {} too", service.name())),
        None => (Severity::Note, String::new()),
    };
    let rule_text = match rules.map(|rules| rules.count) {
        Some(0) => " without a rule loaded",
        _ => "",
    };
    let lock_text = if audit.enabled == 2 { "; the setting is locked until the next boot" } else { "" };
    let title = format!("System calls are audited{rule_text}{service_text}{lock_text}");
    let rule_match = RuleMatch::new(severity, title)
        .costs_per(CostUnit::UdpDatagram)
        .evidence("audit enabled", audit.enabled, "AUDIT_GET")
        .evidence_if("audit rules", rules.map(|rules| rules.count), "AUDIT_LIST_RULES");
    // A loaded rule means that someone requires an audit trail.
    Some(match rules {
        Some(rules) if rules.count == 0 && audit.enabled != 2 => {
            rule_match.change(Setting::Audit, Some(audit.enabled), 0)
        }
        _ => rule_match,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::{host, service};
    use crate::stage::thread::{AuditRules, AuditState};
    use crate::{Known, PacketPath};

    fn audit_path(enabled: u32, rules: Known<AuditRules>) -> PacketPath {
        let mut path = host(&[]).with(service(1), Vec::new());
        path.thread.audit = Known::Value(AuditState { enabled, rules });
        path
    }

    fn rules(count: u32, never_task: bool) -> Known<AuditRules> {
        Known::Value(AuditRules { count, never_task })
    }

    #[test]
    fn disabled_never_task_and_unknown_auditing_are_not_reported() {
        assert!(AUDIT.once(&audit_path(0, rules(0, false))).is_empty());
        assert!(AUDIT.once(&audit_path(1, rules(1, true))).is_empty());
        let mut path = audit_path(1, rules(0, false));
        path.thread.audit = Known::unknown("not in this namespace");
        assert!(AUDIT.once(&path).is_empty());
    }

    #[test]
    fn auditing_is_switched_off_only_if_no_rule_is_loaded() {
        for (rules, changes) in
            [(rules(0, false), 1), (rules(47, false), 0), (Known::unknown("not permitted"), 0)]
        {
            let rule_match = AUDIT.once(&audit_path(1, rules)).remove(0);
            assert_eq!((rule_match.severity, rule_match.changes.len()), (Severity::Low, changes));
        }
    }

    #[test]
    fn locked_auditing_without_a_named_service_is_a_note_without_changes() {
        let mut path = audit_path(2, Known::unknown("not permitted"));
        path.service().named = false;
        let matches = AUDIT.once(&path);
        let title = "System calls are audited; the setting is locked until the next boot";
        assert_eq!(matches[0].summary(), (Severity::Note, title));
        assert!(matches[0].changes.is_empty());
    }
}
