//! Rules about sockets.

pub(in crate::stage) mod buffer;
pub(in crate::stage) mod group;
pub(in crate::stage) mod memory;
pub(in crate::stage) mod sharing;
pub(in crate::stage) mod steered;

use crate::finding::RuleMatch;
use crate::stage::PacketPath;

/// Adds the known counters among these that are not zero.
fn with_counters(rule_match: RuleMatch, path: &PacketPath, names: &[&str]) -> RuleMatch {
    names.iter().fold(rule_match, |rule_match, name| {
        let Some(count) = path.route.snmp(name).filter(|count| *count > 0) else { return rule_match };
        let file = if name.contains('6') { "/proc/net/snmp6" } else { "/proc/net/snmp" };
        rule_match.evidence(*name, count, file)
    })
}
