//! Rules about the threads of a service.

mod audit;
mod held_back;
mod placement;
mod unpinned;

use crate::finding::{Rule, RuleMatch};
use crate::stage::thread::ServingThread;

pub(super) const RULES: &[Rule] = &[
    unpinned::UNPINNED,
    placement::FAR_NODE,
    placement::NOT_WITH_QUEUE,
    placement::ON_SIBLING,
    held_back::RULE,
    audit::AUDIT,
];

fn with_allowed_cpus(matched: RuleMatch, threads: &[&ServingThread]) -> RuleMatch {
    threads.iter().take(ServingThread::SHOWN).fold(matched, |matched, thread| {
        let path = format!("/proc/{}/task/{}/status", thread.pid, thread.tid);
        let allowed = thread.allowed.value().map_or_else(String::new, ToString::to_string);
        matched.evidence(format!("CPUs thread {} {} may run on", thread.name, thread.tid), allowed, path)
    })
}
