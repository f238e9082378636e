//! The cost of auditing per system call.

use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::setting::{Setting, SettingValue};
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
    remedy: "Switch auditing off, or load the single rule `never,task`, so that new tasks have no audit \
             context. Then restart the server, because a task keeps its context.",
    caveats: "Policy or a standard asks for an audit trail.",
    check: audit,
};

fn audit(view: &HostView<'_>) -> Vec<RuleMatch> {
    let Some(audit) = view.now.thread.audit.value().filter(|audit| audit.enabled != 0) else {
        return Vec::new();
    };
    let rules = audit.rules.value();
    if rules.is_some_and(|rules| rules.never_task) {
        return Vec::new();
    }
    let mut services = view.udp_services().filter(|service| view.matters(service));
    let (severity, whom) = match services.next() {
        Some(service) => (Severity::Low, format!(", those of {} too", service.name())),
        None => (Severity::Note, String::new()),
    };
    let with = match rules.map(|rules| rules.count) {
        Some(0) => " without a rule loaded",
        _ => "",
    };
    let locked = if audit.enabled == 2 { "; the setting is locked until the next boot" } else { "" };
    let title = format!("System calls are audited{with}{whom}{locked}");
    let mut matched = RuleMatch::new(severity, title).costs_per(CostUnit::UdpDatagram).evidence(
        "audit enabled",
        audit.enabled,
        "AUDIT_GET",
    );
    if let Some(rules) = rules {
        matched = matched.evidence("audit rules", rules.count, "AUDIT_LIST_RULES");
    }
    vec![match audit.enabled {
        2 => matched,
        enabled => matched.change(
            Setting::Audit,
            Some(SettingValue::new(enabled.to_string())),
            SettingValue::new("0"),
        ),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::{host, service};
    use crate::stage::thread::{AuditRules, AuditState};
    use crate::{Known, PacketPath};

    fn audited(enabled: u32, rules: Known<AuditRules>) -> PacketPath {
        let mut path = host(&[]).with(service(1), Vec::new());
        path.thread.audit = Known::Value(AuditState { enabled, rules });
        path
    }

    fn rules(count: u32, never_task: bool) -> Known<AuditRules> {
        Known::Value(AuditRules { count, never_task })
    }

    #[test]
    fn auditing_that_is_on_is_told_with_its_switch() {
        let found = audit(&HostView::once(&audited(1, rules(0, false))));
        let title = "System calls are audited without a rule loaded, those of udp 10.0.0.1:53 (echo) too";
        assert_eq!((found[0].severity, found[0].title.as_str()), (Severity::Low, title));
        let change = &found[0].changes[0];
        assert_eq!(change.setting.command(&change.to).as_deref(), Some("auditctl -e 0"));
    }

    #[test]
    fn auditing_that_is_off_or_never_begins_is_not() {
        assert!(audit(&HostView::once(&audited(0, rules(0, false)))).is_empty());
        assert!(audit(&HostView::once(&audited(1, rules(1, true)))).is_empty());
        let mut path = audited(1, rules(0, false));
        path.thread.audit = Known::unknown("not in this namespace");
        assert!(audit(&HostView::once(&path)).is_empty());
    }

    #[test]
    fn a_host_without_a_service_gets_a_note_and_a_locked_one_no_switch() {
        let mut path = audited(2, Known::unknown("not permitted"));
        path.service().named = false;
        let found = audit(&HostView::once(&path));
        let title = "System calls are audited; the setting is locked until the next boot";
        assert_eq!((found[0].severity, found[0].title.as_str()), (Severity::Note, title));
        assert!(found[0].changes.is_empty());
    }
}
