//! Rules about the threads of a service.

pub(in crate::stage) mod audit;
pub(in crate::stage) mod held_back;
pub(in crate::stage) mod placement;
pub(in crate::stage) mod unpinned;

use crate::finding::RuleMatch;
use crate::stage::thread::ServingThread;

fn with_allowed_cpus(rule_match: RuleMatch, threads: &[&ServingThread]) -> RuleMatch {
    threads.iter().take(ServingThread::SHOWN).fold(rule_match, |rule_match, thread| {
        let path = format!("/proc/{}/task/{}/status", thread.pid, thread.tid);
        let allowed = thread.allowed.value().map_or_else(String::new, ToString::to_string);
        rule_match.evidence(format!("CPUs thread {} {} may run on", thread.name, thread.tid), allowed, path)
    })
}
