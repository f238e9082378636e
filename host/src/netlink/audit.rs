//! The audit netlink protocol: its status (`struct audit_status`) and rules (`struct
//! audit_rule_data`), both of linux/audit.h.

use std::io;

use netlink_sys::protocols::NETLINK_AUDIT;
use serde::{Deserialize, Serialize};

use super::attribute::word;
use super::connection::{NetlinkAnswer, NetlinkConnection};

const AUDIT_GET: u16 = 1000;
const AUDIT_SET: u16 = 1001;
const AUDIT_LIST_RULES: u16 = 1013;
const AUDIT_STATUS_ENABLED: u32 = 1;
// The list of rules for new tasks, in the low bits of `flags`; the higher bits show how a rule was
// added.
const FILTER_TASK: u32 = 1;
const FILTER_LIST_MASK: u32 = 0x0f;
const ACTION_NEVER: u32 = 0;
/// Ten words; older kernels accept a shorter structure, newer kernels a longer one.
const STATUS_WORDS: usize = 10;

/// `AUDIT_LIST_RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditRules {
    pub count: u32,
    /// Whether one is `never,task` without conditions, as some distributions ship: tasks started
    /// since then have no audit context, and their system calls cost nothing (audit_alloc in
    /// kernel/auditsc.c).
    pub never_task: bool,
}

pub(crate) fn enabled() -> io::Result<u32> {
    let answers = NetlinkConnection::open(NETLINK_AUDIT)?.ask(AUDIT_GET, |answers| !answers.is_empty())?;
    let status = answers.first().map(|answer| body_of(answer, AUDIT_GET)).transpose()?;
    status.and_then(|status| word(status, 4)).ok_or_else(truncated_error)
}

pub(crate) fn set_enabled(enabled: u32) -> io::Result<()> {
    let mut status = [0_u32; STATUS_WORDS];
    status[0] = AUDIT_STATUS_ENABLED;
    status[1] = enabled;
    let body: Vec<u8> = status.iter().flat_map(|word| word.to_ne_bytes()).collect();
    NetlinkConnection::open(NETLINK_AUDIT)?.request(AUDIT_SET, 0, &body).map(drop)
}

// The kernel sends one rule per message from a separate thread (audit_send_list_thread in
// kernel/audit.c), so no acknowledgement marks the end.
pub(crate) fn rules() -> io::Result<AuditRules> {
    let answers = NetlinkConnection::open(NETLINK_AUDIT)?.ask(AUDIT_LIST_RULES, |_| false)?;
    let mut rules = AuditRules::default();
    answers.iter().try_for_each(|answer| count_rule(body_of(answer, AUDIT_LIST_RULES)?, &mut rules))?;
    Ok(rules)
}

pub(crate) fn count_rule(rule: &[u8], rules: &mut AuditRules) -> io::Result<()> {
    let field = |index: usize| word(rule, index * 4).ok_or_else(truncated_error);
    let (list, action, fields) = (field(0)? & FILTER_LIST_MASK, field(1)?, field(2)?);
    rules.count = rules.count.saturating_add(1);
    rules.never_task |= list == FILTER_TASK && action == ACTION_NEVER && fields == 0;
    Ok(())
}

fn body_of(answer: &NetlinkAnswer, kind: u16) -> io::Result<&[u8]> {
    if answer.kind == kind {
        Ok(&answer.body)
    } else {
        Err(io::Error::other(format!("unexpected audit message {}", answer.kind)))
    }
}

fn truncated_error() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel's audit answer is too short")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(flags: u32, action: u32, fields: u32) -> Vec<u8> {
        [flags, action, fields].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn audit_rules_are_counted_and_task_never_is_detected() {
        let mut rules = AuditRules::default();
        // `-a always,exit -F arch=b64 -S execve`: list 4, action 2.
        count_rule(&rule(4, 2, 1), &mut rules).expect("a rule");
        // A rule for tasks of one user does not exempt others.
        count_rule(&rule(1, 0, 1), &mut rules).expect("a rule");
        assert_eq!(rules, AuditRules { count: 2, never_task: false });
        // `-A task,never`, as some distributions ship it; 0x10 means that it was inserted first.
        count_rule(&rule(0x11, 0, 0), &mut rules).expect("a rule");
        assert_eq!(rules, AuditRules { count: 3, never_task: true });
        assert!(count_rule(&rule(4, 2, 1)[..6], &mut rules).is_err());
    }
}
